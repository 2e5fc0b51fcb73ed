// Works the queues: plans runs and applies batches. The one place where a failure becomes an action at the queue;
// which action is decided in retry-policy.ts.
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { DelayedError, type Job } from 'bullmq';
import { codeOf, messageWithDetail, SlotsyncError } from '../errors/errors.js';
import { createStoppable, repeat } from '../process/lifecycle.js';
import type { Logger } from '../process/logger.js';
import { NO_OUTCOMES } from '../state/records/outcome-types.js';
import { readBatch, type Batch } from '../state/runs/batches.js';
import { failPlanning } from '../state/runs/end-run.js';
import { failBatch } from '../state/runs/finish-batch.js';
import { readRun } from '../state/runs/read-runs.js';
import { differingStreams, fingerprintsOf } from '../streams/fingerprints.js';
import { applyBatch, type ApplyDeps } from '../sync/apply/apply-batch.js';
import { openRequests } from '../sync/apply/fill-requests.js';
import { createSlowReadings } from '../sync/run/slow-readings.js';
import { afterFailure, NO_FAILURES, type EarlierFailures } from '../sync/apply/narrow-failures.js';
import { createNameCheck } from '../sync/plan/unknown-names.js';
import { planRun } from '../sync/plan/plan-run.js';
import { createRecognizer } from '../sync/run/recognize-databases.js';
import { inSpan, traceparent as spanOfRun } from '../process/tracing.js';
import { FEWEST_IN_FLIGHT, nextInFlight } from './batches-in-flight.js';
import type { Bullmq, JobWorker } from './bullmq.js';
import { createCircuitBreaker } from './circuit-breaker.js';
import { QUEUES, type BatchJob, type RunJob } from './jobs.js';
import type { Presence } from './presence.js';
import type { Producer } from './producer.js';
import { decideRetry, retryDelayMs } from './retry-policy.js';

interface WorkersOptions extends ApplyDeps {
  bullmq: Bullmq;
  producer: Producer;
  /** Tells others that this process is at work. */
  presence?: Presence;
  /** Batches in flight at once; as many as the quota needs, unless given. */
  concurrency?: number | undefined;
  /** Resolves when sending can succeed: state, mirror and service answer. */
  probe: (signal: AbortSignal) => Promise<unknown>;
  /** The streams as a run needs them; as they are declared unless given. */
  streamsOf?: (runId: number) => Promise<ApplyDeps['streams']>;
  /**
   * Credentials that are refused while a run is planned are waited for too, because no command waits for the run.
   * Otherwise they end the run, and the command reports it.
   */
  waitForCredentials?: boolean;
}

export type Workers = ReturnType<typeof createWorkers>;

const SECOND = 1000;
/** So that an incremental run need not wait until a nightly run is planned. */
const PLANS_AT_ONCE = 4;
/** Batches of incremental runs in flight at once, beside the others. */
const INCREMENTAL_AT_ONCE = 4;
const REQUEUE_EVERY_MS = 15 * SECOND;

