// Sends requests to the service with the current token. Renews a token that the service refused (401, 403) and sends
// the request once more. All other retries belong to the queue, except after a 429 (exchange.ts) and for queries of
// commands (find-pages.ts).
import type { Logger } from '../process/logger.js';
import { noMeter, type Meter } from '../process/meter.js';
import { currentText } from '../config/setting-text.js';
import type { ApiSettings } from '../config/settings.js';
import type { SpanNotes } from '../process/tracing.js';
import { withDeadline } from '../time/deadline.js';
import type { Asked, Dialect, Filter, Json, Kind } from '../dialect/dialect.js';
import { openConnections } from './connections.js';
import { createExchanges, type Context } from './exchange.js';
import { createRedaction, toDetail, type ErrorBodies } from './failure-text.js';
import { forbidden, parseAnswer, understand, type Answer, type Call, type Endpoint } from './http-errors.js';
import type { Page } from './paging.js';
import type { Limiter } from './quota/limiter.js';

export type { Context } from './exchange.js';

export interface ClientOptions {
  api: ApiSettings;
  limiter: Limiter;
  log: Logger;
  dialect: Dialect;
  prefix: string;
  requestTimeoutMs: number;
  tokenSeconds: number;
  errorBodies: ErrorBodies;
  meter?: Meter;
}

export type Client = ReturnType<typeof createClient>;

/** Converts an answer to a result. `body` is the parsed JSON, or undefined if the answer has no body. */
type Parse<T> = (body: unknown, answer: Answer) => T;

export const FINDS = {
  types: 'findTypes',
  fields: 'findFields',
  objects: 'findObjects',
  reservations: 'findReservations',
  cancellations: 'findCancellations',
} as const satisfies Record<Kind, Endpoint>;

export const ONE_RESULT: Page = { page: 1, limit: 1 };

/** Opens a pool of connections to the service. All functions throw only SlotsyncError or the signal's reason. */
export function createClient({
  api,
  limiter,
  log,
  dialect,
  prefix,
  requestTimeoutMs,
  tokenSeconds,
  errorBodies,
  meter = noMeter,
}: ClientOptions) {
  const connections = openConnections(api, requestTimeoutMs, meter.connected);
  const { add: addSecret, redact } = createRedaction();
  const reading = { errorBodies, redact, readReason: dialect.error.read };
  const exchanges = createExchanges({ connections, limiter, log, meter, requestTimeoutMs });

  const callOf = (endpoint: Endpoint, { method, path, body }: Asked): Call => {
    const at = path.includes('?') ? path.indexOf('?') : path.length;
    const below = endpoint === 'authenticate' ? '' : prefix;
    return { endpoint, method, path: below + path.slice(0, at), query: path.slice(at), body };
  };

  /** Returns a find of one page. Without filter and page, it asks for one result, to test what is permitted. */
  const find = (kind: Kind, filter: Filter = { by: 'none' }, page: Page = ONE_RESULT) => {
    const question = { kind, filter, ...page };
    const endpoint = FINDS[kind];
    return { question, call: callOf(endpoint, dialect.find.ask(question)) };
  };

  const tokens = createTokenSource({
    defaultSeconds: tokenSeconds,
    // This request takes no signal, because all waiting callers share it and no single caller may abort it.
    authenticate: async () => {
      const key = currentText(api.key);
      let [answer, call] = await sendKey(key);
      // The file with the key may have been replaced meanwhile, because an old key is withdrawn once a new one exists.
      const replaced = answer.status >= 400 && answer.status < 500 ? currentText(api.key) : key;
      if (replaced !== key) [answer, call] = await sendKey(replaced);
      const body = parseAnswer(answer, call, reading) as Json;
      return understand(call, body, () => dialect.authenticate.read(body));
    },
  });

  async function sendKey(key: string): Promise<[Answer, Call]> {
    addSecret(key);
    const { organizationId, region } = api;
    const { headers, ...asked } = dialect.authenticate.ask({ key, organizationId, region });
    const call = callOf('authenticate', asked);
    const exchange = exchanges.open(call, { lane: 'incremental' });
    return [await untilAnswered(exchange, () => exchange.send(headers, call.body)), call];
  }

  /** The last token with which the service permitted a request. */
  let permitted: string | undefined;

  /**
   * Returns the error of a request that was refused with a fresh token: either the service refuses everything with the
   * token, or it forbids this kind of request.
   */
  async function explainRefused(
    answer: Answer,
    call: Call,
    token: string,
    context: Context,
  ): Promise<unknown> {
    const other = find(call.endpoint === FINDS.types ? 'fields' : 'types').call;
    const probe = openRequest(other, context, { isProbe: true });
    const isPermitted = async () =>
      untilAnswered(probe, () => probe.send(other.body, () => true)).catch(() => false);
    const isForbidden = permitted === token || (await isPermitted());
    try {
      return parseAnswer(answer, call, reading);
    } catch (error) {
      return isForbidden ? forbidden(error) : error;
    }
  }

  /** Opens a request. After `takeSlot`, the caller decides whether and what to send. Callers must then call `end`. */
  function openRequest(call: Call, context: Context, { isProbe = false } = {}) {
    const exchange = exchanges.open(call, context);
    let token = '';
    let isRenewed = false;
    return {
      /** Waits for a token and a slot of the quota. */
      async takeSlot(): Promise<void> {
        token = await withDeadline(context, () => tokens.get()); // not aborted, because other callers await it
        addSecret(token);
        await exchange.takeSlot();
      },

      /**
       * Sends with the slot from `takeSlot`. Returns the result of `parse` for a 2xx answer. Returns undefined if the
       * request must be sent again with a new slot.
       */
      async send<T>(body: unknown, parse: Parse<T>, notes?: SpanNotes): Promise<T | undefined> {
        const answer = await exchange.send(dialect.authenticate.headers(token), body, notes);
        if (!answer) return undefined;
        if (!isUnauthorized(answer)) {
          permitted = token;
          const parsed = parseAnswer(answer, call, reading);
          return understand(call, parsed, () => parse(parsed, answer));
        }
        if (isProbe) return parse(parseAnswer(answer, call, reading), answer);
        if (isRenewed) throw await explainRefused(answer, call, token, context);
        isRenewed = true;
        tokens.refuse(token);
        return undefined;
      },

      hasSlot: exchange.hasSlot,
      end: exchange.end,
    };
  }

  function send<T>(call: Call, context: Context, parse: Parse<T>): Promise<T> {
    const request = openRequest(call, context);
    return untilAnswered(request, () => request.send(call.body, parse));
  }

  return {
    callOf,
    find,
    openRequest,

    send,

    /** Shortens the service's text of a failure to one line, without keys and tokens. */
    toMessage: (text: string) => toDetail(text, redact),

    /** Obtains a token now, to check whether the service accepts the key. */
    authenticate: () => tokens.get(),

    meanLatencyMs: exchanges.meanLatencyMs,
    requests: exchanges.requests,
    observe: exchanges.observe,

    close: connections.close,
  };
}

