// One request to the service, and the only place that turns an answer into an error. Every request takes a
// slot of the organization's quota and keeps it until the answer's headers are there. Retries belong to the
// queue; the exceptions are 429, which costs nobody an attempt, and one renewal of the token.
import { Pool, type Dispatcher } from 'undici';
import { codeOf, messageOf, SlotsyncError } from '../errors.js';
import type { Logger } from '../logger.js';
import { noMeter, type Meter } from '../meter.js';
import type { ApiSettings } from '../settings.js';
import { createTokenSource } from './access-token.js';
import type { Lane, Limiter } from './quota/limiter.js';
import { authenticateAnswer, createPaths, readFailure } from './wire.js';

export interface Call {
  method: 'POST' | 'PUT';
  path: string;
  body?: unknown;
}

export interface Context {
  lane: Lane;
  signal?: AbortSignal | undefined;
}

export interface ClientOptions {
  api: ApiSettings;
  limiter: Limiter;
  log: Logger;
  prefix: string;
  requestTimeoutMs: number;
  tokenSeconds: number;
  meter?: Meter;
}

/** Times one request is sent again after a 429 before it is given back to the queue. */
const MOST_THROTTLES = 30;
const MOST_BODY_BYTES = 64 * 1024 * 1024;

export type Client = ReturnType<typeof createClient>;

/** Opens a pool of connections to the service. `send` throws SlotsyncError only, or the signal's reason. */
export function createClient({
  api,
  limiter,
  log,
  prefix,
  requestTimeoutMs,
  tokenSeconds,
  meter = noMeter,
}: ClientOptions) {
  const pool = new Pool(api.baseUrl, {
    connections: 32,
    pipelining: 1,
    connect: { timeout: Math.min(10_000, requestTimeoutMs) },
    headersTimeout: requestTimeoutMs,
    bodyTimeout: requestTimeoutMs,
  });
  const paths = createPaths(api.organizationId, prefix);
  /** By path: names without the organization's id. */
  const endpoints = new Map<string, string>(
    Object.entries(paths).map(([endpoint, path]) => [path, endpoint]),
  );
  const latency = { totalMs: 0, count: 0 };
  let requests = 0;

  const tokens = createTokenSource({
    defaultSeconds: tokenSeconds,
    // Shared by every caller that waits, so no single caller's signal may end it.
    authenticate: async () => {
      const headers = { authorization: `Api-Key ${api.key}`, 'x-region': api.region };
      const answer = await sendWithin({ method: 'POST', path: paths.authenticate }, headers, {
        lane: 'incremental',
      });
      const parsed = authenticateAnswer.safeParse(expectJson(answer, 'POST', paths.authenticate));
      if (!parsed.success) throw invalidAnswer('POST', paths.authenticate, 'it holds no token');
      return parsed.data.token;
    },
  });

  /** Takes a slot, sends, frees it at the headers; again after a 429. */
  async function sendWithin(call: Call, headers: Record<string, string>, context: Context): Promise<Answer> {
    const endpoint = endpoints.get(call.path) ?? 'other';
    for (let throttles = 0; ; throttles++) {
      const askedAt = performance.now();
      const slot = await limiter.take(context.lane, context.signal);
      meter.waited(context.lane, secondsSince(askedAt));
      if (!slot.usable()) {
        await slot.release();
        continue;
      }
      requests++;
      const startedAt = performance.now();
      let response: Dispatcher.ResponseData;
      try {
        response = await pool.request({
          method: call.method,
          path: call.path,
          headers: {
            accept: 'application/json',
            ...(call.body === undefined ? {} : { 'content-type': 'application/json' }),
            ...headers,
          },
          body: call.body === undefined ? null : JSON.stringify(call.body),
          signal: anySignal(context.signal, AbortSignal.timeout(requestTimeoutMs)),
        });
      } catch (error) {
        const interrupted = context.signal?.aborted === true;
        const failure = asTransportError(error, call);
        const reason = failure.code === 'service_unreachable' ? 'unreachable' : 'lost';
        meter.requested(endpoint, interrupted ? 'interrupted' : reason, secondsSince(startedAt));
        throw interrupted ? context.signal?.reason : failure;
      } finally {
        void slot.release();
      }
      latency.totalMs += performance.now() - startedAt;
      latency.count++;
      meter.requested(endpoint, response.statusCode, secondsSince(startedAt));
      const body = await readBody(response, call);
      if (response.statusCode !== 429)
        return { status: response.statusCode, body: withoutSecrets(body, headers) };
      const retryAfterMs = readRetryAfter(response.headers['retry-after']);
      await limiter.throttled(retryAfterMs);
      const { throttled, usedByOthers, allowed } = await limiter.usage();
      const counts = { throttles: throttles + 1, throttled, allowed, usedByOthers: usedByOthers };
      log.warn({ path: call.path, retryAfterMs, ...counts }, 'throttled: others use part of the quota');
      if (throttles + 1 >= MOST_THROTTLES) {
        throw new SlotsyncError('throttled', `the service answered 429 ${throttles + 1} times running`, {
          facts: { path: call.path },
        });
      }
    }
  }

  return {
    paths,

    /** Sends with the current token, renewed once on 401 or 403. Returns the parsed body of a 2xx answer. */
    async send(call: Call, context: Context): Promise<unknown> {
      for (let renewed = false; ; renewed = true) {
        const token = await unlessAborted(tokens.get(), context.signal);
        const answer = await sendWithin(call, { authorization: `Bearer ${token}` }, context);
        if ((answer.status !== 401 && answer.status !== 403) || renewed)
          return expectJson(answer, call.method, call.path);
        tokens.refuse(token);
      }
    },

    /** Obtains a token now, to see whether the key is accepted. Returns its end in milliseconds, if it says. */
    authenticate: () => tokens.get(),

    /** Mean time from sending to headers so far; undefined before the first answer. */
    meanLatencyMs: () => (latency.count === 0 ? undefined : latency.totalMs / latency.count),
    /** Requests sent so far, of any kind. */
    requests: () => requests,

    close: () => pool.destroy(),
  };
}

