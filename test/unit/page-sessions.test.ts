import { expect, test } from 'vitest';
import { COOKIE_SECONDS, createSessions } from '../../src/page/sessions.js';

test('page: a session ends after twelve hours, however often it is used', () => {
  let now = 0;
  const sessions = createSessions('token', () => now);
  const { secret } = sessions.signIn('token', 'here');
  expect(COOKIE_SECONDS).toBe(12 * 60 * 60);
  for (; now < COOKIE_SECONDS * 1000; now += 60_000) expect(sessions.find(secret)).toBeDefined();
  expect(sessions.find(secret)).toBeUndefined();
});

test('page: a right token always signs in; after ten wrong ones an address waits for each answer for ten minutes', () => {
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
