// The address of a mail server: smtps:// is encrypted from the start, smtp:// by STARTTLS, and without encryption only
// where the address says so.
import { isLoopback, refuse, refuseBadCredentials } from './address-parts.js';

export interface SmtpAddress {
  host: string;
  port: number;
  encryption: 'tls' | 'starttls' | 'none';
  credentials: { user: string; password: string } | undefined;
}

const EXAMPLE = 'write smtps://user:password@host:465, or smtp://user:password@host:587';

/** Throws UsageError that repeats no part of the address: it may contain a password. */
export function parseSmtpAddress(text: string): SmtpAddress {
  refuse(!URL.canParse(text) || !/^smtps?:$/.test(new URL(text).protocol), `not a mail server; ${EXAMPLE}`);
  const url = new URL(text);
  const { hostname, port, username, password, search } = url;
  const isSecure = url.protocol === 'smtps:';
  refuse(hostname === '', `names no host; ${EXAMPLE}`);
  refuse(!['', '/'].includes(url.pathname) || url.hash !== '', `contains a path or #; ${EXAMPLE}`);
  refuse(search !== '' && search !== '?tls=none', 'contains a parameter other than tls=none');
  refuseBadCredentials(url);
  refuse(isSecure && search !== '', 'smtps is always encrypted; remove tls=none, or write smtp');
  refuse(
    search !== '' && username !== '' && !isLoopback(hostname),
    'with tls=none the password would be sent unencrypted; remove tls=none, or user and password',
  );
  return {
    host: hostname.replaceAll(/[[\]]/g, ''),
    port: port === '' ? (isSecure ? 465 : 587) : Number(port),
    encryption: isSecure ? 'tls' : search === '' ? 'starttls' : 'none',
    credentials:
      username === ''
        ? undefined
        : { user: decodeURIComponent(username), password: decodeURIComponent(password) },
  };
}
