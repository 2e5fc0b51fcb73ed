// The queues and the kinds of job. Our own jobs carry numbers and nothing else: one names a row of the state, so an old
// job cannot write old values and no personal data lies in the queue. Where runs are traced, the trace's id is added. Jobs of other programs: receive-changes.ts.
import type { JobsOptions } from 'bullmq';
import { LANES } from '../destination/quota/limiter.js';
import type { EarlierFailures } from '../sync/apply/narrow-failures.js';
import type { SettingText } from '../config/setting-text.js';

/** Attempts that a batch has; out of attempts, its records wait for the next run. About three minutes with the delays between them. */
export const ATTEMPTS = 9;

export const QUEUES = {
  /** Runs to be planned. */
  runs: 'slotsync-runs',
  /** Batches to be applied. */
  batches: 'slotsync-batches',
  /**
   * Batches of incremental runs. Priority only orders the jobs that wait for a free worker slot; a backfill occupies all
   * of them, each for a second or more. So incremental batches have a queue and worker slots of their own.
   */
  incrementalBatches: 'slotsync-batches-incremental',
  /** Keys that may differ now, added by other programs: docs/incremental-sync.md. */
  changes: 'slotsync-changes',
} as const;
export type QueueName = (typeof QUEUES)[keyof typeof QUEUES];

export interface RunJob {
  runId: number;
}
export interface BatchJob {
  batchId: number;
  /** The span in which its run was planned. */
  traceparent?: string;
  /** Findings of its attempts so far; the next one may be another process's. */
  earlier?: EarlierFailures;
}

export const JOB_OPTIONS: JobsOptions = {
  attempts: ATTEMPTS,
  backoff: { type: 'custom' },
  // The row records what happened. A job that is kept would also block its id.
  removeOnComplete: true,
  removeOnFail: true,
};

/** Better lanes first. Never 0: BullMQ takes such a job before all others. */
export function priorityOf(lane: string): number {
  const at = LANES.findIndex((known) => known === lane);
  return at < 0 ? LANES.length : at + 1;
}

export const runJobId = (runId: number) => `run-${runId}`;
export const batchJobId = (batchId: number) => `batch-${batchId}`;

export type QueueStore = { redisUrl: SettingText } | { postgresUrl: SettingText };

/** The schema BullMQ keeps its tables in, beside ours. */
export const QUEUE_SCHEMA = 'slotsync_queue';

/** Two states on one Redis never mix, and a Redis Cluster keeps a queue's keys together. */
export const queuePrefix = (stateId: string) => `{slotsync:${stateId}}`;

/** The address at which another program adds jobs: BullMQ's prefix on Redis, or the schema of its tables. */
export function queueAddress(store: QueueStore, name: QueueName, stateId: string) {
  return 'redisUrl' in store
    ? { name, store: 'redis', prefix: queuePrefix(stateId) }
    : { name, store: 'postgresql', schema: QUEUE_SCHEMA };
}
