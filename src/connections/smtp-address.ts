// The address of a mail server: smtps:// is encrypted from the start, smtp:// by STARTTLS, and without encryption only
// where the address says so.

export interface SmtpAddress {
  host: string;
  port: number;
  encryption: 'tls' | 'starttls' | 'none';
  credentials: { user: string; password: string } | undefined;
}

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|::1)$/;
const EXAMPLE = 'write smtps://user:password@host:465, or smtp://user:password@host:587';

/** What is wrong with an address; undefined when nothing is. No part of it is repeated: it may hold a password. */
export function findSmtpAddressFault(text: string): string | undefined {
  if (!URL.canParse(text) || !/^smtps?:$/.test(new URL(text).protocol))
    return `not a mail server; ${EXAMPLE}`;
  const { protocol, hostname, username, password, pathname, search, hash } = new URL(text);
  if (hostname === '') return `names no host; ${EXAMPLE}`;
  if (!['', '/'].includes(pathname) || hash !== '') return `contains a path or #; ${EXAMPLE}`;
  if (search !== '' && search !== '?tls=none') return 'contains a parameter other than tls=none';
  if ((username === '') !== (password === ''))
    return 'has a user without a password, or a password without a user';
  if (/%(?![\da-f]{2})/i.test(username + password))
    return 'contains a % that encodes nothing in user or password; write %25';
  if (search === '') return undefined;
  if (protocol === 'smtps:') return 'smtps is always encrypted; remove tls=none, or write smtp';
  return username !== '' && !LOOPBACK.test(hostname.replaceAll(/[[\]]/g, ''))
    ? 'with tls=none the password would be sent unencrypted; remove tls=none, or user and password'
    : undefined;
}

/** The parts of an address without a fault. */
export function parseSmtpAddress(text: string): SmtpAddress {
  const { protocol, hostname, port, username, password, search } = new URL(text);
  const isSecure = protocol === 'smtps:';
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
