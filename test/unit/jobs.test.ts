import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LANES } from '../../src/destination/quota/limiter.js';
import { backoff, batchJobId, JOB_OPTIONS, priorityOf, runJobId } from '../../src/queue/jobs.js';

describe('the wait before another attempt', () => {
  it('doubles from a second to a minute, spread by half to either side', () => {
    const waits = Array.from({ length: 8 }, (_, at) => backoff(at + 1, () => 0.5));
    expect(waits).toEqual([1, 2, 4, 8, 16, 32, 60, 60].map((seconds) => seconds * 1000));
    const anyRandom = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2000 }), anyRandom, (attempts, random) => {
        const middle = backoff(attempts, () => 0.5);
        const wait = backoff(attempts, () => random);
        expect(middle).toBeLessThanOrEqual(60_000);
        expect(wait).toBeGreaterThanOrEqual(middle / 2);
        expect(wait).toBeLessThanOrEqual(middle * 1.5);
        expect(Number.isInteger(wait)).toBe(true);
      }),
    );
  });

  it('differs between two jobs that failed together', () => {
    expect(new Set(Array.from({ length: 20 }, () => backoff(3))).size).toBeGreaterThan(1);
  });
});

describe('a job', () => {
  it('of a better lane goes first, and none jumps the queue with priority 0', () => {
    const priorities = LANES.map(priorityOf);
    expect(priorities).toEqual(priorities.toSorted((a, b) => a - b));
    expect(new Set(priorities).size).toBe(LANES.length);
    expect(Math.min(...priorities)).toBeGreaterThan(0);
  });

  it('of a lane nobody knows goes with the last', () => {
    expect(priorityOf('express')).toBe(Math.max(...LANES.map(priorityOf)));
  });

  it('has an id without a colon that is not digits alone, for each run and batch its own', () => {
    const anyId = fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
    fc.assert(
      fc.property(anyId, anyId, (a, b) => {
        for (const id of [runJobId(a), batchJobId(a)]) expect(id).not.toMatch(/:|^\d+$/);
        expect(runJobId(a)).not.toBe(batchJobId(b));
        expect(batchJobId(a) === batchJobId(b)).toBe(a === b);
      }),
    );
  });

  it('leaves nothing behind in the queue that would block its id', () => {
    expect(JOB_OPTIONS).toMatchObject({ removeOnComplete: true, removeOnFail: true, attempts: 9 });
  });
});
