// Reads facts about the sender of a request: if it is on this machine, for which client and user the request is, and
// which page sent a form. access.ts decides by these facts.
//
// The state names records, which may be people. So without signing in, the page can be read only on this machine: under
// a name of this machine, at a loopback address, and not through a proxy. Without HTTP_TOKEN, nobody else can read it.
// The name is checked because another site can make its own name resolve to a loopback address (DNS rebinding).
import type { IncomingMessage } from 'node:http';
import { isIP, type BlockList } from 'node:net';
import { isLoopback, isWithin, nameOfHost } from '../connections/addresses.js';

const LONGEST_USER = 200;
/** Headers that a proxy adds, for example to name the client. */
const PROXY_HEADER = /^(x-forwarded(-.*)?|forwarded|x-real-ip|via)$/;

/** Returns true if the request was sent from this machine. `listens` is the address of the server (HTTP_HOST). */
export function isLocal(
  { headers, httpVersion }: Pick<IncomingMessage, 'headers' | 'httpVersion'>,
  listens: string,
): boolean {
  return (
    isLoopback(listens) &&
    // Proxies with default settings use HTTP/1.0, send this server's own address as host, and name no client.
    httpVersion !== '1.0' &&
    isLoopback(nameOfHost(headers.host ?? '')) &&
    !Object.keys(headers).some((name) => PROXY_HEADER.test(name))
  );
}

/** Returns the address of the client. X-Forwarded-For is believed only as far as trusted proxies sent it. */
export function clientOf(
  { headers, socket }: Pick<IncomingMessage, 'headers' | 'socket'>,
  proxies: BlockList,
): string {
  const addresses = `${String(headers['x-forwarded-for'] ?? '')},${socket.remoteAddress ?? ''}`.split(
    /\s*,\s*/,
  );
  const own = addresses.findLastIndex((address) => !isWithin(proxies, address));
  const client = addresses[Math.max(own, 0)] ?? '';
  // If a proxy forwarded text that is no address, the proxy itself counts as the client.
  return isIP(client) === 0 ? (addresses[own + 1] ?? '') : client;
}

/** Returns the user that a trusted proxy names in this header, or null. Anyone else could forge the header. */
export function userOf(
  { headers, socket }: Pick<IncomingMessage, 'headers' | 'socket'>,
  proxies: BlockList,
  userHeader: string | undefined,
): string | null {
  if (userHeader === undefined || !isWithin(proxies, socket.remoteAddress ?? '')) return null;
  const value = headers[userHeader.toLowerCase()];
  // Node joins repeated headers with a comma. A forged second header therefore makes a name that no user has.
  if (typeof value !== 'string' || value === '' || value.length > LONGEST_USER) return null;
  // Node decodes each byte of a header as one character, but proxies send UTF-8.
  const name = Buffer.from(value, 'latin1').toString();
  return name.includes('\ufffd') ? value : name;
}

/** Returns true if a page of this server sent the form. Browsers say so in Sec-Fetch-Site or in Origin. */
export function isFromOwnPage({ headers }: Pick<IncomingMessage, 'headers'>): boolean {
  const site = headers['sec-fetch-site'];
  if (site !== undefined) return site === 'same-origin';
  const { origin, host } = headers;
  if (origin === undefined || !URL.canParse(origin)) return false;
  return new URL(origin).host === host;
}

/** Returns true if the browser uses https, as the proxy in front of this server reports. */
export const isSecure = ({ headers }: Pick<IncomingMessage, 'headers'>): boolean =>
  headers['x-forwarded-proto'] === 'https';
