// Sends mail over SMTP, encrypted unless the address says otherwise. Each step has a time limit.
import { domainToASCII } from 'node:url';
import { createTransport } from 'nodemailer';
import { parseSmtpAddress } from '../connections/addresses.js';
import { codeOf } from '../errors/errors.js';
import { SentInPart } from './notice.js';

export interface Mail {
  from: string;
  to: readonly string[];
  subject: string;
  text: string;
  html: string;
}

/**
 * Throws SentInPart if the server refuses some addresses, otherwise an Error. Neither repeats text of the server. `ca`:
 * certificates of trusted authorities, which replace those of Node.
 */
export async function sendMail(
  { url, timeoutMs, ca }: { url: string; timeoutMs: number; ca?: string | undefined },
  mail: Mail,
  signal: AbortSignal,
): Promise<void> {
  const { host, port, encryption, credentials } = parseSmtpAddress(url);
  const transport = createTransport({
    host,
    port,
    secure: encryption === 'tls',
    requireTLS: encryption === 'starttls',
    ignoreTLS: encryption === 'none',
    ...(credentials && { auth: { user: credentials.user, pass: credentials.password } }),
    ...(ca !== undefined && { tls: { ca } }),
    dnsTimeout: timeoutMs,
    connectionTimeout: timeoutMs,
    greetingTimeout: timeoutMs,
    socketTimeout: timeoutMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  const { from, subject, text, html } = mail;
  const headers = { 'Auto-Submitted': 'auto-generated' };
  try {
    const { rejected } = await transport
      .sendMail({ from, to: [...mail.to], subject, text, html, headers, signal })
      .catch((error: unknown) => {
        const reason = signal.aborted ? 'no answer in time' : describe(codeOf(error), error);
        throw new Error(reason, { cause: error });
      });
    const missing = addressesAmong(mail.to, rejected);
    if (missing.length > 0)
      throw new SentInPart(
        `the mail server refused ${missing.length} of ${mail.to.length} addresses`,
        missing,
      );
  } finally {
    transport.close();
  }
}

/** Returns the addresses that are also among `others`, ignoring upper case and the encoding of the domain. */
export function addressesAmong(addresses: readonly string[], others: readonly string[]): string[] {
  const names = new Set(others.map(sameFor));
  return addresses.filter((address) => names.has(sameFor(address)));
}

function sameFor(address: string): string {
  const at = address.lastIndexOf('@') + 1;
  return `${address.slice(0, at)}${domainToASCII(address.slice(at))}`.toLowerCase();
}

function describe(code: string, error: unknown): string {
  const { responseCode, originalCode = code } = error as { responseCode?: number; originalCode?: string };
  const answer = responseCode === undefined ? '' : `, it answered ${responseCode}`;
  switch (code) {
    case 'EAUTH':
      return `the mail server refused user and password (${code}${answer})`;
    case 'EENVELOPE':
    case 'EMESSAGE':
      return `the mail server refused the mail (${code}${answer})`;
    case 'ETLS':
      return `no encrypted connection to the mail server (${originalCode}${answer})`;
    case 'ETIMEDOUT':
      return `the mail server did not answer in time (${originalCode}${answer})`;
    default:
      return `the mail server cannot be reached (${originalCode}${answer})`;
  }
}
