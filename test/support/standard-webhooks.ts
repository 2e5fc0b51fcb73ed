// A receiver's side of Standard Webhooks, written from the text of the specification (version 1.0.0, "Signature scheme" and
// "Webhook headers"), and from nothing of the program.
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

const TOLERATED_SECONDS = 300;

/** Throws an Error that says why the message is not from who has the secret, or is too old. */
export function verifyStandardWebhook(
  headers: IncomingHttpHeaders,
  body: string,
  secret: string,
  nowSeconds = Date.now() / 1000,
): void {
  const [id, timestamp, signatures] = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map(
    (name) => headers[name],
  );
  if (typeof id !== 'string' || id === '' || id.includes('.')) throw new Error('webhook-id');
  if (typeof timestamp !== 'string' || !/^\d+$/.test(timestamp)) throw new Error('timestamp is no integer');
  if (typeof signatures !== 'string') throw new Error('webhook-signature');
  if (Math.abs(nowSeconds - Number(timestamp)) > TOLERATED_SECONDS) throw new Error('timestamp is too far');
  const [, base64] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(secret) ?? [];
  const key = Buffer.from(base64 ?? '', 'base64');
  if (key.length < 24 || key.length > 64) throw new Error('secret of 192 to 512 bits');
  const signed = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), Buffer.from(body, 'utf8')]);
  const expected = createHmac('sha256', key).update(signed).digest();
  const isOurs = signatures
    .split(' ')
    .map((each) => each.split(','))
    .some(([version, signature = '']) => {
      const given = Buffer.from(signature, 'base64');
      return version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected);
    });
  if (!isOurs) throw new Error('no signature matches');
}
