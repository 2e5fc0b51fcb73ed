// Who may read the page, and whose form is carried out.
//
// Rows of the state name records, which may be people. So without the token it is read only on this machine: by a name of
// this machine, at a loopback address, and not through a proxy. Everybody else signs in; without HTTP_TOKEN nobody else
// reads it. The name is checked because another site's name can be made to lead to a loopback address (DNS rebinding).
import type { IncomingMessage } from 'node:http';
import { isLoopback } from '../connections/address-parts.js';

/** A proxy says for whom it asks. */
const PROXY_HEADERS = ['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip', 'via'];

/** Whether the request comes from this machine, to a server that listens at `listens` (HTTP_HOST). */
export function isLocal(
  { headers, httpVersion }: Pick<IncomingMessage, 'headers' | 'httpVersion'>,
  listens: string,
): boolean {
  return (
    isLoopback(listens) &&
    // A proxy that nobody configured asks in HTTP/1.0, by the name it was given, and for nobody.
    httpVersion !== '1.0' &&
    isLoopback(nameOf(headers.host ?? '')) &&
    !PROXY_HEADERS.some((name) => headers[name] !== undefined)
  );
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

/** The name without its port. */
const nameOf = (host: string): string => host.replace(/:\d+$/, '');
