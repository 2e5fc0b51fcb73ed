// Reads from a request who its sender is: whether it comes from this machine, for which client and person, and from whose page.
// access.ts decides by it.
//
// Rows of the state name records, which may be people. So without the token it is read only on this machine: by a name of
// this machine, at a loopback address, and not through a proxy. Everybody else signs in; without HTTP_TOKEN nobody else
// reads it. The name is checked because another site's name can be made to lead to a loopback address (DNS rebinding).
import type { IncomingMessage } from 'node:http';
import { isIP, type BlockList } from 'node:net';
import { isLoopback, isWithin, nameOfHost } from '../connections/addresses.js';

const LONGEST_USER = 200;
/** A proxy says for whom it asks. */
const PROXY_HEADER = /^(x-forwarded(-.*)?|forwarded|x-real-ip|via)$/;

/** Whether the request comes from this machine, to a server that listens at `listens` (HTTP_HOST). */
export function isLocal(
  { headers, httpVersion }: Pick<IncomingMessage, 'headers' | 'httpVersion'>,
  listens: string,
): boolean {
  return (
    isLoopback(listens) &&
    // A proxy that nobody configured asks in HTTP/1.0, by the name it was given, and for nobody.
    httpVersion !== '1.0' &&
    isLoopback(nameOfHost(headers.host ?? '')) &&
    !Object.keys(headers).some((name) => PROXY_HEADER.test(name))
  );
}

/** The address of the client. Of a proxy, only one that is trusted is believed when it says for whom it asks. */
export function clientOf(
  { headers, socket }: Pick<IncomingMessage, 'headers' | 'socket'>,
  proxies: BlockList,
): string {
  const addresses = `${String(headers['x-forwarded-for'] ?? '')},${socket.remoteAddress ?? ''}`.split(
    /\s*,\s*/,
  );
  const own = addresses.findLastIndex((address) => !isWithin(proxies, address));
  const client = addresses[Math.max(own, 0)] ?? '';
  // A proxy that was given something else than an address is the client itself.
  return isIP(client) === 0 ? (addresses[own + 1] ?? '') : client;
}

/** The person that a trusted proxy names in this header; null: none does. Whoever asks past the proxy is not believed. */
export function userOf(
  { headers, socket }: Pick<IncomingMessage, 'headers' | 'socket'>,
  proxies: BlockList,
  userHeader: string | undefined,
): string | null {
  if (userHeader === undefined || !isWithin(proxies, socket.remoteAddress ?? '')) return null;
  const value = headers[userHeader.toLowerCase()];
  // Node joins repeated headers: whoever sends a second one is not to be taken for the first.
  if (typeof value !== 'string' || value === '' || value.length > LONGEST_USER) return null;
  // Node reads each byte as a character; proxies send UTF-8.
  const name = Buffer.from(value, 'latin1').toString();
  return name.includes('\ufffd') ? value : name;
}

/** Whether a form was sent by a page of this server: browsers say so in one header or the other. */
export function isFromOwnPage({ headers }: Pick<IncomingMessage, 'headers'>): boolean {
  const site = headers['sec-fetch-site'];
  if (site !== undefined) return site === 'same-origin';
  const { origin, host } = headers;
  if (origin === undefined || !URL.canParse(origin)) return false;
  return new URL(origin).host === host;
}

/** Whether the browser speaks https, with a proxy before this server. */
export const isSecure = ({ headers }: Pick<IncomingMessage, 'headers'>): boolean =>
  headers['x-forwarded-proto'] === 'https';
