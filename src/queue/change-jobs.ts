// Jobs of other programs: "these keys may differ now". They become rows of the inbox and are done. A job that cannot be
// read fails for good and is kept, with a reason that quotes nothing of it: it may name a person.
import { DelayedError, UnrecoverableError, type Job } from 'bullmq';
import { z } from 'zod';
import { codeOf } from '../errors.js';
import type { Logger } from '../logger.js';
import type { State } from '../state/database.js';
import { addChanges } from '../state/inbox/add-changes.js';
import { joinKey, splitKey } from '../streams/local-key.js';
import type { Stream } from '../streams/stream.js';
import type { AnyWorker, Backend } from './bullmq.js';
import { CHANGES } from './jobs.js';

const SECOND = 1000;
/** How long a job waits that could not be written down. */
const AGAIN_MS = 5 * SECOND;
/** Unreadable jobs that are kept, and for how long in seconds. */
const KEEP_FAILED = { count: 1000, age: 30 * 24 * 60 * 60 };

const text = z
  .string()
  .min(1)
  .refine((value) => value.isWellFormed() && !value.includes('\0') && Buffer.byteLength(value) <= 2000);
const part = z.union([text, z.number().refine(Number.isSafeInteger)]);
const keySchema = z.union([part, z.array(part).min(1).max(32)]);
const jobSchema = z.union([
  z.strictObject({ stream: text, key: z.unknown().refine((key) => key !== undefined) }),
  z.strictObject({ stream: text, keys: z.array(z.unknown()).min(1).max(10_000) }),
]);

const JOB = 'the job is { stream, key } or { stream, keys: [...] } with 1 to 10000 keys, and nothing else';
const KEY =
  'a key is text of at most 2000 bytes, a whole number, or a list of these, one for each column of a composite key';

/** The stream and local keys of a job's data, or what is wrong with it: a text that quotes nothing of it. */
export function readChangeJob(
  data: unknown,
  streams: ReadonlyMap<string, Pick<Stream, 'key'>>,
): { stream: string; keys: string[] } | string {
  const job = jobSchema.safeParse(data);
  if (!job.success) return JOB;
  const { stream } = job.data;
  const given: (readonly [place: string, key: unknown])[] =
    'keys' in job.data
      ? job.data.keys.map((key, at) => [`keys[${at}]`, key] as const)
      : [['key', job.data.key]];
  // A stream that is not in this configuration may be in the next one: its rows wait, and status tells of them.
  const columns = streams.get(stream)?.key.length;
  const keys = new Set<string>();
  for (const [place, one] of given) {
    const read = keySchema.safeParse(one);
    if (!read.success) return `${place}: ${KEY}`;
    const isList = Array.isArray(read.data);
    const local = Array.isArray(read.data) ? joinKey(read.data.map(String)) : String(read.data);
    const fits = isList
      ? (read.data as unknown[]).length === columns
      : splitKey(local, columns ?? 1) !== undefined;
    if (columns !== undefined && !fits)
      return `${place}: a key of this stream has ${columns} ${columns === 1 ? 'part' : 'parts'}`;
    keys.add(local);
  }
  return { stream, keys: [...keys] };
}

/** Reads the queue of changes; the caller runs and closes it. */
export function createChangeWorker(options: {
  backend: Backend;
  state: State;
  streams: ReadonlyMap<string, Stream>;
  log: Logger;
}): AnyWorker {
  const { backend, state, streams, log } = options;

  async function processChange(taken: Job, token: string | undefined): Promise<void> {
    const read = readChangeJob(taken.data, streams);
    if (typeof read === 'string') {
      log.error(
        { reason: read },
        'a job of another program cannot be read; it is kept among the failed ones',
      );
      const error = new UnrecoverableError(read);
      error.stack = error.message;
      throw error;
    }
    try {
      await addChanges(state.db, read.stream, read.keys);
    } catch (error) {
      log.warn({ code: codeOf(error) }, 'changes could not be written down; they are tried again');
      await taken.moveToDelayed(Date.now() + AGAIN_MS, token);
      throw new DelayedError();
    }
  }

  return backend.worker(CHANGES, processChange, { concurrency: 4, removeOnFail: KEEP_FAILED });
}