/** A gateway may repeat the header it did not like. */
function withoutSecrets(body: string, { authorization = '' }: Record<string, string>): string {
  const secret = authorization.replace(/^\S+ /, '');
  return secret === '' ? body : body.replaceAll(authorization, '[secret]').replaceAll(secret, '[secret]');
}

interface Answer {
  status: number;
  body: string;
}

/** The parsed body of a 2xx answer; anything else is an error, here and nowhere else. */
function expectJson(answer: Answer, method: string, path: string): unknown {
  const { status } = answer;
  const facts = { method, path, status };
  const authenticating = path.endsWith('/authenticate');
  if (status >= 200 && status < 300) {
    try {
      return JSON.parse(answer.body) as unknown;
    } catch (error) {
      throw invalidAnswer(method, path, 'its body is not JSON', error);
    }
  }
  const detail = readFailure(answer.body);
  const message = `${method} ${path} answered ${status}`;
  if (authenticating && (status === 401 || status === 403 || status === 404)) {
    throw new SlotsyncError('unauthorized', `the service did not accept the key (${status})`, {
      remedy:
        'Check API_KEY, API_ORGANIZATION_ID, API_REGION and API_BASE_URL: all four belong to one environment.',
      facts,
      detail,
    });
  }
  if (status === 401 || status === 403) {
    throw new SlotsyncError('unauthorized', message, {
      remedy: 'The key is valid but not permitted this, or was withdrawn: check its rights at the service.',
      facts,
      detail,
    });
  }
  if (status >= 500 || status === 408 || status === 425) {
    throw new SlotsyncError('service_failed', message, { facts, detail });
  }
  if (status >= 300 && status < 400) {
    throw new SlotsyncError('redirected', message, {
      facts,
      detail,
    });
  }
  throw new SlotsyncError('refused', message, { facts, detail });
}

/** The answer is not what the wire module says. What was sent may have been done. */
export function invalidAnswer(method: string, path: string, what: string, cause?: unknown): SlotsyncError {
  return new SlotsyncError('answer_invalid', `${method} ${path}: the answer cannot be understood: ${what}`, {
    facts: { method, path },
    cause,
  });
}

async function readBody({ body, headers }: Dispatcher.ResponseData, call: Call): Promise<string> {
  if (Number(headers['content-length'] ?? 0) > MOST_BODY_BYTES) {
    body.destroy();
    throw invalidAnswer(call.method, call.path, 'it is larger than 64 MB');
  }
  try {
    return await body.text();
  } catch (error) {
    throw asTransportError(error, call);
  }
}

const NEVER_SENT = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

function asTransportError(error: unknown, { method, path }: Call): SlotsyncError {
  const timedOut = error instanceof Error && error.name === 'TimeoutError';
  const code = timedOut ? 'timeout' : codeOf(error);
  const facts = { method, path, reason: code };
  if (NEVER_SENT.has(code) || (error instanceof Error && /certificate|self.signed/i.test(messageOf(error)))) {
    return new SlotsyncError('service_unreachable', `the service cannot be reached (${code})`, {
      facts,
      cause: error,
    });
  }
  return new SlotsyncError(
    'answer_lost',
    `${method} ${path}: no answer arrived (${code}); it may have been done`,
    {
      facts,
      cause: error,
    },
  );
}

/** Milliseconds a Retry-After header asks for, as seconds or as a date. */
export function readRetryAfter(header: string | string[] | undefined, now = Date.now()): number | undefined {
  const value = Array.isArray(header) ? header[0] : header;
  if (value === undefined || value.trim() === '') return undefined;
  if (/^\d+(\.\d+)?$/.test(value.trim())) return Number(value) * 1000;
  const at = /^[A-Za-z]{3,9},? /.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}

function anySignal(a: AbortSignal | undefined, b: AbortSignal): AbortSignal {
  return a ? AbortSignal.any([a, b]) : b;
}

/** The result, or the signal's reason as soon as it aborts; what is waited for goes on for the others. */
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

function secondsSince(at: number): number {
  return (performance.now() - at) / 1000;
}
