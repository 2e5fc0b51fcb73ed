// The place of the queues, and the names they have there.
import type { SettingText } from '../config/setting-text.js';
import type { QueueName } from './jobs.js';

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
