// A mail server that keeps what it accepts.
import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';

export interface AcceptedMail {
  from: string;
  to: string[];
  /** Headers and body as they were sent. */
  source: string;
  user: unknown;
  isEncrypted: boolean;
}

export type MailServer = Awaited<ReturnType<typeof openMailServer>>;

/** With a certificate it offers STARTTLS, or is encrypted from the start if `secure`. */
export async function openMailServer({
  certificate,
  login,
  ...options
}: SMTPServerOptions & {
  certificate?: { cert: string; key: string };
  login?: { user: string; password: string };
} = {}) {
  const mails: AcceptedMail[] = [];
  const server = new SMTPServer({
    logger: false,
    disableReverseLookup: true,
    ...(certificate
      ? { cert: readFileSync(certificate.cert), key: readFileSync(certificate.key) }
      : { hideSTARTTLS: true }),
    disabledCommands: [...(certificate ? [] : ['STARTTLS']), ...(login ? [] : ['AUTH'])],
    authOptional: !login,
    onAuth: ({ username, password }, _session, done) =>
      username === login?.user && password === login?.password
        ? done(null, { user: username })
        : done(Object.assign(new Error('no'), { responseCode: 535 })),
    onData(stream, { envelope, user, secure }, done) {
      let source = '';
      stream.setEncoding('utf8').on('data', (part: string) => (source += part));
      stream.on('end', () => {
        const { mailFrom, rcptTo } = envelope;
        const from = mailFrom === false ? '' : mailFrom.address;
        mails.push({ from, to: rcptTo.map(({ address }) => address), source, user, isEncrypted: secure });
        done();
      });
    },
    ...options,
  });
  server.on('error', () => undefined); // clients that refuse its certificate
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.server.address() as AddressInfo).port,
    mails,
    close: () => new Promise<void>((resolve) => server.close(resolve)),
  };
}
