// Works runs and batches in this process. Decides when work begins, pauses and stops, and what hands work to the
// executor: jobs of the queue, or the process's own runs while they are small.
import { once } from 'node:events';
import { codeOf, SlotsyncError } from '../errors/errors.js';
import { createStoppable, repeat } from '../process/lifecycle.js';
import type { TakenRun } from '../state/inbox/take-changes.js';
import type { Run } from '../state/runs/read-runs.js';
import { differingStreams, fingerprintsOf } from '../streams/fingerprints.js';
import type { ApplyDeps } from '../sync/apply/apply-batch.js';
import { requestsPerBatch } from '../sync/plan/planned-batches.js';
import { createBatchesInFlight, FEWEST_IN_FLIGHT } from './batches-in-flight.js';
import type { Bullmq } from './bullmq.js';
import { createCircuitBreaker } from './circuit-breaker.js';
import { createExecutor, type ExecutorOptions } from './executor.js';
import { INCREMENTAL_AT_ONCE, openJobWorkers, type JobWorkers } from './job-workers.js';
import { createOwnRuns } from './own-runs.js';
import type { Presence } from './presence.js';
import type { Producer } from './producer.js';

interface WorkersOptions extends ApplyDeps, Pick<ExecutorOptions, 'streamsOf' | 'waitForCredentials'> {
  /** Opens BullMQ at first use, because a small run needs no jobs. */
  bullmq: () => Promise<Bullmq>;
  producer: Producer;
  /** Reports to other processes that this process works the queue. */
  presence?: Presence;
  /** Maximum number of batches in flight. The process's share of the quota may allow fewer. */
  concurrency?: number | undefined;
  /** Resolves when sending can succeed: state, mirror and service answer. */
  probe: (signal: AbortSignal) => Promise<unknown>;
}

export type Workers = ReturnType<typeof createWorkers>;

const REQUEUE_EVERY_MS = 15_000;

