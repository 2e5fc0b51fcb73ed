// Executes runs that only read: `reconcile`, and `verify` without repair. They need no batches and no queue. One
// process does all the work, and only one such run of a kind exists at a time. An interrupted run is started again.
import { codeOf, reasonOf, SlotsyncError } from '../../errors/errors.js';
import { createStoppable, repeat, type Stoppable } from '../../process/lifecycle.js';
import type { Logger } from '../../process/logger.js';
import { inSpan } from '../../process/tracing.js';
import type { State } from '../../state/database.js';
import { failRun, finishRun } from '../../state/runs/end-run.js';
import { readRun } from '../../state/runs/read-runs.js';
import {
  alreadyRunning,
  dropReading,
  startReading,
  whileReadingAlone,
} from '../../state/runs/reconcile-and-verify-runs.js';
import type { SyncDeps } from './sync-deps.js';

type ReadingRequest = Parameters<typeof startReading>[1];

/** Executes the work. Throws `reconcile_running` or `verify_running` if another process works on such a run. */
export async function readAlone<T>(
  state: State,
  kind: ReadingRequest['kind'],
  work: () => Promise<T>,
): Promise<T> {
  const alone = await whileReadingAlone(state, kind, work);
  if (alone) return alone.result;
  throw await alreadyRunning(state, kind);
}

/** The run, as passed to the function that does its work. */
export interface ReadingRun {
  id: number;
  /** Throws `run_cancelled` if an operator has cancelled the run. */
  requireUnended: () => Promise<void>;
}

/**
 * Executes work as a run. Needs the lock of the run's kind. If the work returns 'nothing', the run is deleted. If it
 * throws, the run fails, and the error is thrown again.
 */
export async function workReading<T>(
  { state: { db }, destination, log }: Pick<SyncDeps, 'state' | 'destination' | 'log'>,
  request: ReadingRequest,
  signal: AbortSignal | undefined,
  work: (run: ReadingRun) => Promise<T>,
): Promise<{ runId: number; result: T; requests: number }> {
  const { kind, lane, startedBy } = request;
  const requestsBefore = destination.requests();
  const id = await startReading(db, request);
  const requireUnended = async () => {
    const run = await readRun(db, id);
    if (!run || run.finishedAt) throw new SlotsyncError('run_cancelled', `run ${id} was cancelled`);
  };
  const attributes = {
    'slotsync.run.id': id,
    'slotsync.run.kind': kind,
    'slotsync.run.started_by': startedBy,
    'slotsync.lane': lane,
  };
  try {
    const result = await inSpan('run', attributes, () => work({ id, requireUnended }));
    await (result === 'nothing' ? dropReading : finishRun)(db, id);
    return { runId: id, result, requests: destination.requests() - requestsBefore };
  } catch (error) {
    const reason = signal?.aborted
      ? { code: 'interrupted', message: 'the process was stopped' }
      : reasonOf(error);
    await failRun(db, id, reason);
    log.warn({ runId: id, kind, code: reason.code }, 'reading ended early');
    throw error;
  }
}

/** Calls `read` repeatedly until stopped. A stop aborts a call in progress. Errors are logged and retried. */
export function readPeriodically(
  kind: ReadingRequest['kind'],
  log: Logger,
  { everyMs, afterFailureMs = everyMs }: { everyMs: number; afterFailureMs?: number },
  read: (stopping: AbortSignal) => Promise<unknown>,
): Stoppable {
  const { stopping, stop, abort } = createStoppable(kind, log, () => loop.ended);
  const round = async () => {
    try {
      await read(stopping);
      return everyMs;
    } catch (error) {
      if (!stopping.aborted) log.warn({ code: codeOf(error) }, `${kind} failed; it is retried`);
      return afterFailureMs;
    }
  };
  const loop = repeat(round, { everyMs, signal: stopping, onError: () => undefined });
  return { stop, abort };
}
