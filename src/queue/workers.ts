// Drains the queues. The one place where an error's disposition becomes an action: try again later, wait without
// costing an attempt, or give the batch up.
import { setMaxListeners } from 'node:events';
import { DelayedError, type Job } from 'bullmq';
import { codeOf, dispositionOf, fullMessageOf } from '../errors.js';
import type { Logger } from '../logger.js';
import { failBatch, readBatch, type Batch } from '../state/batches.js';
import { failRun, readRun } from '../state/runs.js';
import { applyBatch, type ApplyDeps } from '../sync/apply.js';
import { planRun } from '../sync/run.js';
import type { AnyWorker, Backend } from './backend.js';
import { ATTEMPTS, BATCHES, backoff, RUNS, type BatchJob, type RunJob } from './jobs.js';
import type { Producer } from './producer.js';

export interface WorkersOptions extends ApplyDeps {
  backend: Backend;
  producer: Producer;
  log: Logger;
  /** Batches in work at once. Rate times latency is what it takes; more only wait at the limiter. */
  concurrency?: number;
}

export type Workers = ReturnType<typeof createWorkers>;

const SECOND = 1000;
/** How long a batch waits whose records another batch is writing. */
const DEFER_MS = 5 * SECOND;
const REQUEUE_EVERY_MS = 15 * SECOND;

export function createWorkers(options: WorkersOptions) {
  const { backend, producer, state, log, concurrency = 12 } = options;
  const stopping = new AbortController();
  setMaxListeners(0, stopping.signal); // every request in flight listens
  const settings = { backoffStrategy: (attemptsMade: number) => backoff(attemptsMade) };
  let sweep: NodeJS.Timeout | undefined;

  const batchWorker = backend.worker(BATCHES, processBatch, { concurrency, settings });
  const runWorker = backend.worker(RUNS, processRun, { concurrency: 1, settings });
  const all: readonly AnyWorker[] = [batchWorker, runWorker];

  async function processBatch(job: Job, token: string | undefined): Promise<void> {
    const { batchId } = job.data as BatchJob;
    const batch = await readBatch(state.db, batchId);
    if (batch?.state !== 'queued') return;
    const child = log.child({ runId: batch.runId, stream: batch.stream, batch: batch.id });
    try {
      const { queue } = await applyBatch({ ...options, log: child }, batch, stopping.signal);
      await producer.enqueueBatches(queue, batch.lane);
    } catch (error) {
      await act(error, job, token, child, async () => giveUp(batch, error, child));
    }
  }

  async function giveUp(batch: Batch, error: unknown, child: Logger): Promise<void> {
    // What remains of the batch may be less than it was when the job started.
    const rest = (await readBatch(state.db, batch.id)) ?? batch;
    const { queue } = await failBatch(state, rest, { code: codeOf(error), message: fullMessageOf(error) });
    child.error({ code: codeOf(error), records: rest.keys.length }, 'batch given up until the next run');
    await producer.enqueueBatches(queue, batch.lane);
  }

  async function processRun(job: Job, token: string | undefined): Promise<void> {
    const { runId } = job.data as RunJob;
    const child = log.child({ runId });
    try {
      const { queue } = await planRun({ ...options, log: child }, runId, stopping.signal);
      const run = await readRun(state.db, runId);
      await producer.enqueueBatches(queue, run?.lane ?? 'nightly');
    } catch (error) {
      await act(error, job, token, child, () =>
        failRun(state.db, runId, { code: codeOf(error), message: fullMessageOf(error) }),
      );
    }
  }

  async function act(
    error: unknown,
    job: Job,
    token: string | undefined,
    child: Logger,
    giveUpNow: () => Promise<void>,
  ): Promise<void> {
    if (stopping.signal.aborted) {
      await job.moveToDelayed(Date.now(), token);
      throw new DelayedError();
    }
    switch (dispositionOf(error)) {
      case 'defer':
        await job.moveToDelayed(Date.now() + DEFER_MS, token);
        throw new DelayedError();
      case 'dead':
        return giveUpNow();
      case 'retry':
        if (job.attemptsMade + 1 >= ATTEMPTS) return giveUpNow();
        child.warn({ code: codeOf(error), attempt: job.attemptsMade + 1 }, 'to be tried again');
        throw bareError(error);
    }
  }

  return {
    /** Starts draining, after queueing again what an interruption left. */
    async start(): Promise<void> {
      await Promise.all(all.map((worker) => worker.waitUntilReady()));
      await producer.requeue();
      for (const worker of all)
        void worker.run().catch((error: unknown) => log.error({ code: codeOf(error) }, 'worker ended'));
      sweep = setInterval(() => {
        producer.requeue().catch((error: unknown) => log.warn({ code: codeOf(error) }, 'requeue failed'));
      }, REQUEUE_EVERY_MS);
      sweep.unref();
    },

    /** Takes no more, and resolves when what is in work is finished. `abort` interrupts it. */
    async stop(): Promise<void> {
      clearInterval(sweep);
      await Promise.all(all.map((worker) => worker.close()));
    },

    /** Interrupts what is in work; it goes back to the queue without having cost an attempt. */
    abort(): void {
      stopping.abort(new Error('the worker is stopping'));
    },
  };
}

/** The queue keeps what a job threw, message and stack: it gets the code and nothing else. */
function bareError(error: unknown): Error {
  const bare = new Error(codeOf(error));
  bare.stack = bare.message;
  return bare;
}
