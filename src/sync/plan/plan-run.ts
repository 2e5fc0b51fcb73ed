// Plans a run: from its request to its batches. Planning writes nothing but batches, and none is sent before every
// stream was read to its end; an interrupted planning starts again from nothing.
import type { Lane } from '../../destination/quota/limiter.js';
import { codeOf, dispositionOf, messageWithDetail } from '../../errors.js';
import { noMeter } from '../../meter.js';
import { readTakenKeys } from '../../state/inbox/take-changes.js';
import { NO_OUTCOMES } from '../../state/records/outcome-types.js';
import { deleteBatches, insertBatches, type NewBatch } from '../../state/runs/batches.js';
import { failRun } from '../../state/runs/end-run.js';
import { finishPlanning } from '../../state/runs/advance-run.js';
import { pruneRuns } from '../../state/retention.js';
import { readRun, type Run } from '../../state/runs/read-runs.js';
import type { Holds, PlanCounts } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import type { SyncDeps } from '../sync-deps.js';
import { planStream } from './plan-stream.js';
import type { Preflight } from './preflight.js';
import { createBatchWriter } from './write-batches.js';

interface RunDeps extends SyncDeps {
  preflight: Preflight;
  /** Refused credentials are waited for, instead of ending the run. */
  waitForCredentials?: boolean;
}

/** For how long an incremental run does not ask again which types and fields the service knows. Milliseconds. */
const NAMES_KNOWN_FOR = 60 * 60 * 1000;
/** There may be many incremental runs: only every so many of them prunes. */
const PRUNE_EVERY = 500;

/**
 * Plans a run: its batches become rows, and the run may then be advanced. A permanent error ends the run with its
 * reason; one that may pass is thrown, to be tried again.
 */
export async function planRun(deps: RunDeps, runId: number, signal?: AbortSignal): Promise<void> {
  const { state, log } = deps;
  const run = await readRun(state.db, runId);
  if (run?.status !== 'planning' || run.pausedAt) return;
  try {
    await deleteBatches(state.db, runId);
    const planned = await planStreams(deps, run, signal);
    if (planned.batches > 0) {
      const streams = namedStreams(deps, run);
      const knownForMs = run.kind === 'incremental' ? NAMES_KNOWN_FOR : 0;
      await deps.preflight.requireKnownNames(streams, { lane: run.lane as Lane, signal }, knownForMs);
    }
    await finishPlanning(state.db, runId, planned);
    log.info({ batches: planned.batches }, 'run planned');
    if (run.kind !== 'incremental' || run.id % PRUNE_EVERY === 0) await pruneRuns(state.db);
  } catch (error) {
    if (dispositionOf(error) !== 'dead' || (deps.waitForCredentials && codeOf(error) === 'unauthorized'))
      throw error;
    await failRun(state.db, runId, { code: codeOf(error), message: messageWithDetail(error) });
    log.error({ code: codeOf(error) }, 'run failed while planning');
  }
}

function namedStreams({ streams }: RunDeps, run: Run): Stream[] {
  return [...streams.values()].filter(({ name }) => run.streams.includes(name));
}

async function planStreams(deps: RunDeps, run: Run, signal: AbortSignal | undefined) {
  const { state, meter = noMeter } = deps;
  const { id: runId, kind, range } = run;
  const plan: Record<string, PlanCounts> = {};
  const holds: Holds = {};
  const approvals: number[] = [];
  /** Batches that send something, held ones included. */
  let batches = 0;
  const streams = namedStreams(deps, run);
  const retireLevel = Math.max(0, ...streams.map(({ level }) => level)) + 1;
  const room = { records: range?.limit ?? Infinity };
  for (const stream of streams) {
    signal?.throwIfAborted();
    const log = deps.log.child({ stream: stream.name });
    try {
      const writer = createBatchWriter(state, stream, { runId, retireLevel, meter });
      const keys = kind === 'incremental' && { keys: await readTakenKeys(state.db, runId, stream.name) };
      const request = { kind, range, runId, room, ...keys };
      const planned = await planStream(deps, stream, request, writer.sink);
      plan[stream.name] = planned.counts;
      batches += writer.batches();
      approvals.push(...planned.approvals);
      if (Object.keys(planned.holds).length > 0) holds[stream.name] = planned.holds;
      log.info({ ...planned.counts }, 'stream planned');
    } catch (error) {
      if (dispositionOf(error) !== 'dead') throw error;
      // One unreadable source does not stop the others: it fails alone, and nothing of it is sent.
      const failed: NewBatch = {
        runId,
        stream: stream.name,
        level: stream.level,
        state: 'failed',
        keys: [],
        counts: NO_OUTCOMES,
        finishedAt: new Date(),
        errorCode: codeOf(error),
        errorMessage: `${stream.name}: ${messageWithDetail(error)}`,
      };
      await state.db.transaction(async (tx) => {
        await deleteBatches(tx, runId, stream.name);
        await insertBatches(tx, [failed]);
      });
      log.error({ code: codeOf(error) }, 'stream failed while planning');
    }
  }
  return { plan, holds, approvals, batches };
}