const isUnauthorized = ({ status }: Answer) => status === 401 || status === 403;

export async function untilAnswered<T>(
  request: { takeSlot: () => Promise<void>; end: () => void },
  send: () => Promise<T | undefined>,
): Promise<T> {
  try {
    for (;;) {
      await request.takeSlot();
      const answer = await send();
      if (answer !== undefined) return answer;
    }
  } finally {
    request.end();
  }
}

// The short-lived access token is obtained once for all waiting callers, used until shortly before it expires, and renewed
// when the service refuses it.

/** Maximum safety margin in milliseconds. A token is not used in the last tenth of its lifetime. */
const LONGEST_MARGIN_MS = 60_000;

export function createTokenSource(options: {
  authenticate: () => Promise<string>;
  /** Lifetime in seconds of a token without an `exp` claim. */
  defaultSeconds: number;
  now?: () => number;
}) {
  const now = options.now ?? Date.now;
  let current: { token: string; until: number } | undefined;
  let pending: Promise<string> | undefined;

  async function fetch(): Promise<string> {
    const token = await options.authenticate();
    const fetchedAt = now();
    const expiry = readExpiry(token);
    // If a new token seems expired, the clocks differ, and `exp` is not usable. Then `defaultSeconds` applies.
    const end =
      expiry !== undefined && expiry > fetchedAt ? expiry : fetchedAt + options.defaultSeconds * 1000;
    current = { token, until: end - Math.min((end - fetchedAt) / 10, LONGEST_MARGIN_MS) };
    return token;
  }

  return {
    /** Returns the current token, or the one being obtained. Rejects with the error of `authenticate`. */
    get(): Promise<string> {
      if (current && now() < current.until) return Promise.resolve(current.token);
      pending ??= fetch().finally(() => (pending = undefined));
      return pending;
    },
    /** Discards a token that the service refused, so that the next `get` obtains a new one. */
    refuse(token: string): void {
      if (current?.token === token) current = undefined;
    },
  };
}

/** Returns the `exp` claim of a JWT in milliseconds, unverified. It only decides when the token is renewed. */
export function readExpiry(token: string): number | undefined {
  try {
    const payload: unknown = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString('utf8'));
    if (typeof payload !== 'object' || payload === null || !('exp' in payload)) return undefined;
    return typeof payload.exp === 'number' ? payload.exp * 1000 : undefined;
  } catch {
    return undefined;
  }
}