export function createWorkers(options: WorkersOptions) {
  const { bullmq, producer, state, log, presence, concurrency } = options;
  const { streamsOf = async () => options.streams } = options;
  const nameCheck = createNameCheck(options.destination);
  const recognize = createRecognizer(options);
  const requests = openRequests(options);
  const slowReadings = createSlowReadings();
  /** `ended`: it stopped working the queue without a call of `stop`. */
  let phase: 'starting' | 'running' | 'stopping' | 'ended' = 'starting';
  let sweep: ReturnType<typeof repeat> | undefined;
  let leftToOthers = new Set<number>();

  const { stopping, aborting, stop, abort } = createStoppable('workers', log, () => {
    phase = 'stopping';
    return Promise.all([sweep?.ended, ...all.map((worker) => worker.close())]);
  });
  const breaker = createCircuitBreaker({
    log,
    signal: stopping,
    probe: options.probe,
    pauseSending: (cause) => {
      if (phase === 'ended') return;
      presence?.sendingStopped(cause);
      pauseAll();
    },
    resumeSending: () => {
      if (phase === 'ended') return;
      presence?.sendingResumed();
      if (phase === 'running') for (const worker of all) void worker.resume();
    },
  });

  const settings = {
    backoffStrategy: (attemptsMade: number, _type?: string, error?: Error) =>
      error instanceof RetryError ? error.afterMs : retryDelayMs(attemptsMade),
  };
  let inFlight = concurrency ?? FEWEST_IN_FLIGHT;
  const batches = bullmq.worker(QUEUES.batches, processBatch, { concurrency: inFlight, settings });
  const all: readonly JobWorker[] = [
    batches,
    bullmq.worker(QUEUES.incrementalBatches, processBatch, { concurrency: INCREMENTAL_AT_ONCE, settings }),
    bullmq.worker(QUEUES.runs, processRun, { concurrency: PLANS_AT_ONCE, settings }),
  ];

  function pauseAll(): void {
    const onError = (error: unknown) => log.warn({ code: codeOf(error) }, 'pausing a worker failed');
    for (const worker of all) void worker.pause().catch(onError);
  }

  /** Queues again what an interruption left. A run that belongs to another configuration is named once. */
  async function requeue(): Promise<void> {
    const others = await producer.requeue();
    await bullmq.wakeWorkers(state.db);
    for (const { id, fingerprints } of others) {
      const differing = differingStreams(fingerprints, fingerprintsOf(options.streams.values()));
      if (differing.length > 0 && !leftToOthers.has(id))
        log.warn({ runId: id, differing }, 'run left to processes with its configuration');
    }
    leftToOthers = new Set(others.map(({ id }) => id));
  }

  async function processBatch(job: Job, token: string | undefined): Promise<void> {
    const { batchId, traceparent, earlier = NO_FAILURES } = job.data as BatchJob;
    let child = log.child({ batch: batchId });
    let batch: Batch | undefined;
    try {
      const taken = await readBatch(state.db, batchId);
      batch = taken;
      if (taken?.state !== 'queued' || taken.isPaused) return; // its row brings it back when it is resumed
      child = log.child({ runId: taken.runId, stream: taken.stream, batch: taken.id });
      if (!producer.isOwn(taken)) return; // its row brings it to processes that have its configuration
      aborting.throwIfAborted();
      const deps = {
        ...options,
        processId: presence?.id,
        streams: await streamsOf(taken.runId),
        log: child,
        requests,
        slowReadings,
        earlier,
      };
      await inSpan('batch', attributesOf(taken, job), () => applyBatch(deps, taken, aborting), {
        parent: traceparent,
      });
      breaker.succeeded(nameOf(job));
      if (taken.lane !== 'incremental') adaptInFlight(taken);
      await producer.advance(taken.runId, traceparent);
    } catch (error) {
      if (!aborting.aborted) await noteFailure(job, afterFailure(earlier, error), child);
      await handleFailure(error, job, token, {
        log: child,
        lane: batch?.lane,
        // A batch that could not even be read stays queued as a row, and comes back from there.
        giveUp: async () => batch && giveUpBatch(batch, error, child),
      });
    }
  }

  function adaptInFlight({ keys }: Batch): void {
    if (concurrency !== undefined) return;
    const next = nextInFlight(inFlight, { waitMs: requests.waitMs(), keys: keys.length });
    if (next !== inFlight) batches.setConcurrency((inFlight = next));
  }

  /** So that the next attempt, in whichever process, goes by what the earlier ones have shown. */
  async function noteFailure(job: Job, earlier: EarlierFailures, child: Logger): Promise<void> {
    const data = job.data as BatchJob;
    if (earlier.count === (data.earlier ?? NO_FAILURES).count) return;
    await job.updateData({ ...data, earlier }).catch((error: unknown) => {
      child.warn(
        { code: codeOf(error) },
        'the failure could not be noted; the next attempt begins with less',
      );
    });
  }

  async function giveUpBatch(batch: Batch, error: unknown, child: Logger): Promise<void> {
    const failed = await failBatch(state, batch, reasonOf(error));
    options.meter?.settled(batch.stream, { ...NO_OUTCOMES, failed });
    child.error({ code: codeOf(error), records: failed }, 'batch given up until the next run');
    await producer.advance(batch.runId);
  }

  async function processRun(job: Job, jobToken: string | undefined): Promise<void> {
    const { runId } = job.data as RunJob;
    const child = log.child({ runId });
    const token = randomUUID();
    try {
      const run = await readRun(state.db, runId);
      if (!run || !producer.isOwn(run)) return;
      const attempt = { token, attemptsMade: job.attemptsMade, signal: aborting };
      const planned = { ...options, streams: await streamsOf(runId), nameCheck, recognize, log: child };
      await inSpan('run', { 'slotsync.run.id': runId }, async () => {
        await planRun(planned, runId, attempt);
        await producer.advance(runId, spanOfRun());
      });
    } catch (error) {
      await handleFailure(error, job, jobToken, {
        log: child,
        giveUp: () => failPlanning(state.db, { runId, token }, reasonOf(error)),
      });
    }
  }

  async function handleFailure(
    error: unknown,
    job: Job,
    token: string | undefined,
    { log: child, lane, giveUp }: { log: Logger; lane?: string | undefined; giveUp: () => Promise<void> },
  ): Promise<void> {
    const isInterrupted = aborting.aborted;
    const mustWait = !isInterrupted && breaker.failed(error, nameOf(job));
    const { attemptsMade } = job;
    const { attempts } = job.opts;
    const decision = decideRetry({ error, attemptsMade, attempts, lane, isInterrupted, mustWait });
    if (decision.action === 'give_up') return giveUp();
    if (decision.action === 'retry') {
      child.warn({ code: codeOf(error), attempt: attemptsMade + 1 }, 'job failed; it is retried');
      throw new RetryError(error, decision.afterMs);
    }
    if (mustWait) child.warn({ code: codeOf(error) }, 'job deferred without using up an attempt');
    await job.moveToDelayed(Date.now() + decision.afterMs, token);
    throw new DelayedError();
  }

  async function runUntilStopped(worker: JobWorker): Promise<void> {
    const failure: unknown = await worker.run().catch((error: unknown) => error);
    // A pause ends this loop too; resuming starts another one inside BullMQ.
    if (stopping.aborted || phase === 'ended' || (failure === undefined && breaker.isOpen())) return;
    phase = 'ended';
    log.error({ code: codeOf(failure) }, 'worker ended unexpectedly');
    const why = failure === undefined ? '' : ` (${codeOf(failure)})`;
    presence?.sendingStopped(
      new SlotsyncError('worker_ended', `the process stopped working the queue${why}`, { cause: failure }),
    );
    pauseAll(); // so that what others read is true: other processes take the jobs of its other queues too
  }

  return {
    stop,
    abort,
    phase: () => phase,
    /** Since when nothing is sent, and why; null: it sends. */
    sendingStopped: () => presence?.stopped() ?? null,

    /** Queues again what an interruption left, and starts working the queues. Ends early when it is stopped meanwhile. */
    async start(): Promise<void> {
      if (stopping.aborted) return;
      const ready = Promise.all(all.map((worker) => worker.waitUntilReady())).then(requeue);
      await Promise.race([ready, once(stopping, 'abort')]);
      if (stopping.aborted) return;
      for (const worker of all) void runUntilStopped(worker);
      phase = 'running';
      sweep = repeat(requeue, {
        everyMs: REQUEUE_EVERY_MS,
        firstAfterMs: REQUEUE_EVERY_MS,
        signal: stopping,
        onError: (error) => log.warn({ code: codeOf(error) }, 'requeue failed; it is retried'),
      });
    },
  };
}

const attributesOf = ({ id, runId, stream, lane, keys }: Batch, { attemptsMade }: Job) => ({
  'slotsync.run.id': runId,
  'slotsync.batch.id': id,
  'slotsync.stream': stream,
  'slotsync.lane': lane,
  'slotsync.records': keys.length,
  'slotsync.attempt': attemptsMade + 1,
});

const nameOf = ({ queueName, id }: Job) => `${queueName} ${id}`;

const reasonOf = (error: unknown) => ({ code: codeOf(error), message: messageWithDetail(error) });

/** The queue keeps the message and the stack of what a job threw: it gets the code and nothing else. */
class RetryError extends Error {
  readonly afterMs: number;

  constructor(cause: unknown, afterMs: number) {
    super(codeOf(cause));
    this.stack = this.message;
    this.afterMs = afterMs;
  }
}
