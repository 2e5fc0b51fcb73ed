// Requests to the service with the current token. Renews a token that the service refused (401, 403) and sends the request once
// more; exchange.ts, which sends, and access-token.ts, which keeps the token, decide nothing of that. All other retries belong to
// the queue, with two exceptions: a 429 (exchange.ts) and the reads of commands (patience.ts).
import type { Logger } from '../process/logger.js';
import { noMeter, type Meter } from '../process/meter.js';
import { currentText } from '../config/setting-text.js';
import type { ApiSettings } from '../config/settings.js';
import type { SpanNotes } from '../process/tracing.js';
import { withDeadline } from '../time/deadline.js';
import type { Asked, Dialect, Filter, Json, Kind } from '../dialect/dialect.js';
import { createTokenSource } from './access-token.js';
import { openConnections } from './connections.js';
import { createExchanges, type Context } from './exchange.js';
import { toDetail, type ErrorBodies } from './failure-text.js';
import { forbidden, parseAnswer, understand, type Answer, type Call, type Endpoint } from './http-errors.js';
import type { Page } from './paging.js';
import type { Limiter } from './quota/limiter.js';
import { createRedaction } from './redaction.js';

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

/** Makes something of an answer. `body` is its JSON, or undefined where it has none. */
type Parse<T> = (body: unknown, answer: Answer) => T;

export const FINDS = {
  types: 'findTypes',
  fields: 'findFields',
  objects: 'findObjects',
  reservations: 'findReservations',
  cancellations: 'findCancellations',
} as const satisfies Record<Kind, Endpoint>;

export const ONE_RESULT: Page = { page: 1, limit: 1 };

/** Opens a pool of connections to the service. Everything throws SlotsyncError only, or the signal's reason. */
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
  const exchanges = createExchanges({
    connections,
    limiter,
    log,
    meter,
    requestTimeoutMs,
  });

  /** A request of the dialect, as it is sent. */
  const callOf = (endpoint: Endpoint, { method, path, body }: Asked): Call => {
    const at = path.includes('?') ? path.indexOf('?') : path.length;
    const below = endpoint === 'authenticate' ? '' : prefix;
    return { endpoint, method, path: below + path.slice(0, at), query: path.slice(at), body };
  };

  /** A find of one page; a find of nothing else is the smallest that the service may permit. */
  const find = (kind: Kind, filter: Filter = { by: 'none' }, page: Page = ONE_RESULT) => {
    const question = { kind, filter, ...page };
    const endpoint = FINDS[kind];
    return { question, call: callOf(endpoint, dialect.find.ask(question)) };
  };

  const tokens = createTokenSource({
    defaultSeconds: tokenSeconds,
    // Every caller that waits shares this request, so no single caller's signal may end it.
    authenticate: async () => {
      const key = currentText(api.key);
      let [answer, call] = await sendKey(key);
      // Its file may have been replaced in between: the old key is withdrawn when the new one is there.
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

  /** Why a fresh token did not help: the service permits nothing with it, or forbids this kind of request. */
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

  /**
   * A request, from its slot of the quota to its answer. Between the two its sender decides what is sent, and whether.
   * `end` is called in any case.
   */
  function openRequest(call: Call, context: Context, { isProbe = false } = {}) {
    const exchange = exchanges.open(call, context);
    let token = '';
    let isRenewed = false;
    return {
      /** Waits for a token and a slot. */
      async takeSlot(): Promise<void> {
        token = await withDeadline(context, () => tokens.get()); // fetched on, for the other callers
        addSecret(token);
        await exchange.takeSlot();
      },

      /**
       * Sends with the slot in hand. Returns what `parse` makes of the JSON of a 2xx answer; undefined when it has to be sent
       * again, with another slot.
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

  /** Sends, and returns what `parse` makes of the JSON of a 2xx answer. */
  function send<T>(call: Call, context: Context, parse: Parse<T>): Promise<T> {
    const request = openRequest(call, context);
    return untilAnswered(request, () => request.send(call.body, parse));
  }

  return {
    callOf,
    find,
    openRequest,

    send,

    /** The service's text of a failure, as a message: one short line without key and token. */
    toMessage: (text: string) => toDetail(text, redact),

    /** Obtains a token now, to see whether the key is accepted. */
    authenticate: () => tokens.get(),

    meanLatencyMs: exchanges.meanLatencyMs,
    requests: exchanges.requests,
    observe: exchanges.observe,

    close: connections.close,
  };
}

const isUnauthorized = ({ status }: Answer) => status === 401 || status === 403;

/** Takes slots and sends until there is an answer. */
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
