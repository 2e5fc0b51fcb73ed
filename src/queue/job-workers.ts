// Opens the BullMQ workers of this process, which hand the jobs of runs and batches to the executor.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Job } from 'bullmq';
import { codeOf } from '../errors/errors.js';
import type { Logger } from '../process/logger.js';
import { retryDelayMs } from '../time/deadline.js';
import type { BatchesInFlight } from './batches-in-flight.js';
import type { Bullmq, JobWorker } from './bullmq.js';
import type { Attempt, Executor } from './executor.js';
import { batchJobId, QUEUES, runJobId, type BatchJob, type RunJob } from './jobs.js';
import type { Producer } from './producer.js';

interface JobWorkersOptions {
  executor: Executor;
  inFlight: BatchesInFlight;
  log: Logger;
  enqueueBatches: Producer['enqueueBatches'];
  /** Returns true if this process already does the work of this job without the job. */
  isInHand: (jobId: string) => boolean;
  /** Aborted when the process takes no more jobs. */
  stopping: AbortSignal;
  /** Called when a worker has ended. `failure` is undefined if there was no error, as after a pause. */
  onEnded: (failure: unknown) => void;
}

/** Number of runs that are planned at once, so that an incremental run need not wait for the plan of a nightly run. */
const PLANS_AT_ONCE = 4;
/** Maximum number of incremental batches in flight, in addition to other batches. */
export const INCREMENTAL_AT_ONCE = 4;

const SETTINGS = {
  backoffStrategy: (attemptsMade: number, _type?: string, error?: Error) =>
    error instanceof RetryError ? error.afterMs : retryDelayMs(attemptsMade),
};

export type JobWorkers = ReturnType<typeof openJobWorkers>;

/** Opens the workers. They take no jobs until `begin` is called. */
export function openJobWorkers({ worker, putOff }: Bullmq, options: JobWorkersOptions) {
  const { executor, inFlight, log, enqueueBatches, isInHand, stopping, onEnded } = options;
  let hasBegun = false;

  const attemptOf = (job: Job, token: string | undefined): Attempt => ({
    name: `${job.queueName} ${job.id}`,
    attemptsMade: job.attemptsMade,
    attempts: job.opts.attempts,
    note: (earlier) => job.updateData({ ...(job.data as BatchJob), earlier }),
    async again(afterMs, error) {
      if (error !== undefined) throw new RetryError(error, afterMs);
      await putOff(job, afterMs, token);
    },
    goOn: enqueueBatches,
  });

  async function processBatch(job: Job, token: string | undefined): Promise<void> {
    const data = job.data as BatchJob;
    if (isInHand(batchJobId(data.batchId))) return; // a sweep has queued the same work meanwhile
    await executor.apply(data, attemptOf(job, token));
    if (job.queueName === QUEUES.batches && inFlight.restMs() > 0)
      await sleep(inFlight.restMs(), undefined, { signal: stopping }).catch(() => undefined);
  }

  async function processRun(job: Job, token: string | undefined): Promise<void> {
    const { runId } = job.data as RunJob;
    if (isInHand(runJobId(runId))) return;
    await executor.plan(runId, randomUUID(), attemptOf(job, token));
  }

  const batches = worker(QUEUES.batches, processBatch, { concurrency: inFlight.now(), settings: SETTINGS });
  const changes = { concurrency: INCREMENTAL_AT_ONCE, settings: SETTINGS };
  const all: readonly JobWorker[] = [
    batches,
    worker(QUEUES.incrementalBatches, processBatch, changes),
    worker(QUEUES.runs, processRun, { concurrency: PLANS_AT_ONCE, settings: SETTINGS }),
  ];
  inFlight.onChange(batches.setConcurrency);

  return {
    waitUntilReady: () => Promise.all(all.map((one) => one.waitUntilReady())),

    /** Begins to take jobs. If `isPaused`, the workers take no jobs until `resume` is called. */
    begin({ isPaused }: { isPaused: boolean }): void {
      hasBegun = true;
      if (isPaused) return;
      for (const one of all)
        void one
          .run()
          .catch((error: unknown) => error)
          .then(onEnded);
    },

    /** Pauses workers that have begun. Pausing a worker that has not begun would end it. */
    pause(): void {
      const onError = (error: unknown) => log.warn({ code: codeOf(error) }, 'pausing a worker failed');
      if (hasBegun) for (const one of all) void one.pause().catch(onError);
    },

    resume(): void {
      if (hasBegun) for (const one of all) void one.resume();
    },

    /** Closes the workers when the jobs in flight have ended. */
    close: () => Promise.all(all.map((one) => one.close())),
  };
}

/** Error that contains only a code, because BullMQ stores the message and the stack of an error that a job throws. */
class RetryError extends Error {
  readonly afterMs: number;

  constructor(cause: unknown, afterMs: number) {
    super(codeOf(cause));
    this.stack = this.message;
    this.afterMs = afterMs;
  }
}
