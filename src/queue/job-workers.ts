// BullMQ's workers of this process, which hand the jobs of runs and batches to the executor.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Job } from 'bullmq';
import { codeOf } from '../errors/errors.js';
import type { Logger } from '../process/logger.js';
import { retryDelayMs } from '../time/retry-delay.js';
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
  /** This process does the work of the job without it. */
  isInHand: (jobId: string) => boolean;
  /** Nothing more is taken. */
  stopping: AbortSignal;
  /** A worker ended. Undefined: without a failure, as a pause ends it too. */
  onEnded: (failure: unknown) => void;
}

/** So that an incremental run need not wait until a nightly run is planned. */
const PLANS_AT_ONCE = 4;
/** Batches of incremental runs in flight at once, beside the others. */
export const INCREMENTAL_AT_ONCE = 4;

const SETTINGS = {
  backoffStrategy: (attemptsMade: number, _type?: string, error?: Error) =>
    error instanceof RetryError ? error.afterMs : retryDelayMs(attemptsMade),
};

export type JobWorkers = ReturnType<typeof openJobWorkers>;

/** Opens the workers. They take jobs when they are begun. */
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
    if (isInHand(batchJobId(data.batchId))) return; // a sweep has queued it meanwhile
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

    /** Begins to take jobs. `isPaused`: only when they are resumed. */
    begin({ isPaused }: { isPaused: boolean }): void {
      hasBegun = true;
      if (isPaused) return;
      for (const one of all)
        void one
          .run()
          .catch((error: unknown) => error)
          .then(onEnded);
    },

    /** A worker that is paused before it has begun would end. */
    pause(): void {
      const onError = (error: unknown) => log.warn({ code: codeOf(error) }, 'pausing a worker failed');
      if (hasBegun) for (const one of all) void one.pause().catch(onError);
    },

    resume(): void {
      if (hasBegun) for (const one of all) void one.resume();
    },

    /** Resolves when the jobs in flight have ended. */
    close: () => Promise.all(all.map((one) => one.close())),
  };
}

/** The queue keeps the message and the stack of what a job threw: it gets the code and nothing else. */
class RetryError extends Error {
  readonly afterMs: number;

  constructor(cause: unknown, afterMs: number) {
    super(codeOf(cause));
    this.stack = this.message;
    this.afterMs = afterMs;
  }
}
