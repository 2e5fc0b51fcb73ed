// Sends a request with a slot of the quota, and reads its answer. The request keeps the slot while the service may
// still read it. After a 429 the request is sent again with a new slot, at no cost of an attempt, because only the
// quota was exceeded. The limiter pauses the whole organization meanwhile.
import { codeOf, SlotsyncError } from '../errors/errors.js';
import type { Logger } from '../process/logger.js';
import type { Meter } from '../process/meter.js';
import {
  linkTo,
  noteFailure,
  noteInSpan,
  openSpan,
  type OpenSpan,
  type SpanNotes,
} from '../process/tracing.js';
import { openDeadline, type Deadline } from '../time/deadline.js';
import type { Connections } from './connections.js';
import { answerTooLarge, asTransportError, type Answer, type Call } from './http-errors.js';
import type { Lane, Limiter, Slot } from './quota/limiter.js';
import { readBody } from './read-body.js';

export interface Context {
  lane: Lane;
  signal?: AbortSignal | undefined;
  /** Called each time a request is sent, including when it is sent again. */
  noteSent?: (() => void) | undefined;
}

interface ExchangeDeps {
  connections: Connections;
  limiter: Limiter;
  log: Logger;
  meter: Meter;
  requestTimeoutMs: number;
}

/** Error codes after which the service has closed the connection, and discards a request that it has not read. */
const CLOSED_BY_THE_SERVICE: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);

/** Number of 429 answers to one request after which its job returns to the queue. */
const MOST_THROTTLES = 30;

export interface Exchanged {
  call: Call;
  status: number;
  body: string;
}

type SendOnce = (
  slot: Slot,
  call: Call,
  headers: Record<string, string>,
  interrupted: { signal: AbortSignal | undefined; deadline: Deadline },
) => Promise<Answer>;

