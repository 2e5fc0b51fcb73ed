import { expect, test } from 'vitest';
import { COOKIE_SECONDS, createSessions } from '../../src/page/sessions.js';

test('page: a session ends after twelve hours, however often it is used', () => {
  let now = 0;
  const sessions = createSessions('token', () => now);
  const signedIn = sessions.signIn('token', 'here');
  if (typeof signedIn === 'string') throw new Error(signedIn);
  const { secret } = signedIn;
  expect(COOKIE_SECONDS).toBe(12 * 60 * 60);
  for (; now < COOKIE_SECONDS * 1000; now += 60_000) expect(sessions.find(secret)).toBeDefined();
  expect(sessions.find(secret)).toBeUndefined();
});

test('page: too many wrong tokens from one address are refused for ten minutes, and no other address is', () => {
  let now = 0;
  const sessions = createSessions('token', () => now);
  for (let attempt = 0; attempt < 10; attempt++) expect(sessions.signIn('no', 'there')).toBe('wrong');
  expect(sessions.signIn('token', 'there')).toBe('too_many');
  expect(sessions.signIn('token', 'here')).toMatchObject({ secret: expect.any(String) });
  now = 10 * 60_000;
  expect(sessions.signIn('token', 'there')).toMatchObject({ secret: expect.any(String) });
});
