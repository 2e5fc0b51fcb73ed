// A run from its request to its batches. Planning writes nothing but batches, and only once every stream was
// read to its end do the first of them go out; an interrupted planning starts again from nothing.
import type { Destination } from '../destination/destination.js';
import type { Lane } from '../destination/quota/limiter.js';
import { codeOf, dispositionOf, fullMessageOf } from '../errors.js';
import type { Logger } from '../logger.js';
import type { Mirror } from '../mirror/mirror.js';
import { deleteBatches, insertBatches, setBatchStates, type NewBatch } from '../state/batches.js';
import type { State } from '../state/database.js';
import { NO_OUTCOMES } from '../state/outcomes.js';
import { failRecords, forgetRecords } from '../state/records.js';
import { failRun, finishPlanning, pruneRuns, readRun, type Run } from '../state/runs.js';
import type { PlanCounts } from '../state/schema.js';
import type { Stream } from '../streams/streams.js';
import { explainHold, explainSharedIds, planStream, toPlanCounts } from './plan.js';
import { requireKnownNames } from './preflight.js';

export interface RunDeps {
  mirror: Mirror;
  destination: Destination;
  state: State;
  streams: ReadonlyMap<string, Stream>;
  log: Logger;
  /** Credentials that are refused are waited for, rather than ending the run. */
  patient?: boolean;
}

/** Batch rows written in one statement. */
const ROWS_AT_ONCE = 200;

/**
 * Plans a run: its batches become rows, and those that may go first are returned to be queued. A fault that only a
 * person can mend ends the run with that reason; one that may pass is thrown, to be tried again.
 */
export async function planRun(
  deps: RunDeps,
  runId: number,
  signal?: AbortSignal,
): Promise<{ queue: number[] }> {
  const { state, log } = deps;
  const run = await readRun(state.db, runId);
  if (run?.status !== 'planning') return { queue: [] };
  try {
    await deleteBatches(state.db, runId);
    const planned = await planStreams(deps, run, signal);
    if (planned.writes > 0) {
      const streams = namedStreams(deps, run);
      await requireKnownNames(deps.destination, streams, { lane: run.lane as Lane, signal });
    }
    const queue = await finishPlanning(state.db, runId, planned);
    log.info({ batches: planned.writes }, 'run planned');
    await pruneRuns(state.db);
    return { queue };
  } catch (error) {
    if (dispositionOf(error) !== 'dead' || (deps.patient && codeOf(error) === 'unauthorized')) throw error;
    await failRun(state.db, runId, { code: codeOf(error), message: fullMessageOf(error) });
    log.error({ code: codeOf(error) }, 'run failed while planning');
    return { queue: [] };
  }
}

function namedStreams({ streams }: RunDeps, run: Run): Stream[] {
  return [...streams.values()].filter(({ name }) => run.streams.includes(name));
}

interface Planned {
  plan: Record<string, PlanCounts>;
  holds: Record<string, string>;
  /** Batches that send something. */
  writes: number;
}

async function planStreams(deps: RunDeps, run: Run, signal: AbortSignal | undefined): Promise<Planned> {
  const planned: Planned = { plan: {}, holds: {}, writes: 0 };
  const streams = namedStreams(deps, run);
  const retireLevel = Math.max(...streams.map(({ level }) => level)) + 1;
  for (const stream of streams) {
    signal?.throwIfAborted();
    const log = deps.log.child({ stream: stream.name });
    try {
      await planOne(deps, run, stream, retireLevel, planned);
      log.info({ ...planned.plan[stream.name] }, 'stream planned');
    } catch (error) {
      if (dispositionOf(error) !== 'dead') throw error;
      // One unreadable source does not keep the others from going: it fails alone, with nothing of it sent.
      await deps.state.db.transaction(async (tx) => {
        await deleteBatches(tx, run.id, stream.name);
        const failed = {
          runId: run.id,
          stream: stream.name,
          level: stream.level,
          keys: [],
          state: 'failed',
        } as const;
        const reason = { errorCode: codeOf(error), errorMessage: `${stream.name}: ${fullMessageOf(error)}` };
        await insertBatches(tx, [
          { ...failed, keys: [], counts: NO_OUTCOMES, finishedAt: new Date(), ...reason },
        ]);
      });
      log.error({ code: codeOf(error) }, 'stream failed while planning');
    }
  }
  return planned;
}

