// One request to the service. It takes a slot of the organization's quota and keeps it until the headers of the answer
// have arrived. Retries belong to the queue, with two exceptions: a 429 (throttling.ts), and one renewal of the token.
import type { Logger } from '../logger.js';
import { noMeter, type Meter } from '../meter.js';
import { currentText } from '../setting-text.js';
import type { ApiSettings } from '../settings.js';
import { inSpan, noteFailure } from '../tracing.js';
import { createTokenSource } from './access-token.js';
import { openConnections } from './connections.js';
import { asTransportError, invalidAnswer, parseAnswer, type Answer, type Call } from './http-errors.js';
import type { Lane, Limiter, Slot } from './quota/limiter.js';
import { sendWithinQuota } from './throttling.js';
import { readBody } from './read-body.js';
import { createRedaction } from './redaction.js';
import { authenticateAnswer, createPaths, toDetail, type ErrorBodies } from './wire.js';

export interface Context {
  lane: Lane;
  signal?: AbortSignal | undefined;
  /**
   * Called with the slot in hand, right before the request is sent, also when it is sent again. What it throws ends the
   * request, of which nothing was sent then.
   */
  beforeSend?: (() => Promise<void>) | undefined;
}

export interface ClientOptions {
  api: ApiSettings;
  limiter: Limiter;
  log: Logger;
  prefix: string;
  requestTimeoutMs: number;
  tokenSeconds: number;
  errorBodies: ErrorBodies;
  meter?: Meter;
}

export type Client = ReturnType<typeof createClient>;

/** Opens a pool of connections to the service. `send` throws SlotsyncError only, or the signal's reason. */
export function createClient({
  api,
  limiter,
  log,
  prefix,
  requestTimeoutMs,
  tokenSeconds,
  errorBodies,
  meter = noMeter,
}: ClientOptions) {
  const connections = openConnections(api, requestTimeoutMs, meter.connected);
  const paths = createPaths(api.organizationId, prefix);
  /** By path: names without the organization's id. */
  const endpoints = new Map<string, string>(
    Object.entries(paths).map(([endpoint, path]) => [path, endpoint]),
  );
  const { add: addSecret, redact } = createRedaction();
  const reading = { errorBodies, redact };
  const latency = { totalMs: 0, count: 0 };
  let requests = 0;

  const tokens = createTokenSource({
    defaultSeconds: tokenSeconds,
    // Every caller that waits shares this request, so no single caller's signal may end it.
    authenticate: async () => {
      const call = { method: 'POST', path: paths.authenticate } as const;
      const sendKey = (key: string) => {
        addSecret(key);
        const headers = { authorization: `Api-Key ${key}`, 'x-region': api.region };
        return sendAuthorized(call, headers, { lane: 'incremental' });
      };
      const key = currentText(api.key);
      let answer = await sendKey(key);
      // Its file may have been replaced in between: the old key is withdrawn when the new one is there.
      const replaced = isUnauthorized(answer) ? currentText(api.key) : key;
      if (replaced !== key) answer = await sendKey(replaced);
      const parsed = authenticateAnswer.safeParse(parseAnswer(answer, call, reading));
      if (!parsed.success) throw invalidAnswer(call, 'it holds no token');
      return parsed.data.token;
    },
  });

  const endpointOf = ({ path }: Call) => endpoints.get(path) ?? 'other';

  function sendAuthorized(call: Call, headers: Record<string, string>, context: Context): Promise<Answer> {
    const endpoint = endpointOf(call);
    const attributes = {
      'http.request.method': call.method,
      'slotsync.endpoint': endpoint,
      'slotsync.lane': context.lane,
    };
    const send = async () => {
      const answer = await sendWithinQuota({ limiter, log, meter }, { path: call.path, ...context }, (slot) =>
        sendOnce(slot, call, headers, context.signal),
      );
      if (answer.status >= 400) noteFailure(String(answer.status));
      return answer;
    };
    return inSpan(`${call.method} ${endpoint}`, attributes, send, { isRequest: true });
  }

  /** Sends, and releases the slot when the headers have arrived or the request has failed. */
  async function sendOnce(
    slot: Slot,
    call: Call,
    headers: Record<string, string>,
    signal: AbortSignal | undefined,
  ): Promise<Answer> {
    requests++;
    const startedAt = performance.now();
    const measure = (outcome: number | 'interrupted' | 'unreachable' | 'lost') =>
      meter.requested(endpointOf(call), outcome, (performance.now() - startedAt) / 1000);
    const request = {
      method: call.method,
      path: call.path,
      headers: {
        accept: 'application/json',
        ...(call.body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      body: call.body === undefined ? null : JSON.stringify(call.body),
      signal: AbortSignal.any([...(signal ? [signal] : []), AbortSignal.timeout(requestTimeoutMs)]),
    };
    let response: Awaited<ReturnType<typeof connections.request>>;
    let isSent = false;
    try {
      response = await connections.request(request, () => (isSent = true));
    } catch (error) {
      const failure = asTransportError(error, call, isSent);
      if (signal?.aborted !== true) {
        measure(failure.code === 'service_unreachable' ? 'unreachable' : 'lost');
        throw failure;
      }
      measure('interrupted');
      throw signal.reason;
    } finally {
      void slot.release();
    }
    latency.totalMs += performance.now() - startedAt;
    latency.count++;
    measure(response.statusCode);
    const { statusCode: status, headers: received } = response;
    const body = await readBody(response.body, status).catch((error: unknown) => {
      throw asTransportError(error, call, true);
    });
    if (body === undefined) throw invalidAnswer(call, 'it is larger than 64 MB');
    return { status, retryAfter: received['retry-after'], body };
  }

  return {
    paths,

    /** Sends with the current token, renewed once on 401 or 403. Returns the parsed body of a 2xx answer. */
    async send(call: Call, context: Context): Promise<unknown> {
      for (let renewed = false; ; renewed = true) {
        const token = await unlessAborted(tokens.get(), context.signal);
        addSecret(token);
        const answer = await sendAuthorized(call, { authorization: `Bearer ${token}` }, context);
        if (!isUnauthorized(answer) || renewed) return parseAnswer(answer, call, reading);
        tokens.refuse(token);
      }
    },

    /** What the service says of a failure, as a message: one short line without key and token. */
    toMessage: (text: string) => toDetail(text, redact),

    /** Obtains a token now, to see whether the key is accepted. */
    authenticate: () => tokens.get(),

    /** Mean time from sending to headers so far; undefined before the first answer. */
    meanLatencyMs: () => (latency.count === 0 ? undefined : latency.totalMs / latency.count),
    /** Requests sent so far, of any kind. */
    requests: () => requests,

    close: connections.close,
  };
}

const isUnauthorized = ({ status }: Answer) => status === 401 || status === 403;

/** The result, or the signal's reason as soon as it aborts. What is waited for continues, for the other callers. */
async function unlessAborted<T>(result: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return result;
  let onAbort = () => undefined as void;
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason);
  });
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort);
  try {
    return await Promise.race([aborted, result]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
