// Jobs of other programs that name a key which is to be forgotten: those that could not be read are kept for a month.
import type { Job } from 'bullmq';
import type { Logger } from '../process/logger.js';
import { patternOf } from '../state/records/forget-key.js';
import type { RecordKey } from '../state/records/outcome-types.js';
import { joinKey } from '../streams/local-key.js';
import type { Stream } from '../streams/stream.js';
import { clearEvents, openBullmq } from './bullmq.js';
import { QUEUES, type QueueStore } from './jobs.js';
import { readChangeJob } from './receive-changes.js';

type Streams = ReadonlyMap<string, Pick<Stream, 'key'>>;

const TO_BE_WORKED = ['waiting', 'prioritized', 'delayed'] as const;
const ENDED = ['failed', 'completed'] as const;
const JOBS_AT_ONCE = 500;

/** Removes the jobs that name the key, or takes it out of those that name others too. Returns how many there were. */
export async function forgetJobs(
  { store, stateId, streams, log }: { store: QueueStore; stateId: string; streams: Streams; log: Logger },
  key: RecordKey,
): Promise<number> {
  const bullmq = openBullmq(store, stateId, log);
  const queue = bullmq.queue(QUEUES.changes);
  try {
    const found: Job[] = [];
    for (const state of [...TO_BE_WORKED, ...ENDED])
      for (let at = 0; ; at += JOBS_AT_ONCE) {
        const jobs = (await queue.getJobs([state], at, at + JOBS_AT_ONCE - 1, true)) as (Job | undefined)[];
        const named = jobs.filter((job) => job !== undefined).filter((job) => isAbout(job, key));
        // 'R-1' is named as a word by a change of 'R-1-b', which is still to be worked.
        for (const job of named) if (isEnded(state) || !isOfOthers(job.data, key, streams)) found.push(job);
        if (jobs.length < JOBS_AT_ONCE) break;
      }
    for (const job of found) {
      const rest = withoutKey(job.data, key, streams);
      if (rest) await job.updateData(rest);
      else await job.remove();
    }
    // Other programs choose the ids of their jobs.
    if (found.length > 0) await clearEvents(store, queue);
    return found.length;
  } finally {
    await queue.close();
    await bullmq.close();
  }
}

const isEnded = (state: string) => ENDED.some((ended) => ended === state);

/** Whether a job can be read, and has other keys alone. */
function isOfOthers(data: unknown, { stream, localKey }: RecordKey, streams: Streams): boolean {
  const read = readChangeJob(data, streams);
  return typeof read === 'object' && (read.stream !== stream || !read.keys.includes(localKey));
}

/** A job of another stream may have the same key for another record. */
function isAbout({ id = '', name, data }: Job, { stream, localKey }: RecordKey): boolean {
  const named = (data as { stream?: unknown } | null)?.stream;
  if (typeof named === 'string' && named !== stream) return false;
  const isChosen = !/^\d+$/.test(id);
  return [data, name, isChosen && id].some((value) => names(value, localKey));
}

function names(value: unknown, localKey: string): boolean {
  if (typeof value === 'string' || typeof value === 'number')
    return new RegExp(patternOf([localKey])).test(String(value));
  if (Array.isArray(value))
    return joinKey(value.map(String)) === localKey || value.some((one) => names(one, localKey));
  return typeof value === 'object' && value !== null && names(Object.entries(value).flat(), localKey);
}

/** The data of a job that can be read, without the key; undefined: nothing is left of it. */
function withoutKey(data: unknown, { stream, localKey }: RecordKey, streams: Streams): object | undefined {
  if (typeof readChangeJob(data, streams) === 'string') return undefined;
  const { keys = [] } = data as { keys?: readonly unknown[] };
  const isOther = (key: unknown) => {
    const read = readChangeJob({ stream, key }, streams);
    return typeof read === 'object' && !read.keys.includes(localKey);
  };
  const rest = keys.filter(isOther);
  return rest.length > 0 ? { stream, keys: rest } : undefined;
}
