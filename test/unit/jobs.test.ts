import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LANES } from '../../src/destination/quota/limiter.js';
import { batchJobId, JOB_OPTIONS, priorityOf, runJobId } from '../../src/queue/jobs.js';

describe('a job', () => {
  it('has a priority by its lane, never 0, and goes last when its lane is unknown', () => {
    const priorities = [...LANES, 'express'].map((lane) => `${lane} ${priorityOf(lane)}`);
    expect(priorities.join(', ')).toBe('incremental 1, sync 2, backfill 3, verify 4, express 4');
  });

  it('has an id of its own for each run and batch, without a colon and not only of digits', () => {
    expect([runJobId(7), batchJobId(7)]).toEqual(['run-7', 'batch-7']);
    const anyId = fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
    fc.assert(
      fc.property(anyId, anyId, (a, b) => {
        for (const id of [runJobId(a), batchJobId(a)]) expect(id).not.toMatch(/:|^\d+$/);
        expect(runJobId(a)).not.toBe(batchJobId(b));
        expect(batchJobId(a) === batchJobId(b)).toBe(a === b);
      }),
    );
  });

  it('has nine attempts, and is removed from the queue when it has ended', () => {
    expect(JOB_OPTIONS).toEqual({
      attempts: 9,
      backoff: { type: 'custom' },
      removeOnComplete: true,
      removeOnFail: true,
    });
  });
});
