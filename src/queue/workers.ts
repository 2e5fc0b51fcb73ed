// Works the queues: plans runs and applies batches. The one place where a failure becomes an action at the queue;
// which action is decided in retry-policy.ts.
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Job, JobsOptions } from 'bullmq';
import { codeOf, messageWithDetail, SlotsyncError } from '../errors/errors.js';
import { createStoppable, repeat } from '../process/lifecycle.js';
import { logUnexpected, type Logger } from '../process/logger.js';
import { NO_OUTCOMES } from '../state/records/outcome-types.js';
import type { TakenRun } from '../state/inbox/take-changes.js';
import { advanceRun } from '../state/runs/advance-run.js';
import { readBatch, type Batch, type QueuedBatch } from '../state/runs/batches.js';
import { failPlanning } from '../state/runs/end-run.js';
import { plannerOf } from '../state/runs/planner-token.js';
import { failBatch } from '../state/runs/finish-batch.js';
import { readRun, type Run } from '../state/runs/read-runs.js';
import { differingStreams, fingerprintsOf } from '../streams/fingerprints.js';
import { applyBatch, type ApplyDeps } from '../sync/apply/apply-batch.js';
import { openRequests } from '../sync/apply/fill-requests.js';
import { createRefusals } from '../sync/limits/refusals.js';
import { afterFailure, NO_FAILURES, type EarlierFailures } from '../sync/apply/narrow-failures.js';
import { requestsPerBatch } from '../sync/plan/batches.js';
import { createNameCheck } from '../sync/plan/unknown-names.js';
import { planRun } from '../sync/plan/plan-run.js';
import { createRecognizer } from '../sync/run/recognize-databases.js';
import { retryDelayMs } from '../time/retry-delay.js';
import { inSpan, traceparent as spanOfRun } from '../process/tracing.js';
import { FEWEST_IN_FLIGHT, firstInFlight, nextInFlight } from './batches-in-flight.js';
import type { Bullmq, JobWorker } from './bullmq.js';
import { createCircuitBreaker } from './circuit-breaker.js';
import { batchJobId, QUEUES, runJobId, type BatchJob, type RunJob } from './jobs.js';
import type { Presence } from './presence.js';
import type { Producer } from './producer.js';
import { ATTEMPTS, decideRetry } from './retry-policy.js';

