// The origin of a request to the page, and the sessions of operators who signed in.
import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { parseNetworks } from '../../src/connections/addresses.js';
import { clientOf, isLocal } from '../../src/page/request-origin.js';
import { createSessions, SESSION_MS } from '../../src/page/sign-in.js';

const HOST = '127.0.0.1:8080';

test('a request to the page is local only if no proxy can have sent it for another machine', () => {
  const from = (headers: object, address = '127.0.0.1', httpVersion = '1.1') =>
    isLocal({ headers: { host: HOST, ...headers }, httpVersion }, address);
  expect(from({})).toBe(true);
  expect(from({ host: '[::1]:8080' }, '::1')).toBe(true);
  // nginx without a setting of its own: HTTP/1.0, the name of what it asks, and no header of a proxy.
  expect(from({}, '127.0.0.1', '1.0')).toBe(false);
  for (const name of ['via', 'forwarded', 'x-forwarded-server', 'x-forwarded-proto', 'x-real-ip'])
    expect(from({ [name]: '' }), name).toBe(false);
  expect(from({ host: 'rebound.example' })).toBe(false);
  expect(from({}, '0.0.0.0')).toBe(false);
});

test.each([
  ['the connected address, without a trusted proxy', '10.0.0.7', '192.0.2.1', '', '10.0.0.7'],
  ['the client that a trusted proxy names', '10.0.0.7', '192.0.2.1', '10.0.0.0/8', '192.0.2.1'],
  [
    'the client behind two proxies, not the address that it claims',
    '::1',
    '1.1.1.1, 192.0.2.1, 10.0.0.7',
    '::1,10.0.0.7',
    '192.0.2.1',
  ],
  ['an address of a network in its other form', '::ffff:10.0.0.7', '2001:db8::1', '10.0.0.7', '2001:db8::1'],
  ['a proxy that names nobody', '10.0.0.7', undefined, '10.0.0.7', '10.0.0.7'],
  ['a proxy that names no address', '10.0.0.7', 'unknown', '10.0.0.7', '10.0.0.7'],
  ['a proxy that asks for itself', '10.0.0.7', '10.0.0.8', '10.0.0.0/8', '10.0.0.8'],
])('wrong tokens are counted for an address: %s', (_, remoteAddress, forwarded, proxies, expected) => {
  const headers = forwarded === undefined ? {} : { 'x-forwarded-for': forwarded };
  const request = { headers, socket: { remoteAddress } } as unknown as IncomingMessage;
  expect(clientOf(request, parseNetworks(proxies))).toBe(expected);
});

test('a session of the page ends after twelve hours, however often it is used', () => {
  let now = 0;
  const sessions = createSessions('token', () => now);
  const { secret } = sessions.signIn('token', 'here');
  expect(SESSION_MS).toBe(12 * 60 * 60 * 1000);
  for (; now < SESSION_MS; now += 60_000) expect(sessions.find(secret)).toBeDefined();
  expect(sessions.find(secret)).toBeUndefined();
});

test('ten wrong tokens delay every sign-in from an address for ten minutes, and block no right token', () => {
  let now = 0;
  const sessions = createSessions('token', () => now);
  const wrong = { secret: undefined, waitMs: 0 };
  for (let attempt = 0; attempt < 10; attempt++) expect(sessions.signIn('no', 'there')).toEqual(wrong);
  expect(sessions.signIn('no', 'there')).toEqual({ secret: undefined, waitMs: 2000 });
  expect(sessions.signIn('token', 'here')).toEqual({ secret: expect.any(String), waitMs: 0 });
  expect(sessions.signIn('token', 'there')).toEqual({ secret: expect.any(String), waitMs: 2000 });

  for (let attempt = 0; attempt < 11; attempt++) sessions.signIn('no', 'there');
  expect(sessions.signIn('no', 'there').waitMs).toBe(2000);
  now = 10 * 60_000;
  expect(sessions.signIn('no', 'there')).toEqual(wrong);
});
