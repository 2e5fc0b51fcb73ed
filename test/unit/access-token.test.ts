import { describe, expect, it } from 'vitest';
import { readRetryAfter } from '../../src/destination/exchange.js';
import { createTokenSource, readExpiry } from '../../src/destination/client.js';

const encode = (part: unknown) => Buffer.from(JSON.stringify(part)).toString('base64url');
const jwt = (payload: unknown, mark = '') => `${encode({ alg: 'none' })}.${encode(payload)}.${mark}`;

const SECOND = 1000;

/** Creates a token source with a clock that only the test moves, and a service whose tokens last `life` seconds. */
function playTokens(life: number | undefined, defaultSeconds = 300) {
  const clock = { now: 1_700_000_000 * SECOND };
  const asked: string[] = [];
  const source = createTokenSource({
    defaultSeconds,
    now: () => clock.now,
    authenticate: async () => {
      const exp = life === undefined ? {} : { exp: clock.now / SECOND + life };
      const token = jwt(exp, String(asked.length));
      asked.push(token);
      return token;
    },
  });
  return { source, clock, asked };
}

describe('an access token', () => {
  it('is fetched once for concurrent callers, and then cached', async () => {
    const { source, asked } = playTokens(600);
    const tokens = await Promise.all([source.get(), source.get(), source.get()]);
    expect(new Set(tokens)).toEqual(new Set(asked));
    expect(await source.get()).toBe(asked[0]);
    expect(asked).toHaveLength(1);
  });

  it.each([
    { life: 600, usedFor: 540 },
    { life: 20, usedFor: 18 },
    { life: 86_400, usedFor: 86_340 },
  ])('is renewed before it expires: with a life of $life s after $usedFor s', async ({ life, usedFor }) => {
    const { source, clock, asked } = playTokens(life);
    await source.get();
    clock.now += usedFor * SECOND - 1;
    expect(await source.get()).toBe(asked[0]);
    clock.now += 1;
    expect(await source.get()).toBe(asked[1]);
  });

  it.each([
    ['when it names no expiry', undefined],
    ['when it arrives expired because clocks differ', -3600],
  ])('is kept for nine tenths of the configured time %s', async (_, life) => {
    const { source, clock, asked } = playTokens(life, 100);
    for (const [seconds, times] of [
      [0, 1],
      [89, 1],
      [2, 2],
    ] as const) {
      clock.now += seconds * SECOND;
      await source.get();
      expect(asked).toHaveLength(times);
    }
  });

  it('is not used again after the service has refused it', async () => {
    const { source, asked } = playTokens(600);
    source.refuse(await source.get());
    expect(await source.get()).toBe(asked[1]);
  });

  it('is kept when a caller refuses the token that it replaced', async () => {
    const { source, asked } = playTokens(600);
    const old = await source.get();
    source.refuse(old);
    const current = await source.get();
    source.refuse(old);
    expect(await source.get()).toBe(current);
    expect(asked).toHaveLength(2);
  });

  it('is renewed once when many callers refuse the same token', async () => {
    const { source, asked } = playTokens(600);
    const old = await source.get();
    const renew = async () => {
      source.refuse(old);
      return source.get();
    };
    const renewed = await Promise.all([renew(), renew(), renew()]);
    expect(new Set(renewed)).toEqual(new Set([asked[1]]));
    expect(asked).toHaveLength(2);
  });

  it('fails all waiting callers when fetching fails, and is fetched again for the next caller', async () => {
    let calls = 0;
    const source = createTokenSource({
      defaultSeconds: 300,
      authenticate: async () => {
        if (++calls === 1) throw new Error('service down');
        return 'opaque';
      },
    });
    const waiting = await Promise.allSettled([source.get(), source.get()]);
    expect(waiting.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(await source.get()).toBe('opaque');
    expect(calls).toBe(2);
  });
});

describe('the expiry of an access token', () => {
  it('is its `exp`, in milliseconds', () => {
    expect(readExpiry(jwt({ exp: 1_700_000_000 }))).toBe(1_700_000_000_000);
  });

  it.each([
    ['no exp', jwt({ sub: 'x' })],
    ['an exp that is no number', jwt({ exp: 'soon' })],
    ['a payload that is no object', jwt(null)],
    ['a payload that is not JSON', 'a.b.c'],
    ['one part', 'opaque'],
    ['no text', ''],
  ])('is unknown for a token with %s', (_, token) => {
    expect(readExpiry(token)).toBeUndefined();
  });
});

describe('a Retry-After header', () => {
  const now = Date.parse('2025-11-20T12:00:00Z');

  it.each<[string, string | string[] | undefined, number | undefined]>([
    ['seconds', '2', 2000],
    ['parts of a second', ' 0.5 ', 500],
    ['zero seconds', '0', 0],
    ['a date', 'Thu, 20 Nov 2025 12:00:30 GMT', 30_000],
    ['a date that is past', 'Thu, 20 Nov 2025 11:00:00 GMT', 0],
    ['the first of several', ['3', '9'], 3000],
    ['no header', undefined, undefined],
    ['a blank', ' ', undefined],
    ['a text without a time', 'a little while', undefined],
  ])('is converted to milliseconds if it names a time: %s', (_, header, wanted) => {
    expect(readRetryAfter(header, now)).toBe(wanted);
  });
});