async function planOne(
  deps: RunDeps,
  run: Run,
  stream: Stream,
  retireLevel: number,
  planned: Planned,
): Promise<void> {
  const { mirror, state } = deps;
  const shared = explainSharedIds(await mirror.findSharedExternalIds(stream));
  const writer = createBatchWriter(state, stream, run, retireLevel);
  const differences = planStream({ mirror, state }, stream);

  let step = await differences.next();
  for (; !step.done; step = await differences.next()) {
    const { operation, key } = step.value;
    if (operation === 'forget') await writer.forget(key);
    else if (operation === 'retire') await writer.retire(key);
    else if (!shared.has(key)) await writer.write(key);
  }
  const counts = step.value;
  await writer.flush();

  if (shared.size > 0) {
    const failures = [...shared].map(([localKey, { externalId, message }]) => ({
      localKey,
      externalId,
      message,
      code: 'external_id_shared',
    }));
    const batch = { runId: run.id, stream: stream.name, level: stream.level, keys: [...shared.keys()] };
    await failRecords(state.db, stream.name, run.id, failures);
    const counted = { ...NO_OUTCOMES, failed: shared.size };
    await insertBatches(state.db, [{ ...batch, state: 'done', counts: counted, finishedAt: new Date() }]);
  }
  planned.plan[stream.name] = toPlanCounts(stream, counts);
  planned.writes += writer.writes();
  if (stream.retire !== 'deactivate' || counts.retire === 0) return;
  const hold = explainHold(stream, counts);
  if (hold === undefined) {
    const which = { runId: run.id, stream: stream.name, retires: true, from: 'held', to: 'planned' } as const;
    await setBatchStates(state.db, which);
  } else {
    planned.holds[stream.name] = hold;
  }
}

/** Collects keys into batches of the stream's size, and batches into statements. Retirements start out held. */
function createBatchWriter({ db }: State, stream: Stream, run: Run, retireLevel: number) {
  const base = { runId: run.id, stream: stream.name };
  let writing: string[] = [];
  let retiring: string[] = [];
  let forgetting: string[] = [];
  let rows: NewBatch[] = [];
  let writes = 0;

  async function add(batch: NewBatch): Promise<void> {
    writes++;
    rows.push(batch);
    if (rows.length >= ROWS_AT_ONCE) await insert();
  }
  async function insert(): Promise<void> {
    await insertBatches(db, rows);
    rows = [];
  }
  async function closeWriting(): Promise<void> {
    if (writing.length > 0) await add({ ...base, level: stream.level, keys: writing, state: 'planned' });
    writing = [];
  }
  async function closeRetiring(): Promise<void> {
    if (retiring.length > 0)
      await add({ ...base, level: retireLevel, keys: retiring, state: 'held', retires: true });
    retiring = [];
  }
  async function closeForgetting(): Promise<void> {
    if (forgetting.length > 0) await forgetRecords(db, stream.name, forgetting);
    forgetting = [];
  }
  return {
    async write(key: string): Promise<void> {
      if (writing.push(key) >= stream.batchSize) await closeWriting();
    },
    async retire(key: string): Promise<void> {
      if (stream.retire === 'keep') return;
      if (retiring.push(key) >= stream.batchSize) await closeRetiring();
    },
    async forget(key: string): Promise<void> {
      if (forgetting.push(key) >= 1000) await closeForgetting();
    },
    async flush(): Promise<void> {
      await closeWriting();
      await closeRetiring();
      await closeForgetting();
      await insert();
    },
    writes: () => writes,
  };
}
