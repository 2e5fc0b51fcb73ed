// Requests to the service with the current token. Retries belong to the queue, with three exceptions: a 429 (exchange.ts),
// one renewal of the token, and the reads of commands (patience.ts).
import type { Logger } from '../process/logger.js';
import { noMeter, type Meter } from '../process/meter.js';
import { currentText } from '../config/setting-text.js';
import type { ApiSettings } from '../config/settings.js';
import type { SpanNotes } from '../process/tracing.js';
import { withDeadline } from '../time/deadline.js';
import { createTokenSource } from './access-token.js';
import { openConnections } from './connections.js';
import { createExchanges, type Context } from './exchange.js';
import { forbidden, invalidAnswer, parseAnswer, type Answer, type Call } from './http-errors.js';
import type { Limiter } from './quota/limiter.js';
import { createRedaction } from './redaction.js';
import { authenticateAnswer, createPaths, findAny, toDetail, type ErrorBodies } from './wire.js';

export type { Context } from './exchange.js';

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

/** Opens a pool of connections to the service. Everything throws SlotsyncError only, or the signal's reason. */
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
  const exchanges = createExchanges({
    connections,
    limiter,
    log,
    meter,
    requestTimeoutMs,
    endpointOf: (path) => endpoints.get(path) ?? 'other',
  });

  const tokens = createTokenSource({
    defaultSeconds: tokenSeconds,
    // Every caller that waits shares this request, so no single caller's signal may end it.
    authenticate: async () => {
      const call = { method: 'POST', path: paths.authenticate } as const;
      const key = currentText(api.key);
      let answer = await sendKey(call, key);
      // Its file may have been replaced in between: the old key is withdrawn when the new one is there.
      const replaced = answer.status >= 400 && answer.status < 500 ? currentText(api.key) : key;
      if (replaced !== key) answer = await sendKey(call, replaced);
      const parsed = authenticateAnswer.safeParse(parseAnswer(answer, call, reading));
      if (!parsed.success) throw invalidAnswer(call, 'it holds no token');
      return parsed.data.token;
    },
  });

  async function sendKey(call: Call, key: string): Promise<Answer> {
    addSecret(key);
    const headers = { authorization: `Api-Key ${key}`, 'x-region': api.region };
    const exchange = exchanges.open(call, { lane: 'incremental' });
    return untilAnswered(exchange, () => exchange.send(headers));
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
    const path = call.path === paths.findTypes ? paths.findFields : paths.findTypes;
    const probe = openRequest({ method: 'POST', path }, context, { isProbe: true });
    const isPermitted = async () =>
      untilAnswered(probe, () => probe.send(findAny, () => true)).catch(() => false);
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
       * Sends with the slot in hand. Returns what `parse` makes of the body of a 2xx answer, and of its characters; undefined
       * when it has to be sent again, with another slot.
       */
      async send<T>(
        body: unknown,
        parse: (body: unknown, characters: number) => T,
        notes?: SpanNotes,
      ): Promise<T | undefined> {
        const answer = await exchange.send({ authorization: `Bearer ${token}` }, body, notes);
        if (!answer) return undefined;
        if (!isUnauthorized(answer)) {
          permitted = token;
          return parse(parseAnswer(answer, call, reading), answer.body.length);
        }
        if (isProbe) return parse(parseAnswer(answer, call, reading), 0);
        if (isRenewed) throw await explainRefused(answer, call, token, context);
        isRenewed = true;
        tokens.refuse(token);
        return undefined;
      },

      hasSlot: exchange.hasSlot,
      end: exchange.end,
    };
  }

  /** Sends, and returns what `parse` makes of the body of a 2xx answer, and of its characters. */
  function send<T>(
    { body, ...call }: Call,
    context: Context,
    parse: (body: unknown, characters: number) => T,
  ): Promise<T> {
    const request = openRequest(call, context);
    return untilAnswered(request, () => request.send(body, parse));
  }

  return {
    paths,
    openRequest,

    send,

    /** The service's text of a failure, as a message: one short line without key and token. */
    toMessage: (text: string) => toDetail(text, redact),

    /** Obtains a token now, to see whether the key is accepted. */
    authenticate: () => tokens.get(),

    meanLatencyMs: exchanges.meanLatencyMs,
    requests: exchanges.requests,

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
