// Requests to webhooks and to a monitoring service. Their addresses are secret, so no error repeats them.
import { createHmac } from 'node:crypto';
import { openConnections } from '../destination/connections.js';
import { codeOf } from '../errors/errors.js';
import type { ProxySettings } from '../config/settings.js';

export interface WebLimits {
  proxy: ProxySettings | undefined;
  timeoutMs: number;
}

interface Webhook extends WebLimits {
  url: string;
  /** Secret that the body is signed with. If undefined, the body is not signed. */
  secret?: string | undefined;
}

interface Message {
  /** Identifies the message. Stays the same at every attempt. */
  id: string;
  body: unknown;
}

/** Posts JSON. Throws an Error with the reason if the message did not arrive. */
export async function postWebhook(
  { secret, ...webhook }: Webhook,
  { id, body }: Message,
  signal: AbortSignal,
): Promise<void> {
  const text = JSON.stringify(body);
  const headers = {
    'content-type': 'application/json',
    ...(secret ? sign({ id, body: text }, secret) : {}),
  };
  await ask(webhook, { method: 'POST', headers, body: text }, signal);
}

export type PingOutcome = 'start' | 'success' | 'fail';

/**
 * Requests the address of a monitoring service by the convention of healthchecks.io: with `/start` or `/fail` appended,
 * or unchanged for success. `uuid` names the run. An address with a query only means success, so it is not requested
 * for other outcomes. The query `create` is an exception, because it belongs to the convention.
 */
export async function ping(
  { url, ...webhook }: Omit<Webhook, 'secret'>,
  { outcome, uuid }: { outcome: PingOutcome; uuid?: string | undefined },
  signal: AbortSignal,
): Promise<void> {
  const address = new URL(url);
  if ([...address.searchParams.keys()].some((name) => name !== 'create')) {
    if (outcome === 'success') await ask({ url, ...webhook }, { method: 'GET' }, signal);
    return;
  }
  if (outcome !== 'success') address.pathname = `${address.pathname.replace(/\/$/, '')}/${outcome}`;
  if (uuid !== undefined) address.searchParams.set('rid', uuid);
  await ask({ url: address.href, ...webhook }, { method: 'GET' }, signal);
}

/** Throws an Error for any answer except 2xx. A redirect is also an error. */
async function ask(
  { url, proxy, timeoutMs }: Omit<Webhook, 'secret'>,
  request: { method: 'GET' | 'POST'; headers?: Record<string, string>; body?: string },
  signal: AbortSignal,
): Promise<void> {
  const { origin, pathname, search } = new URL(url);
  const connections = openConnections({ baseUrl: origin, proxy }, timeoutMs);
  try {
    const answer = await connections.request(
      { path: pathname + search, ...request, signal },
      () => undefined,
    );
    if (answer.statusCode < 200 || answer.statusCode > 299)
      throw new Error(`it answered HTTP ${answer.statusCode}`);
  } catch (error) {
    if (signal.aborted) throw new Error('no answer in time', { cause: error });
    const code = codeOf(error);
    throw code === 'unexpected' ? error : new Error(`${whatHappened(code)} (${code})`, { cause: error });
  } finally {
    await connections.close(); // with an answer's body that is not read
  }
}

function whatHappened(code: string): string {
  switch (code) {
    case 'UND_ERR_HEADERS_TIMEOUT':
      return 'it took the request and did not answer in time';
    case 'UND_ERR_SOCKET':
    case 'ECONNRESET':
    case 'EPIPE':
      return 'the connection was closed before it answered';
    default:
      return 'it cannot be reached';
  }
}

/** Headers of Standard Webhooks: HMAC-SHA256 of id, timestamp and body, with the bytes of a secret `whsec_…`. */
export function sign(
  { id, body }: { id: string; body: string },
  secret: string,
  now = Date.now(),
): Record<string, string> {
  const timestamp = String(Math.floor(now / 1000));
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
  const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64');
  return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': `v1,${signature}` };
}
