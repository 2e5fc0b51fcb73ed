// Executes a run or a batch that a job hands over (job-workers.ts), or that this process works itself (own-runs.ts).
// Only here does a failure become an action: the attempt counts as failed, is deferred, returns to the queue, or was
// the last.
import { codeOf, dispositionOf, reasonOf } from '../errors/errors.js';
import { logUnexpected, type Logger } from '../process/logger.js';
import { inSpan, traceparent as spanOfRun } from '../process/tracing.js';
import type { TakenRun } from '../state/inbox/take-changes.js';
import { NO_OUTCOMES } from '../state/records/outcome-types.js';
import { advanceRun } from '../state/runs/advance-run.js';
import { readBatch, type Batch, type QueuedBatch } from '../state/runs/batches.js';
import { failPlanning } from '../state/runs/end-run.js';
import { failBatch } from '../state/runs/finish-batch.js';
import { readRun, type Run } from '../state/runs/read-runs.js';
import { applyBatch, type ApplyDeps } from '../sync/apply/apply-batch.js';
import { openLines } from '../sync/apply/fill-requests.js';
import { afterFailure, NO_FAILURES, type EarlierFailures } from '../sync/apply/narrow-failures.js';
import { createRefusals } from '../sync/limits/refusals.js';
import { planRun } from '../sync/plan/plan-run.js';
import { createNameCheck } from '../sync/plan/unknown-names.js';
import { createRecognizer } from '../sync/run/recognize-databases.js';
import { retryDelayMs } from '../time/deadline.js';
import type { CircuitBreaker } from './circuit-breaker.js';
import { ATTEMPTS, type BatchJob } from './jobs.js';

/** An attempt at a run or a batch. The caller implements the methods: for a job, or for work without a job. */
export interface Attempt {
  /** Name of the work, by which the circuit breaker tells jobs apart. */
  name: string;
  /** Number of failed attempts before this attempt. */
  attemptsMade: number;
  /** Maximum number of attempts. The default is ATTEMPTS. */
  attempts?: number | undefined;
  /** True if the run has few batches. Then each batch that ends checks at once whether the run takes its next step. */
  hasFewBatches?: boolean;
  /** Stores the findings of failed attempts for the next attempt, which another process may make. */
  note(earlier: EarlierFailures): Promise<void>;
  /** Leaves the rest to another attempt after this time. If an error is passed, this attempt counts as failed. */
  again(afterMs: number, error?: unknown): Promise<void>;
  /** Called with the run's batches that are to be worked next, and the span in which the run was planned. */
  goOn(next: QueuedBatch[], traced: Pick<BatchJob, 'traceparent'>): Promise<void>;
}

/** A run that this process has started or has claimed from the inbox as its planner. It need not be read again. */
export type OwnRun = { run: Run } | { taken: TakenRun };

export interface ExecutorOptions extends ApplyDeps {
  /** Returns true if a run or batch belongs to the configuration of this process. */
  isOwn: (of: Pick<Run, 'configuration'>) => boolean;
  breaker: CircuitBreaker;
  /** Aborted to interrupt the work in flight. */
  aborting: AbortSignal;
  /** Returns the streams for a run. By default, these are the declared streams. */
  streamsOf?: ((runId: number) => Promise<ApplyDeps['streams']>) | undefined;
  /** Called after each applied batch, except batches of the incremental lane. */
  onApplied: (batch: Batch) => void;
  /** If true, planning waits while the service refuses the credentials. Otherwise the run fails. */
  waitForCredentials?: boolean;
}

export type Executor = ReturnType<typeof createExecutor>;

export function createExecutor(options: ExecutorOptions) {
  const { state, log, isOwn, breaker, aborting } = options;
  const { streamsOf = async () => options.streams } = options;
  const nameCheck = createNameCheck(options.destination);
  const recognizer = createRecognizer(options);
  // Starts recognizing both databases; callers that need the result await it. This must run after the process was
  // registered, because only registered processes notice a restore of the state.
  recognizer.both().catch(() => undefined);
  const requests = openLines(options);
  const refusals = createRefusals();

  return {
    /** Checks whether the state is still the same database. Await this before the queue is worked. */
    recognizeState: recognizer.state,
    /** Returns how long batches have recently waited for their slots, in milliseconds. */
    waitMs: requests.waitMs,

    /** Plans a run. `token` identifies the planner. `own` contains the run if this process already knows it. */
    async plan(runId: number, token: string, attempt: Attempt, own?: OwnRun): Promise<void> {
      const child = log.child({ runId });
      try {
        const known = own ?? { run: await readRun(state.db, runId) };
        if ('run' in known && (!known.run || !isOwn(known.run))) return;
        const streams = await streamsOf(runId);
        const deps = { ...options, streams, nameCheck, recognize: recognizer.both, log: child };
        const { attemptsMade } = attempt;
        await inSpan('run', { 'slotsync.run.id': runId }, async () => {
          const queued = await planRun(deps, runId, { ...known, token, attemptsMade, signal: aborting });
          await attempt.goOn(queued, tracedBy(spanOfRun()));
        });
      } catch (error) {
        const fail = () => failPlanning(state.db, { runId, token }, reasonOf(error));
        await handleFailure(options, error, attempt, { log: child, fail });
      }
    },

    /** Applies a batch, and lets its run take the next step. */
    async apply({ batchId, traceparent, earlier = NO_FAILURES }: BatchJob, attempt: Attempt): Promise<void> {
      let child = log.child({ batch: batchId });
      let batch: Batch | undefined;
      try {
        const taken = await readBatch(state.db, batchId);
        batch = taken;
        if (taken?.state !== 'queued' || taken.isPaused) return; // a resumed run is queued again from its rows
        child = log.child({ runId: taken.runId, stream: taken.stream, batch: taken.id });
        if (!isOwn(taken)) return; // processes with its configuration queue it from its row
        aborting.throwIfAborted();
        const streams = await streamsOf(taken.runId);
        const deps = { ...options, streams, log: child, requests, refusals, earlier };
        const apply = () => applyBatch(deps, taken, aborting);
        await inSpan('batch', attributesOf(taken, attempt), apply, { parent: traceparent });
        breaker.succeeded(attempt.name);
        if (taken.lane !== 'incremental') options.onApplied(taken);
        await advance(options, taken, attempt, traceparent);
      } catch (error) {
        const found = afterFailure(earlier, error);
        if (!aborting.aborted && found.count !== earlier.count) await noteFailure(attempt, found, child);
        const fail = async () => {
          if (!batch) return; // its row stays `queued`, and a sweep queues it again
          const failed = await failBatch(state, batch, reasonOf(error));
          options.meter?.settled(batch.stream, { ...NO_OUTCOMES, failed });
          child.error(
            { code: codeOf(error), records: failed },
            'batch out of attempts; the next run sends its records again',
          );
          await advance(options, batch, attempt, traceparent);
        };
        await handleFailure(options, error, attempt, { log: child, lane: batch?.lane, fail });
      }
    },
  };
}