export function createWorkers(options: WorkersOptions) {
  const { producer, log, presence, concurrency = Infinity } = options;
  /** `ended`: this process stopped working the queue without a call of `stop`. */
  let phase: 'starting' | 'running' | 'stopping' | 'ended' = 'starting';
  let jobWorkers: JobWorkers | undefined;
  let sweep: ReturnType<typeof repeat> | undefined;
  const { stopping, aborting, stop, abort } = createStoppable('workers', log, () => {
    phase = 'stopping';
    return Promise.all([sweep?.ended, ownRuns.ended(), jobWorkers?.close()]);
  });
  const breaker = createCircuitBreaker({
    log,
    signal: stopping,
    probe: options.probe,
    pauseSending: (cause) => {
      if (phase === 'ended') return;
      presence?.sendingStopped(cause);
      jobWorkers?.pause();
    },
    resumeSending: () => {
      if (phase === 'ended') return;
      presence?.sendingResumed();
      if (phase === 'running') jobWorkers?.resume();
    },
  });
  const executor = createExecutor({
    ...options,
    processId: presence?.id,
    isOwn: producer.isOwn,
    breaker,
    aborting,
    onApplied: ({ keys }) => inFlight.batchEnded(keys.length),
  });
  const inFlight = createBatchesInFlight({
    most: concurrency,
    requests: mostRequests(options.streams),
    processes: () => presence?.processes() ?? 1,
    waitMs: executor.waitMs,
  });
  presence?.whenSeen(inFlight.processesSeen);
  const requeue = createRequeue(options);

  const isSending = () => phase === 'running' && !breaker.isOpen();
  /** Adds batches to the queue, and starts the workers of this process if they do not run yet. */
  const enqueueBatches: Producer['enqueueBatches'] = async (batches, ...queueing) => {
    if (batches.length === 0) return;
    await producer.enqueueBatches(batches, ...queueing);
    await start();
  };
  const enqueueRun: Producer['enqueueRun'] = async (...queueing) => {
    await producer.enqueueRun(...queueing);
    await start();
  };
  const ownRuns = createOwnRuns({
    executor,
    processId: presence?.id,
    log,
    mostBatches: Math.min(concurrency, FEWEST_IN_FLIGHT),
    isSending,
    enqueueRun,
    enqueueBatches,
  });
  const hasRoom = () => isSending() && ownRuns.count() < INCREMENTAL_AT_ONCE;

  let started: Promise<void> | undefined;
  const start = (): Promise<void> => (started ??= workQueue());

  async function workQueue(): Promise<void> {
    if (stopping.aborted) return;
    // During a run, recognition and requeueing are skipped: the plan has recognized the state, and the sweep requeues
    // at once.
    const isAtWork = phase === 'running';
    const bullmq = await options.bullmq();
    if (stopping.aborted) return;
    const { isInHand } = ownRuns;
    const deps = { executor, inFlight, log, enqueueBatches, isInHand, stopping, onEnded };
    jobWorkers = openJobWorkers(bullmq, deps);
    const recognized = isAtWork ? undefined : executor.recognizeState(Infinity);
    const areReady = Promise.all([recognized, jobWorkers.waitUntilReady()]);
    const ready = areReady.then(() => (isAtWork ? undefined : requeue()));
    await Promise.race([ready, once(stopping, 'abort')]);
    if (stopping.aborted) return;
    jobWorkers.begin({ isPaused: breaker.isOpen() });
    phase = 'running';
    sweep = repeat(requeue, {
      everyMs: REQUEUE_EVERY_MS,
      firstAfterMs: isAtWork ? 0 : REQUEUE_EVERY_MS,
      signal: stopping,
      onError: (error) => log.warn({ code: codeOf(error) }, 'requeue failed; it is retried'),
    });
  }

  function onEnded(failure: unknown): void {
    // Pausing a worker also ends its loop. BullMQ starts another loop when the worker is resumed.
    if (stopping.aborted || phase === 'ended' || (failure === undefined && breaker.isOpen())) return;
    phase = 'ended';
    log.error({ code: codeOf(failure) }, 'worker ended unexpectedly');
    const why = failure === undefined ? '' : ` (${codeOf(failure)})`;
    presence?.sendingStopped(
      new SlotsyncError('worker_ended', `the process no longer works the queue${why}`, { cause: failure }),
    );
    jobWorkers?.pause(); // other processes then take the jobs of its other queues too
  }

  return {
    stop,
    abort,
    phase: () => phase,
    /** Returns since when and why this process sends nothing, or null if it sends. */
    sendingStopped: () => presence?.stopped() ?? null,
    /** Returns since when and why the service fails, even before the circuit breaker stops sending. */
    failing: breaker.failing,

    /** Returns true if this process may work a further small run without jobs. */
    hasRoom,

    /** Returns a token with which this process claims a run as its planner. */
    newPlanner: ownRuns.newPlanner,

    /** Works a small run without jobs. Failed parts go to the queue; if that fails, a sweep queues the run's row. */
    startFew: (taken: TakenRun): void => void ownRuns.work(taken.runId, 'incremental', { taken }),

    /** Works a run that this process has started. Resolves when the run has ended or its rest is in the queue. */
    async work(run: Run): Promise<void> {
      if (stopping.aborted) return;
      phase = 'running';
      if (!(await ownRuns.work(run.id, run.lane, { run }))) await start();
    },

    /** Requeues interrupted work and starts working the queues. Returns early if the process is stopped meanwhile. */
    start,
  };
}

/** Returns a function that requeues interrupted work. It logs each run of another configuration once. */
function createRequeue({ producer, presence, streams, log }: WorkersOptions) {
  let leftToOthers = new Set<number>();
  return async (): Promise<void> => {
    const others = await producer.requeue(presence?.id);
    for (const { id, fingerprints } of others) {
      const differing = differingStreams(fingerprints, fingerprintsOf(streams.values()));
      if (differing.length > 0 && !leftToOthers.has(id))
        log.warn({ runId: id, differing }, 'run not queued: only processes with its configuration work it');
    }
    leftToOthers = new Set(others.map(({ id }) => id));
  };
}

/** Returns the maximum number of requests in one batch of any stream. */
const mostRequests = (streams: ApplyDeps['streams']) =>
  [...streams.values()].reduce((most, stream) => Math.max(most, requestsPerBatch(stream)), 1);
