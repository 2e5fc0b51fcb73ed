// Receives jobs of other programs, which say that the rows of some keys may differ now, and writes their keys to the
// inbox. An invalid job fails and is kept. Its reason quotes nothing of the job, which may contain personal data.
import { setTimeout as sleep } from 'node:timers/promises';
import { UnrecoverableError, WaitingError, type Job } from 'bullmq';
import { z } from 'zod';
import { codeOf } from '../errors/errors.js';
import { addChanges } from '../state/inbox/add-changes.js';
import { isTooLong, joinKey, MAX_ID_BYTES, splitKey } from '../streams/local-key.js';
import type { Stream } from '../streams/stream.js';
import type { SyncDeps } from '../sync/run/sync-deps.js';
import type { Bullmq, JobWorker } from './bullmq.js';
import { QUEUES } from './jobs.js';

const SECOND = 1000;
/** Delay of a job whose keys could not be stored. */
const DEFER_MS = 5 * SECOND;
/** Limits for keeping invalid jobs: their number, and their age in seconds. */
const KEEP_FAILED = { count: 1000, age: 30 * 24 * 60 * 60 };

const text = z
  .string()
  .min(1)
  .refine((value) => value.isWellFormed() && !value.includes('\0') && !isTooLong(value));
const part = z.union([text, z.number().refine(Number.isSafeInteger)]);
const keySchema = z.union([part, z.array(part).min(1).max(32)]);
const jobSchema = z.union([
  z.strictObject({ stream: text, key: z.unknown().refine((key) => key !== undefined) }),
  z.strictObject({ stream: text, keys: z.array(z.unknown()).min(1).max(10_000) }),
]);

const JOB =
  'the job must be { stream, key } or { stream, keys: [...] } with 1 to 10000 keys, without other fields';
const KEY = `a key is text of at most ${MAX_ID_BYTES} bytes, a whole number, or for a composite key a list with one of these for each column`;

/** Returns the stream and local keys of a job, or the fault of an invalid job. The fault quotes nothing of the job. */
export function readChangeJob(
  data: unknown,
  streams: ReadonlyMap<string, Pick<Stream, 'key'>>,
): { stream: string; keys: string[] } | string {
  const job = jobSchema.safeParse(data);
  if (!job.success) return JOB;
  const { stream } = job.data;
  const isList = 'keys' in job.data;
  const given = 'keys' in job.data ? job.data.keys : [job.data.key];
  // A stream that is not configured may be in the next configuration. Its rows wait, and `status` shows them.
  const columns = streams.get(stream)?.key.length;
  const keys = new Set<string>();
  for (const [at, one] of given.entries()) {
    const place = isList ? `keys[${at}]` : 'key';
    const { data: key } = keySchema.safeParse(one);
    if (key === undefined) return `${place}: ${KEY}`;
    const local = Array.isArray(key) ? joinKey(key.map(String)) : String(key);
    const fits = Array.isArray(key) ? key.length === columns : splitKey(local, columns ?? 1) !== undefined;
    if (isTooLong(local))
      return `${place}: the parts of the key are longer than ${MAX_ID_BYTES} bytes together`;
    if (columns !== undefined && !fits)
      return `${place}: a key of this stream has ${columns} ${columns === 1 ? 'part' : 'parts'}`;
    keys.add(local);
  }
  return { stream, keys: [...keys] };
}

/** Works the queue of changes. The caller starts and closes the worker, and aborts the signal before closing. */
export function createChangeWorker(
  { bullmq, state, streams, log }: Pick<SyncDeps, 'state' | 'streams' | 'log'> & { bullmq: Bullmq },
  signal: AbortSignal,
): JobWorker {
  async function processChange(job: Job, token: string | undefined): Promise<void> {
    const read = readChangeJob(job.data, streams);
    if (typeof read === 'string') {
      log.error({ reason: read }, 'change job is invalid; it is kept among the failed jobs');
      const error = new UnrecoverableError(read);
      error.stack = error.message;
      throw error;
    }
    try {
      await addChanges(state.db, read.stream, read.keys);
    } catch (error) {
      log.warn({ code: codeOf(error) }, 'storing the keys of a change job failed; it is retried');
      // A BullMQ delay would end by a process's clock. Other programs set delays too, so that no sweep may correct them
      // here.
      await sleep(DEFER_MS, undefined, { signal }).catch(() => undefined);
      await job.moveToWait(token);
      throw new WaitingError();
    }
  }

  return bullmq.worker(QUEUES.changes, processChange, { concurrency: 4, removeOnFail: KEEP_FAILED });
}
