// Removes a forgotten key from jobs of other programs. Such jobs may be old: invalid jobs are kept for a month.
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

/** Removes jobs that name the key, or the key from jobs that name other keys too. Returns the number of jobs. */
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
        // The text 'R-1' also occurs in a job for the key 'R-1-b'. Such a job is kept until it has ended.
        for (const job of named) if (isEnded(state) || !isOfOthers(job.data, key, streams)) found.push(job);
        if (jobs.length < JOBS_AT_ONCE) break;
      }
    for (const job of found) {
      const rest = withoutKey(job.data, key, streams);
      if (rest) await job.updateData(rest);
      else await job.remove();
    }
    // The log of events contains job ids. Other programs choose these ids, so an id may contain the key.
    if (found.length > 0) await clearEvents(store, queue);
    return found.length;
  } finally {
    await queue.close();
    await bullmq.close();
  }
}

const isEnded = (state: string) => ENDED.some((ended) => ended === state);

/** Returns true if the job is valid and names only other keys. */
function isOfOthers(data: unknown, { stream, localKey }: RecordKey, streams: Streams): boolean {
  const read = readChangeJob(data, streams);
  return typeof read === 'object' && (read.stream !== stream || !read.keys.includes(localKey));
}

/** Returns true if the job contains the key. In a job of another stream, the same key means another record. */
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

/** Returns the data of a valid job without the key, or undefined if no key is left or the job is invalid. */
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
