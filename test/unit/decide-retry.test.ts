// Actions after a failed attempt, as a table.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { ErrorCode } from '../../src/errors/error-catalogue.js';
import { SlotsyncError } from '../../src/errors/errors.js';
import { decideRetry, type FailedAttempt } from '../../src/queue/executor.js';
import { retryDelayMs } from '../../src/time/deadline.js';

const failure = (code: ErrorCode) => new SlotsyncError(code, code);
const RETRY = failure('service_failed');
const DEFER = failure('claimed');
const DEAD = failure('refused');

describe('the action after a failed attempt', () => {
  const retry = (afterMs: number) => ({ action: 'retry', afterMs }) as const;
  const defer = (afterMs: number) => ({ action: 'defer', afterMs }) as const;
  const FAIL = { action: 'fail' } as const;
  const RETURN = { action: 'return', afterMs: 0 } as const;
  it.each<[string, Partial<FailedAttempt>, ReturnType<typeof decideRetry>]>([
    ['first failure', { error: RETRY }, retry(1000)],
    ['third failure', { error: RETRY, attemptsMade: 2 }, retry(4000)],
    ['eighth failure', { error: RETRY, attemptsMade: 7 }, retry(60_000)],
    ['ninth failure', { error: RETRY, attemptsMade: 8 }, FAIL],
    ['last of two attempts', { error: RETRY, attemptsMade: 1, attempts: 2 }, FAIL],
    ['unclassified error', { error: new TypeError('x') }, retry(1000)],
    ['permanent error', { error: DEAD }, FAIL],
    ['throttled because others use the quota', { error: failure('throttled'), attemptsMade: 8 }, defer(5000)],
    ['a claim lost', { error: failure('claim_lost'), attemptsMade: 8 }, defer(5000)],
    ['records claimed', { error: DEFER, lane: 'sync' }, defer(5000)],
    ['records claimed, incremental', { error: DEFER, lane: 'incremental' }, defer(250)],
    ['records claimed, no attempt used up', { error: DEFER, attemptsMade: 8 }, defer(5000)],
    ['circuit breaker says wait', { error: RETRY, attemptsMade: 8, mustWait: true }, defer(5000)],
    ['circuit breaker says wait, permanent error', { error: DEAD, mustWait: true }, defer(5000)],
    ['breaker says wait, incremental', { error: RETRY, lane: 'incremental', mustWait: true }, defer(5000)],
    ['interrupted', { error: RETRY, attemptsMade: 8, isInterrupted: true }, RETURN],
    ['interrupted, permanent error', { error: DEAD, isInterrupted: true }, RETURN],
  ])('is decided: %s', (_, failed, expected) => {
    expect(decideRetry({ error: RETRY, attemptsMade: 0, ...failed }, () => 0.5)).toEqual(expected);
  });
});

describe('the delay of a retry', () => {
  it('doubles from a second to a minute', () => {
    const delays = Array.from({ length: 9 }, (_, at) => retryDelayMs(at + 1, () => 0.5));
    expect(delays).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60].map((seconds) => seconds * 1000));
  });

  it('is an integer, spread by ±50 %', () => {
    expect([0, 0.25, 0.999].map((random) => retryDelayMs(3, () => random))).toEqual([2000, 3000, 5996]);
    const anyRandom = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2000 }), anyRandom, (attempts, random) => {
        const delay = retryDelayMs(attempts, () => random);
        const middle = Math.min(60_000, 1000 * 2 ** (attempts - 1));
        expect(delay).toBeGreaterThanOrEqual(middle / 2);
        expect(delay).toBeLessThanOrEqual(middle * 1.5);
        expect(Number.isInteger(delay)).toBe(true);
      }),
    );
  });

  it('differs between two jobs that failed together', () => {
    expect(new Set(Array.from({ length: 20 }, () => retryDelayMs(3))).size).toBeGreaterThan(1);
  });
});
