// The kinds of job. Our own carry a number and nothing else: what it stands for is a row of the state, so an old job
// cannot write old values and no personal data lies in the queue. Those of other programs are read in change-jobs.ts.
import type { JobsOptions } from 'bullmq';
import { LANES } from '../destination/quota/limiter.js';

/** A run to be planned. */
export const RUNS = 'slotsync-runs';
/** A batch to be applied. */
export const BATCHES = 'slotsync-batches';
/**
 * The same of incremental runs. A queue of its own, because priority only orders those that wait for a place in work: a
 * backfill fills all of them, and each is held for a second or more.
 */
export const URGENT_BATCHES = 'slotsync-batches-incremental';
/** Keys that may differ now, put there by other programs: docs/changes.md. */
export const CHANGES = 'slotsync-changes';
export type QueueName = typeof RUNS | typeof BATCHES | typeof URGENT_BATCHES | typeof CHANGES;

/** The name of the schedule's jobs among the runs. */
export const TICK = 'tick';

export interface RunJob {
  runId: number;
}
export interface BatchJob {
  batchId: number;
}

/** Attempts before a batch is given up until the next run: about three minutes with the backoff below. */
export const ATTEMPTS = 9;

const SECOND = 1000;

/** Whole milliseconds before the next attempt: doubling from 1 s to at most a minute, spread by half to either side. */
export function backoff(attemptsMade: number, random: () => number = Math.random): number {
  return Math.round(Math.min(60 * SECOND, SECOND * 2 ** (attemptsMade - 1)) * (0.5 + random()));
}

export const JOB_OPTIONS: JobsOptions = {
  attempts: ATTEMPTS,
  backoff: { type: 'custom' },
  // The row is the record of what happened. A job that is kept would also block its id.
  removeOnComplete: true,
  removeOnFail: true,
};

/** Better lanes first; 0 would jump every queue. */
export function priorityOf(lane: string): number {
  const at = LANES.findIndex((known) => known === lane);
  return at < 0 ? LANES.length : at + 1;
}

export const runJobId = (runId: number) => `run-${runId}`;
export const batchJobId = (batchId: number) => `batch-${batchId}`;