/** Sends requests, and measures their latency. */
export function createExchanges(deps: ExchangeDeps) {
  const { connections, meter } = deps;
  const latency = { totalMs: 0, count: 0 };
  let requests = 0;
  let observer: ((exchanged: Exchanged) => void) | undefined;

  /**
   * Sends, and releases the slot when the headers arrive or the request can no longer arrive. After a timeout the
   * request may still arrive, because a frozen service reads it when it wakes. Such a slot becomes free when its lease
   * ends.
   */
  const sendOnce: SendOnce = async (slot, call, headers, { signal, deadline }) => {
    requests++;
    const startedAt = performance.now();
    const measure = (outcome: number | 'interrupted' | 'unreachable' | 'lost') =>
      meter.requested(call.endpoint, outcome, (performance.now() - startedAt) / 1000);
    const request = {
      method: call.method,
      path: call.path + call.query,
      headers: {
        accept: 'application/json',
        ...(call.body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      body: call.body === undefined ? null : JSON.stringify(call.body),
      signal: deadline.signal,
    };
    let response: Awaited<ReturnType<typeof connections.request>>;
    let isSent = false;
    let isOver = true;
    try {
      response = await deadline.within(connections.request(request, () => (isSent = true)));
    } catch (error) {
      isOver = !isSent || CLOSED_BY_THE_SERVICE.has(codeOf(error));
      const failure = asTransportError(error, call, isSent);
      if (signal?.aborted !== true) {
        measure(failure.code === 'service_unreachable' ? 'unreachable' : 'lost');
        throw failure;
      }
      measure('interrupted');
      throw signal.reason;
    } finally {
      if (isOver) void slot.release();
    }
    latency.totalMs += performance.now() - startedAt;
    latency.count++;
    measure(response.statusCode);
    const { statusCode: status, headers: received } = response;
    const body = await deadline.within(readBody(response.body, status)).catch((error: unknown) => {
      throw asTransportError(error, call, true);
    });
    if (body === undefined) throw answerTooLarge(call, 'it has more than 64 MB');
    observer?.({ call, status, body });
    return { status, retryAfter: received['retry-after'], body };
  };

  return {
    /** Opens an exchange. Callers must always call its `end`, which releases an unused slot. */
    open: (call: Call, context: Context) => openExchange(deps, sendOnce, call, context),
    /** Mean milliseconds from sending to the headers of the answer, or undefined before the first answer. */
    meanLatencyMs: () => (latency.count === 0 ? undefined : latency.totalMs / latency.count),
    /** Number of requests sent so far, including those for tokens. */
    requests: () => requests,

    /** Sets the listener that is called with every later request and its answer. */
    observe: (listener: (exchanged: Exchanged) => void): void => void (observer = listener),
  };
}

/** Pauses all requests of the organization after a 429. Throws `throttled` after too many of them for one request. */
async function pauseOrganization(
  { limiter, log }: Pick<ExchangeDeps, 'limiter' | 'log'>,
  { path }: Call,
  { retryAfter }: Answer,
  throttles: number,
): Promise<void> {
  const retryAfterMs = readRetryAfter(retryAfter);
  await limiter.throttled(retryAfterMs);
  const { throttled, usedByOthers, allowed } = await limiter.usage();
  const counts = { throttles, throttled, allowed, usedByOthers };
  log.warn({ path, retryAfterMs, ...counts }, 'throttled: other programs may use part of the quota');
  if (throttles < MOST_THROTTLES) return;
  throw new SlotsyncError('throttled', `the service answered 429 ${throttles} times in a row`, {
    facts: { path },
  });
}

function openExchange(
  deps: ExchangeDeps,
  sendOnce: SendOnce,
  { method, path, query, endpoint }: Call,
  { lane, signal, noteSent }: Context,
) {
  const { limiter, meter, requestTimeoutMs } = deps;
  let span: OpenSpan | undefined;
  let slot: Slot | undefined;
  let waitedSeconds = 0;
  let answers = 0;
  let throttles = 0;

  function within<T>(work: () => Promise<T>): Promise<T> {
    const attributes = {
      'http.request.method': method,
      'slotsync.endpoint': endpoint,
      'slotsync.lane': lane,
    };
    span ??= openSpan(`${method} ${endpoint}`, attributes, { isRequest: true });
    return span.within(work);
  }

  async function takeSlot(): Promise<void> {
    const askedAt = performance.now();
    slot = await limiter.take(lane, signal);
    const seconds = (performance.now() - askedAt) / 1000;
    meter.waited(lane, seconds);
    waitedSeconds += seconds;
    noteInSpan({ 'slotsync.quota.wait_seconds': waitedSeconds });
  }

  async function send(
    headers: Record<string, string>,
    body: unknown,
    notes: SpanNotes,
  ): Promise<Answer | undefined> {
    const taken = slot;
    slot = undefined;
    if (!taken?.usable()) {
      await taken?.release();
      return undefined;
    }
    const call = { method, path, query, endpoint, body };
    noteSent?.();
    if (answers === 0) {
      noteInSpan(notes.attributes ?? {});
      linkTo(notes.links ?? []);
    }
    const deadline = openDeadline({ ms: requestTimeoutMs, signal });
    const answer = await sendOnce(taken, call, headers, { signal, deadline }).finally(deadline.end);
    noteInSpan({ 'http.response.status_code': answer.status, 'http.request.resend_count': answers++ });
    if (answer.status === 429) {
      await pauseOrganization(deps, call, answer, ++throttles);
      return undefined;
    }
    if (answer.status >= 400) noteFailure(String(answer.status));
    return answer;
  }

  return {
    takeSlot: () => within(takeSlot),
    /** Sends the request with the slot from `takeSlot`. Returns undefined if a new slot is needed, as after a 429. */
    send: (headers: Record<string, string>, body?: unknown, notes: SpanNotes = {}) =>
      within(() => send(headers, body, notes)),
    hasSlot: () => slot !== undefined,
    end(): void {
      void slot?.release();
      span?.end();
    },
  };
}

/** Parses a Retry-After header, in seconds or as a date, to milliseconds from now. */
export function readRetryAfter(header: Answer['retryAfter'], now = Date.now()): number | undefined {
  const value = Array.isArray(header) ? header[0] : header;
  if (value === undefined || value.trim() === '') return undefined;
  if (/^\d+(\.\d+)?$/.test(value.trim())) return Number(value) * 1000;
  const at = /^[A-Za-z]{3,9},? /.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}