interface WorkersOptions extends ApplyDeps {
  /** Opened when it is needed: a small run has no jobs. */
  bullmq: () => Promise<Bullmq>;
  producer: Producer;
  /** How far away the state is, in milliseconds. */
  roundTripMs?: number;
  /** Tells others that this process is at work. */
  presence?: Presence;
  /** Batches in flight at once at most; the share of this process in what the quota needs may be less. */
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
/** An attempt at a run or at a batch: a job, or work that has none yet. */
interface Attempt {
  /** For the circuit breaker. */
  name: string;
  /** Failed attempts before this one, and how many there are. */
  attemptsMade: number;
  attempts?: number | undefined;
  /** So that the next attempt, in whichever process, goes by what the earlier ones have shown. */
  note(earlier: EarlierFailures): Promise<void>;
  /** Leaves the rest to another attempt after this time; with an error, this one has failed and counts. */
  again(afterMs: number, error?: unknown): Promise<void>;
}

/** A run that this process has started, or has taken from the inbox as its planner. */
type OwnRun = { run: Run } | { taken: TakenRun };

/** So that an incremental run need not wait until a nightly run is planned. */
const PLANS_AT_ONCE = 4;
/** Batches of incremental runs in flight at once, beside the others; and runs over few changes that have no jobs. */
const INCREMENTAL_AT_ONCE = 4;
const REQUEUE_EVERY_MS = 15 * SECOND;

export function createWorkers(options: WorkersOptions) {
  const { bullmq, producer, state, log, presence, concurrency = Infinity } = options;
  const { streamsOf = async () => options.streams, roundTripMs = 0 } = options;
  const nameCheck = createNameCheck(options.destination);
  const recognizer = createRecognizer(options);
  // Now, since this process is seen at work: the state tells it from here on that it is put back. Whoever needs it waits for it.
  recognizer.both().catch(() => undefined);
  const requests = openRequests(options);
  const refusals = createRefusals();
  /** `ended`: it stopped working the queue without a call of `stop`. */
  let phase: 'starting' | 'running' | 'stopping' | 'ended' = 'starting';
  let sweep: ReturnType<typeof repeat> | undefined;
  let leftToOthers = new Set<number>();
  /** Runs that are worked without jobs; and the ids of the jobs that a sweep would make of them. */
  const worked = new Set<Promise<void>>();
  const inHand = new Set<string>();

  const { stopping, aborting, stop, abort } = createStoppable('workers', log, () => {
    phase = 'stopping';
    return Promise.all([sweep?.ended, ...worked, ...all.map((worker) => worker.close())]);
  });
  const breaker = createCircuitBreaker({
    log,
    signal: stopping,
    probe: options.probe,
    pauseSending: (cause) => {
      if (phase === 'ended') return;
      presence?.sendingStopped(cause);
      // Workers that are being opened begin later, unless it is open then: one that is paused before it begins would end.
      if (sweep) pauseAll();
    },
    resumeSending: () => {
      if (phase === 'ended') return;
      presence?.sendingResumed();
      if (phase === 'running' && sweep) for (const worker of all) void worker.resume();
    },
  });

  const settings = {
    backoffStrategy: (attemptsMade: number, _type?: string, error?: Error) =>
      error instanceof RetryError ? error.afterMs : retryDelayMs(attemptsMade),
  };
  const processes = () => presence?.processes() ?? 1;
  const perBatch = mostRequests(options.streams);
  const findFirst = () =>
    Math.min(concurrency, firstInFlight({ roundTripMs, requests: perBatch, processes: processes() }));
  let inFlight = findFirst();
  let hasEndedBatch = false;
  let restMs = 0;
  // A process that is started together with others sees them only when it has begun.
  presence?.whenSeen(() => {
    if (hasEndedBatch || inFlight === findFirst()) return;
    inFlight = findFirst();
    all[0]?.setConcurrency(inFlight);
  });
  /** Workers of batches, of those of incremental runs, and of plans; none before the queue is needed. */
  let all: readonly JobWorker[] = [];
  let started: Promise<void> | undefined;
  const start = (): Promise<void> => (started ??= startAll());

  function openAll({ worker }: Bullmq): readonly JobWorker[] {
    return [
      worker(QUEUES.batches, processBatch, { concurrency: inFlight, settings }),
      worker(QUEUES.incrementalBatches, processBatch, { concurrency: INCREMENTAL_AT_ONCE, settings }),
      worker(QUEUES.runs, processRun, { concurrency: PLANS_AT_ONCE, settings }),
    ];
  }

  async function startAll(): Promise<void> {
    if (stopping.aborted) return;
    // In the middle of a run a sweep that fails is one that is repeated, and its plan has recognized the state.
    const isAtWork = phase === 'running';
    const opened = await bullmq();
    if (stopping.aborted) return;
    all = openAll(opened);
    const recognized = isAtWork ? undefined : recognizer.state(Infinity);
    const areReady = Promise.all([recognized, ...all.map((worker) => worker.waitUntilReady())]);
    const ready = areReady.then(() => (isAtWork ? undefined : requeue()));
    await Promise.race([ready, once(stopping, 'abort')]);
    if (stopping.aborted) return;
    // Resuming begins it otherwise.
    if (!breaker.isOpen()) for (const worker of all) void runUntilStopped(worker);
    phase = 'running';
    sweep = repeat(requeue, {
      everyMs: REQUEUE_EVERY_MS,
      firstAfterMs: isAtWork ? 0 : REQUEUE_EVERY_MS,
      signal: stopping,
      onError: (error) => log.warn({ code: codeOf(error) }, 'requeue failed; it is retried'),
    });
  }

  /** Queues batches, and sees that this process has workers for them. */
  async function enqueueBatches(...queued: Parameters<Producer['enqueueBatches']>): Promise<void> {
    if (queued[0].length === 0) return;
    await producer.enqueueBatches(...queued);
    await start();
  }

  async function enqueueRun(...queued: Parameters<Producer['enqueueRun']>): Promise<void> {
    await producer.enqueueRun(...queued);
    await start();
  }

  function pauseAll(): void {
    const onError = (error: unknown) => log.warn({ code: codeOf(error) }, 'pausing a worker failed');
    for (const worker of all) void worker.pause().catch(onError);
  }

  /** Queues again what an interruption left. A run that belongs to another configuration is named once. */
  async function requeue(): Promise<void> {
    const others = await producer.requeue(presence?.id);
    await (await bullmq()).wakeWorkers(state.db);
    for (const { id, fingerprints } of others) {
      const differing = differingStreams(fingerprints, fingerprintsOf(options.streams.values()));
      if (differing.length > 0 && !leftToOthers.has(id))
        log.warn({ runId: id, differing }, 'run left to processes with its configuration');
    }
    leftToOthers = new Set(others.map(({ id }) => id));
  }

  async function processBatch(job: Job, token: string | undefined): Promise<void> {
    const data = job.data as BatchJob;
    if (inHand.has(batchJobId(data.batchId))) return; // a sweep has queued it meanwhile
    const attempt = attemptOf(await bullmq(), job, token);
    await applyOnce(data, attempt, (next) => enqueueBatches(next, tracedBy(data.traceparent)));
    if (job.queueName === QUEUES.batches && restMs > 0)
      await sleep(restMs, undefined, { signal: stopping }).catch(() => undefined);
  }

  /** Applies a batch and lets its run take its next step; `goOn` gets the batches that should have jobs then. */
  async function applyOnce(
    { batchId, traceparent, earlier = NO_FAILURES }: BatchJob,
    attempt: Attempt,
    goOn: (next: QueuedBatch[]) => Promise<void>,
    { hasFewBatches = false } = {},
  ): Promise<void> {
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
        refusals,
        earlier,
      };
      await inSpan('batch', attributesOf(taken, attempt), () => applyBatch(deps, taken, aborting), {
        parent: traceparent,
      });
      breaker.succeeded(attempt.name);
      if (taken.lane !== 'incremental') adaptInFlight(taken);
      const areFew = hasFewBatches || taken.lane === 'incremental';
      await goOn(await advanceRun(state.db, taken.runId, { hasFewBatches: areFew }));
    } catch (error) {
      const found = afterFailure(earlier, error);
      if (!aborting.aborted && found.count !== earlier.count) await noteFailure(attempt, found, child);
      await handleFailure(error, attempt, {
        log: child,
        lane: batch?.lane,
        // A batch that could not even be read stays queued as a row, and comes back from there.
        giveUp: async () => batch && giveUpBatch(batch, error, child),
      });
    }
  }

  function adaptInFlight({ keys }: Batch): void {
    const seen = {
      waitMs: requests.waitMs(),
      keys: keys.length,
      requests: perBatch,
      processes: processes(),
    };
    const next = nextInFlight(inFlight, seen);
    inFlight = Math.min(concurrency, next.inFlight);
    hasEndedBatch = true;
    restMs = next.restMs;
    all[0]?.setConcurrency(inFlight);
  }

  async function noteFailure(attempt: Attempt, found: EarlierFailures, child: Logger): Promise<void> {
    await attempt.note(found).catch((error: unknown) => {
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
    await enqueueBatches(await advanceRun(state.db, batch.runId));
  }

  async function processRun(job: Job, jobToken: string | undefined): Promise<void> {
    const { runId } = job.data as RunJob;
    if (inHand.has(runJobId(runId))) return;
    await planOnce(runId, randomUUID(), attemptOf(await bullmq(), job, jobToken), enqueueBatches);
  }

  /** Plans a run; `goOn` gets the batches that should have jobs then, and what they carry. `own`: it is known already. */
  async function planOnce(
    runId: number,
    token: string,
    attempt: Attempt,
    goOn: (queued: QueuedBatch[], data: Pick<BatchJob, 'traceparent'>) => Promise<void>,
    own?: OwnRun,
  ): Promise<void> {
    const child = log.child({ runId });
    try {
      const known = own ?? { run: await readRun(state.db, runId) };
      if ('run' in known && (!known.run || !producer.isOwn(known.run))) return;
      const planned = {
        ...options,
        streams: await streamsOf(runId),
        nameCheck,
        recognize: recognizer.both,
        log: child,
      };
      const { attemptsMade } = attempt;
      await inSpan('run', { 'slotsync.run.id': runId }, async () => {
        const queued = await planRun(planned, runId, { ...known, token, attemptsMade, signal: aborting });
        await goOn(queued, tracedBy(spanOfRun()));
      });
    } catch (error) {
      await handleFailure(error, attempt, {
        log: child,
        giveUp: () => failPlanning(state.db, { runId, token }, reasonOf(error)),
      });
    }
  }

  async function handleFailure(
    error: unknown,
    attempt: Attempt,
    { log: child, lane, giveUp }: { log: Logger; lane?: string | undefined; giveUp: () => Promise<void> },
  ): Promise<void> {
    const isInterrupted = aborting.aborted;
    if (!isInterrupted) logUnexpected(child, error);
    const mustWait = !isInterrupted && breaker.failed(error, attempt.name);
    const { attemptsMade, attempts } = attempt;
    const decision = decideRetry({ error, attemptsMade, attempts, lane, isInterrupted, mustWait });
    if (decision.action === 'give_up') return giveUp();
    if (decision.action === 'retry') {
      child.warn({ code: codeOf(error), attempt: attemptsMade + 1 }, 'job failed; it is retried');
      return attempt.again(decision.afterMs, error);
    }
    if (mustWait) child.warn({ code: codeOf(error) }, 'job deferred without using up an attempt');
    return attempt.again(decision.afterMs);
  }

  const newPlanner = () => plannerOf(presence?.id);
  const isSending = () => phase === 'running' && !breaker.isOpen();
  const hasRoom = () => isSending() && worked.size < INCREMENTAL_AT_ONCE;

  /** Works a run without jobs: plans it, and applies its batches while they are few. The queue gets the rest. */
  async function workHere(runId: number, runLane: string, own: OwnRun): Promise<void> {
    let data: Pick<BatchJob, 'traceparent'> = {};
    let queued: readonly QueuedBatch[] = [];

    async function applyHere({ id, lane }: QueuedBatch): Promise<void> {
      const attempt = withoutJob(`run ${runId} ${id}`, (options, noted) =>
        enqueueBatches([{ id, lane }], { ...data, ...noted }, options),
      );
      let next: readonly QueuedBatch[] = [];
      await inHandAs(batchJobId(id), () =>
        applyOnce({ batchId: id, ...data }, attempt, async (batches) => void (next = batches), {
          hasFewBatches: true,
        }),
      );
      await goOn(next);
    }

    async function goOn(batches: readonly QueuedBatch[]): Promise<void> {
      if (batches.length > Math.min(concurrency, FEWEST_IN_FLIGHT) || !isSending())
        return enqueueBatches(batches, data);
      const failed = (await Promise.allSettled(batches.map(applyHere))).find(isRejected);
      if (failed) throw failed.reason;
    }

    const planning = withoutJob(`run ${runId}`, (options) => enqueueRun(runId, runLane, options));
    const token = ('taken' in own && own.taken.planner) || newPlanner();
    const keep = async (batches: QueuedBatch[], traced: typeof data) => {
      [queued, data] = [batches, traced];
    };
    await inHandAs(runJobId(runId), () => planOnce(runId, token, planning, keep, own));
    await goOn(queued);
  }

  /** Does the work of a job that a sweep may have made meanwhile. */
  async function inHandAs(jobId: string, work: () => Promise<void>): Promise<void> {
    inHand.add(jobId);
    await work().finally(() => inHand.delete(jobId));
  }

  function noteWorked(work: Promise<void>): Promise<void> {
    worked.add(work);
    return work.finally(() => worked.delete(work));
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

    /** Whether this process may work a run over few changes at once. */
    hasRoom,

    /** A token to take such a run with. */
    newPlanner,

    /** Works such a run. What fails goes to the queue; a run that cannot be queued is a row all the same. */
    startFew(taken: TakenRun): void {
      const onError = (error: unknown) =>
        log.warn({ runId: taken.runId, code: codeOf(error) }, 'change left to the next sweep');
      void noteWorked(workHere(taken.runId, 'incremental', { taken }).catch(onError));
    },

    /** Works a run that this process has started. Resolves when it has ended, or the rest of it is in the queue. */
    async work(run: Run): Promise<void> {
      if (stopping.aborted) return;
      phase = 'running';
      const onError = (error: unknown) => {
        log.warn({ runId: run.id, code: codeOf(error) }, 'run left to the next sweep');
        return start();
      };
      await noteWorked(workHere(run.id, run.lane, { run }).catch(onError));
    },

    /** Queues again what an interruption left, and starts working the queues. Ends early when it is stopped meanwhile. */
    start,
  };
}

/** Requests of a batch, of the stream with the most of them. */
const mostRequests = (streams: ApplyDeps['streams']) =>
  [...streams.values()].reduce((most, stream) => Math.max(most, requestsPerBatch(stream)), 1);

const isRejected = (result: PromiseSettledResult<void>) => result.status === 'rejected';

const attributesOf = ({ id, runId, stream, lane, keys }: Batch, { attemptsMade }: Attempt) => ({
  'slotsync.run.id': runId,
  'slotsync.batch.id': id,
  'slotsync.stream': stream,
  'slotsync.lane': lane,
  'slotsync.records': keys.length,
  'slotsync.attempt': attemptsMade + 1,
});

const tracedBy = (traceparent: string | undefined) => (traceparent === undefined ? {} : { traceparent });

const attemptOf = ({ putOff }: Bullmq, job: Job, token: string | undefined): Attempt => ({
  name: `${job.queueName} ${job.id}`,
  attemptsMade: job.attemptsMade,
  attempts: job.opts.attempts,
  note: (earlier) => job.updateData({ ...(job.data as BatchJob), earlier }),
  async again(afterMs, error) {
    if (error !== undefined) throw new RetryError(error, afterMs);
    await putOff(job, afterMs, token);
  },
});

/** The first attempt of what has no job yet: it gets one when this has failed. */
function withoutJob(
  name: string,
  enqueue: (options: JobsOptions, data: Pick<BatchJob, 'earlier'>) => Promise<void>,
): Attempt {
  const data: Pick<BatchJob, 'earlier'> = {};
  return {
    name,
    attemptsMade: 0,
    note: async (earlier) => void (data.earlier = earlier),
    again: (delay, error) =>
      enqueue({ delay, attempts: error === undefined ? ATTEMPTS : ATTEMPTS - 1 }, data),
  };
}

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