/** Lets a run take its next step after one of its batches has ended. */
async function advance(
  { state }: Pick<ApplyDeps, 'state'>,
  { runId, lane }: Batch,
  attempt: Attempt,
  traceparent?: string,
): Promise<void> {
  const hasFewBatches = attempt.hasFewBatches === true || lane === 'incremental';
  await attempt.goOn(await advanceRun(state.db, runId, { hasFewBatches }), tracedBy(traceparent));
}

async function noteFailure(attempt: Attempt, found: EarlierFailures, log: Logger): Promise<void> {
  await attempt.note(found).catch((error: unknown) => {
    log.warn(
      { code: codeOf(error) },
      'findings of the failed attempt not stored; the next attempt starts without them',
    );
  });
}

async function handleFailure(
  { breaker, aborting }: Pick<ExecutorOptions, 'breaker' | 'aborting'>,
  error: unknown,
  attempt: Attempt,
  { log, lane, fail }: { log: Logger; lane?: string | undefined; fail: () => Promise<void> },
): Promise<void> {
  const isInterrupted = aborting.aborted;
  if (!isInterrupted) logUnexpected(log, error);
  const mustWait = !isInterrupted && breaker.failed(error, attempt.name);
  const { attemptsMade, attempts } = attempt;
  const decision = decideRetry({ error, attemptsMade, attempts, lane, isInterrupted, mustWait });
  if (decision.action === 'fail') return fail();
  if (decision.action === 'retry') {
    log.warn({ code: codeOf(error), attempt: attemptsMade + 1 }, 'job failed; it is retried');
    return attempt.again(decision.afterMs, error);
  }
  if (mustWait) log.warn({ code: codeOf(error) }, 'service fails for every job; this job is retried later');
  return attempt.again(decision.afterMs);
}

const attributesOf = ({ id, runId, stream, lane, keys }: Batch, { attemptsMade }: Attempt) => ({
  'slotsync.run.id': runId,
  'slotsync.batch.id': id,
  'slotsync.stream': stream,
  'slotsync.lane': lane,
  'slotsync.records': keys.length,
  'slotsync.attempt': attemptsMade + 1,
});

const tracedBy = (traceparent: string | undefined) => (traceparent === undefined ? {} : { traceparent });

const SECOND = 1000;
/** Delay of a batch while another batch writes the same records, or while no batch can succeed. */
const DEFER_MS = 5 * SECOND;
/** Delay of a batch in the incremental lane, where latency counts. The other batch takes one or two requests. */
const DEFER_INCREMENTAL_MS = 250;

export interface FailedAttempt extends Pick<Attempt, 'attemptsMade' | 'attempts'> {
  error: unknown;
  lane?: string | undefined;
  /** True if the process is stopping and has interrupted the attempt. */
  isInterrupted?: boolean;
  /** True if the circuit breaker blames a cause outside the batch. Waiting then uses up no attempt. */
  mustWait?: boolean;
}

/**
 * Action after a failed attempt. `retry` uses up an attempt; `defer` and `return` (to the queue, for another process)
 * do not. `fail`: no attempt is left, or no attempt would succeed.
 */
type RetryDecision = { action: 'retry' | 'defer' | 'return'; afterMs: number } | { action: 'fail' };

/** Decides which action follows a failed attempt, and after which delay. */
export function decideRetry(failed: FailedAttempt, random: () => number = Math.random): RetryDecision {
  const { error, attemptsMade, lane, isInterrupted, mustWait, attempts = ATTEMPTS } = failed;
  if (isInterrupted) return { action: 'return', afterMs: 0 };
  if (mustWait) return { action: 'defer', afterMs: DEFER_MS };
  switch (dispositionOf(error)) {
    case 'defer':
      return { action: 'defer', afterMs: lane === 'incremental' ? DEFER_INCREMENTAL_MS : DEFER_MS };
    case 'dead':
      return { action: 'fail' };
    case 'retry':
      if (attemptsMade + 1 >= attempts) return { action: 'fail' };
      return { action: 'retry', afterMs: retryDelayMs(attemptsMade + 1, random) };
  }
}
