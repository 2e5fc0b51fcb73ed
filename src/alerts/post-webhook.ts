// A POST to a webhook, through the proxy where one is set. Its address is a secret, so no failure repeats it.
import { createHmac } from 'node:crypto';
import { openConnections } from '../destination/connections.js';
import { codeOf } from '../errors/errors.js';
import type { ProxySettings } from '../config/settings.js';

interface Webhook {
  url: string;
  /** The secret that the body is signed with; undefined: it is not signed. */
  secret?: string | undefined;
  proxy: ProxySettings | undefined;
  timeoutMs: number;
}

interface Message {
  /** The same each time it is sent. */
  id: string;
  body: unknown;
}

/** Posts JSON. Throws an Error that says why it did not arrive: anything but 2xx is a failure, a redirect too. */
export async function postWebhook(
  { url, secret, proxy, timeoutMs }: Webhook,
  { id, body }: Message,
  signal: AbortSignal,
): Promise<void> {
  const { origin, pathname, search } = new URL(url);
  const text = JSON.stringify(body);
  const connections = openConnections({ baseUrl: origin, proxy }, timeoutMs);
  try {
    const answer = await connections.request(
      {
        path: pathname + search,
        method: 'POST',
        headers: { 'content-type': 'application/json', ...(secret ? sign({ id, body: text }, secret) : {}) },
        body: text,
        signal,
      },
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

/** The headers of Standard Webhooks: the HMAC-SHA256 of id, timestamp and body with the bytes of a secret `whsec_…`. */
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
