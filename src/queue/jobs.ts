// Defines the queues and the kinds of jobs. A job of slotsync carries only the number of a row in the state, so that an
// old job cannot write old values and the queue holds no personal data. If runs are traced, a job also carries the
// trace's id. Jobs of other programs are described in receive-changes.ts.
import type { JobsOptions } from 'bullmq';
import { LANES } from '../destination/quota/limiter.js';
import type { EarlierFailures } from '../sync/apply/narrow-failures.js';
import type { SettingText } from '../config/setting-text.js';

/** Attempts at a batch, about three minutes with the delays. After the last, the records wait for the next run. */
export const ATTEMPTS = 9;

export const QUEUES = {
  runs: 'slotsync-runs',
  batches: 'slotsync-batches',
  /**
   * Batches of incremental runs. A priority only orders the jobs that wait for a free worker slot, and a backfill
   * occupies all slots, each for a second or more. So incremental batches have a queue and worker slots of their own.
   */
  incrementalBatches: 'slotsync-batches-incremental',
  /** Keys whose rows may differ now, added by other programs: docs/incremental-sync.md. */
  changes: 'slotsync-changes',
} as const;
export type QueueName = (typeof QUEUES)[keyof typeof QUEUES];

export interface RunJob {
  runId: number;
}
export interface BatchJob {
  batchId: number;
  /** Trace context of the span in which the batch's run was planned. */
  traceparent?: string;
  /** Failures in earlier attempts at the batch. Another process may make the next attempt. */
  earlier?: EarlierFailures;
}

export const JOB_OPTIONS: JobsOptions = {
  attempts: ATTEMPTS,
  backoff: { type: 'custom' },
  // The row in the state records what happened. A kept job would also block its id.
  removeOnComplete: true,
  removeOnFail: true,
};

/** Returns BullMQ's priority of a lane; better lanes come first. Never 0: BullMQ takes such jobs before all others. */
export function priorityOf(lane: string): number {
  const at = LANES.findIndex((known) => known === lane);
  return at < 0 ? LANES.length : at + 1;
}

export const runJobId = (runId: number) => `run-${runId}`;
export const batchJobId = (batchId: number) => `batch-${batchId}`;

export type QueueStore = { redisUrl: SettingText } | { postgresUrl: SettingText };

/** Schema of BullMQ's tables, next to the schema of the state. */
export const QUEUE_SCHEMA = 'slotsync_queue';

/** Returns the prefix of a state's keys, so that states on one Redis do not mix. A Cluster keeps them on one node. */
export const queuePrefix = (stateId: string) => `{slotsync:${stateId}}`;

/** Returns where other programs add jobs: the queue's prefix on Redis, or the schema of BullMQ's tables. */
export function queueAddress(store: QueueStore, name: QueueName, stateId: string) {
  return 'redisUrl' in store
    ? { name, store: 'redis', prefix: queuePrefix(stateId) }
    : { name, store: 'postgresql', schema: QUEUE_SCHEMA };
}
