// Drains the queues. The one place where an error's disposition becomes an action: try again later, wait without
// costing an attempt, or give the batch up.
import { once, setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { DelayedError, type Job } from 'bullmq';
import { codeOf, dispositionOf, messageWithDetail } from '../errors.js';
import type { Logger } from '../logger.js';
import { NO_OUTCOMES } from '../state/records/outcomes.js';
import { readBatch, type Batch } from '../state/runs/batches.js';
import { failRun } from '../state/runs/end-run.js';
import { failBatch } from '../state/runs/finish-batch.js';
import { applyBatch, type ApplyDeps } from '../sync/apply/apply-batch.js';
import { createPreflight } from '../sync/plan/preflight.js';
import { planRun } from '../sync/plan/plan-run.js';
import type { AnyWorker, Backend } from './bullmq.js';
import { createBreaker } from './circuit-breaker.js';
import {
  ATTEMPTS,
  BATCHES,
  backoff,
  RUNS,
  TICK,
  URGENT_BATCHES,
  type BatchJob,
  type RunJob,
} from './jobs.js';
import type { Producer } from './producer.js';

export interface WorkersOptions extends ApplyDeps {
  backend: Backend;
  producer: Producer;
  log: Logger;
  /** Batches in work at once. Rate times latency is what it takes; more only wait at the limiter. */
  concurrency?: number;
  /** Resolves when sending makes sense: state, mirror and service answer. */
  probe: (signal: AbortSignal) => Promise<unknown>;
  /** Starts what the schedule says is due. */
  wake: () => Promise<void>;
  /**
   * Nobody is waiting: credentials that are refused while a run is planned are waited for too. Otherwise they end the
   * run, which tells whoever started it.
   */
  waitForCredentials?: boolean;
}

export type Workers = ReturnType<typeof createWorkers>;

/** `ended`: it stopped draining without having been told to. */
export type WorkersPhase = 'starting' | 'running' | 'stopping' | 'ended';

const SECOND = 1000;
/** So that a change of one record need not wait for the plan of a night. */
const PLANS_AT_ONCE = 4;
/** Batches of incremental runs in work at once, beside the others. */
const URGENT_AT_ONCE = 4;
/** How long a batch waits whose records another batch is writing. */
const DEFER_MS = 5 * SECOND;
/** The same where somebody waits for the change; the other batch takes one or two requests. */
const DEFER_SHORTLY_MS = 250;
const REQUEUE_EVERY_MS = 15 * SECOND;
/** How long what is in work may take to finish once no more is taken, unless told otherwise. */
export const GRACE_MS = 30 * SECOND;
/** How long interrupted work may take to go back: a transaction and a word to the queue. */
const GO_BACK_WITHIN_MS = 5 * SECOND;

export function createWorkers(options: WorkersOptions) {
  const { backend, producer, state, log, concurrency = 12 } = options;
  const stopping = new AbortController();
  const interrupting = new AbortController();
  setMaxListeners(0, interrupting.signal); // every request in flight listens
  let phase: WorkersPhase = 'starting';
  let stopped: Promise<void> | undefined;
  const settings = { backoffStrategy: (attemptsMade: number) => backoff(attemptsMade) };
  let sweep: NodeJS.Timeout | undefined;
  const preflight = createPreflight(options.destination);

  const breaker = createBreaker({
    log,
    probe: options.probe,
    onOpen: () => {
      for (const worker of all) void worker.pause(true).catch(onQueueError);
    },
    onClose: () => {
      if (phase === 'running') for (const worker of all) void worker.resume();
    },
  });
  const onQueueError = (error: unknown) => log.warn({ code: codeOf(error) }, 'the queue could not be paused');

  const batchWorker = backend.worker(BATCHES, processBatch, { concurrency, settings });
  const runWorker = backend.worker(RUNS, processRun, { concurrency: PLANS_AT_ONCE, settings });
  const urgentWorker = backend.worker(URGENT_BATCHES, processBatch, {
    concurrency: URGENT_AT_ONCE,
    settings,
  });
  const all: readonly AnyWorker[] = [batchWorker, urgentWorker, runWorker];

  async function processBatch(job: Job, token: string | undefined): Promise<void> {
    const { batchId } = job.data as BatchJob;
    let child = log.child({ batch: batchId });
    let batch: Batch | undefined;
    try {
      batch = await readBatch(state.db, batchId);
      if (batch?.state !== 'queued' || batch.isPaused) return; // its row brings it back when it is resumed
      child = log.child({ runId: batch.runId, stream: batch.stream, batch: batch.id });
      interrupting.signal.throwIfAborted();
      await applyBatch({ ...options, log: child }, batch, interrupting.signal);
      breaker.succeeded();
      await producer.advance(batch.runId);
    } catch (error) {
      // A batch that could not even be read stays queued as a row, and comes back from there.
      const giveUpNow = async () => (batch ? giveUp(batch, error, child) : undefined);
      const deferMs = batch?.lane === 'incremental' ? DEFER_SHORTLY_MS : DEFER_MS;
      await act(error, job, token, child, giveUpNow, deferMs);
    }
  }

  async function giveUp(batch: Batch, error: unknown, child: Logger): Promise<void> {
    // What remains of the batch may be less than it was when the job started.
    const rest = (await readBatch(state.db, batch.id)) ?? batch;
    await failBatch(state, rest, {
      code: codeOf(error),
      message: messageWithDetail(error),
    });
    options.meter?.settled(batch.stream, { ...NO_OUTCOMES, failed: rest.keys.length });
    child.error({ code: codeOf(error), records: rest.keys.length }, 'batch given up until the next run');
    await producer.advance(batch.runId);
  }

  async function processRun(job: Job, token: string | undefined): Promise<void> {
    if (job.name === TICK) return processTick();
    const { runId } = job.data as RunJob;
    const child = log.child({ runId });
    try {
      await planRun({ ...options, preflight, log: child }, runId, interrupting.signal);
      await producer.advance(runId);
    } catch (error) {
      await act(error, job, token, child, () =>
        failRun(state.db, runId, { code: codeOf(error), message: messageWithDetail(error) }),
      );
    }
  }

  async function processTick(): Promise<void> {
    try {
      await options.wake();
    } catch (error) {
      throw bareError(error);
    }
  }

  async function act(
    error: unknown,
    job: Job,
    token: string | undefined,
    child: Logger,
    giveUpNow: () => Promise<void>,
    deferMs = DEFER_MS,
  ): Promise<void> {
    if (interrupting.signal.aborted) {
      await job.moveToDelayed(Date.now(), token);
      throw new DelayedError();
    }
    if (breaker.failed(error)) {
      child.warn({ code: codeOf(error) }, 'waiting until it passes');
      await job.moveToDelayed(Date.now() + DEFER_MS, token);
      throw new DelayedError();
    }
    switch (dispositionOf(error)) {
      case 'defer':
        await job.moveToDelayed(Date.now() + deferMs, token);
        throw new DelayedError();
      case 'dead':
        return giveUpNow();
      case 'retry':
        if (job.attemptsMade + 1 >= ATTEMPTS) return giveUpNow();
        child.warn({ code: codeOf(error), attempt: job.attemptsMade + 1 }, 'to be tried again');
        throw bareError(error);
    }
  }

  async function drainUntilStopped(worker: AnyWorker): Promise<void> {
    const failure = await worker.run().then(
      () => undefined,
      (error: unknown) => error,
    );
    // A pause ends the loop as well; what begins it again is BullMQ's resume.
    if (stopping.signal.aborted || (failure === undefined && breaker.isOpen())) return;
    phase = 'ended';
    log.error({ code: codeOf(failure) }, 'worker ended');
  }

  async function stop(graceMs: number): Promise<void> {
    const isConnecting = phase === 'starting';
    phase = 'stopping';
    stopping.abort();
    breaker.stop();
    clearInterval(sweep);
    const grace = setTimeout(interrupt, graceMs);
    const closing = new AbortController();
    // BullMQ waits for its jobs without limit, and a close(true) after a close() changes nothing: what does not end
    // in time is left to the end of the process, and others take it over when its lock has run out.
    const closed = closeAll(isConnecting).then(() => true);
    const tooLate = interrupted()
      .then(() => sleep(GO_BACK_WITHIN_MS, false, { signal: closing.signal }))
      .catch(() => false);
    const inTime = await Promise.race([closed, tooLate]);
    clearTimeout(grace);
    closing.abort();
    if (!inTime) log.warn('not everything in work went back to the queue in time; others take it over');
  }

  async function closeAll(isConnecting: boolean): Promise<void> {
    // A connection that is being made when BullMQ closes stays open.
    if (isConnecting) await Promise.allSettled(all.map((worker) => worker.waitUntilReady()));
    await Promise.all(all.map((worker) => worker.close()));
  }

  function interrupt(): void {
    interrupting.abort(new Error('the worker is stopping'));
  }

  async function interrupted(): Promise<void> {
    if (!interrupting.signal.aborted) await once(interrupting.signal, 'abort');
  }

  return {
    phase: () => phase,

    /** Starts draining, after queueing again what an interruption left. Ends early when told to stop meanwhile. */
    async start(): Promise<void> {
      if (stopping.signal.aborted) return;
      const ready = Promise.all(all.map((worker) => worker.waitUntilReady())).then(() => producer.requeue());
      await Promise.race([ready, once(stopping.signal, 'abort')]);
      if (stopping.signal.aborted) return;
      for (const worker of all) void drainUntilStopped(worker);
      phase = 'running';
      sweep = setInterval(() => {
        producer.requeue().catch((error: unknown) => log.warn({ code: codeOf(error) }, 'requeue failed'));
      }, REQUEUE_EVERY_MS);
      sweep.unref();
    },

    /**
     * Takes no more, and resolves when what is in work is finished; after `graceMs` it is interrupted. The first
     * call's grace counts.
     */
    stop(graceMs: number = GRACE_MS): Promise<void> {
      return (stopped ??= stop(graceMs));
    },

    /** Interrupts what is in work; it goes back to the queue without having cost an attempt. Takes no more. */
    abort(): void {
      stopped ??= stop(GRACE_MS);
      interrupt();
    },
  };
}

/** The queue keeps what a job threw, message and stack: it gets the code and nothing else. */
function bareError(error: unknown): Error {
  const bare = new Error(codeOf(error));
  bare.stack = bare.message;
  return bare;
}
