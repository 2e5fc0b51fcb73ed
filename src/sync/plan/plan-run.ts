// A run from its request to its batches. Planning writes nothing but batches, and only once every stream was
// read to its end do the first of them go out; an interrupted planning starts again from nothing.
import type { Lane } from '../../destination/quota/limiter.js';
import { codeOf, dispositionOf, messageWithDetail } from '../../errors.js';
import type { Logger } from '../../logger.js';
import { noMeter, type Meter } from '../../meter.js';
import type { Mirror } from '../../mirror/mirror.js';
import type { State } from '../../state/database.js';
import { readTakenKeys } from '../../state/inbox/take-changes.js';
import { countAccepted } from '../../state/records/count-records.js';
import { failRecords } from '../../state/records/fail-records.js';
import { NO_OUTCOMES } from '../../state/records/outcomes.js';
import { pruneRuns } from '../../state/retention.js';
import { finishPlanning } from '../../state/runs/advance-run.js';
import { readOpenApprovals } from '../../state/runs/approvals.js';
import { countRetiringToday, deleteBatches, insertBatches } from '../../state/runs/batches.js';
import { failRun } from '../../state/runs/end-run.js';
import { readRun, type Run } from '../../state/runs/read-runs.js';
import { LIMITED_OPERATIONS, type Holds, type PlanCounts } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import { createBatchWriter, type BatchWriter } from './write-batches.js';
import { explainHold, hasLimit } from './limits.js';
import type { MergeCounts } from './merge-readings.js';
import { explainSharedIds, planStream, toPlanCounts, type Part } from './plan-stream.js';
import type { Preflight } from './preflight.js';

export interface RunDeps {
  mirror: Mirror;
  state: State;
  streams: ReadonlyMap<string, Stream>;
  log: Logger;
  preflight: Preflight;
  meter?: Meter;
  /** Credentials that are refused are waited for, rather than ending the run. */
  waitForCredentials?: boolean;
}

/** An incremental run takes the service's word for its types and fields for this long. Milliseconds. */
const NAMES_KNOWN_FOR = 60 * 60 * 1000;
/** There may be many incremental runs, and each prunes nothing much. */
const PRUNE_EVERY = 500;

/**
 * Plans a run: its batches become rows, and the run is ready to be advanced. A permanent error ends the run with that
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

interface Planned {
  plan: Record<string, PlanCounts>;
  holds: Holds;
  /** Ids of approvals that lift what would be held otherwise. */
  approvals: number[];
  /** Batches that send something, held ones included. */
  batches: number;
}

async function planStreams(deps: RunDeps, run: Run, signal: AbortSignal | undefined): Promise<Planned> {
  const planned: Planned = { plan: {}, holds: {}, approvals: [], batches: 0 };
  const streams = namedStreams(deps, run);
  const retireLevel = Math.max(0, ...streams.map(({ level }) => level)) + 1;
  const room = { keys: run.range?.limit ?? Infinity };
  for (const stream of streams) {
    signal?.throwIfAborted();
    const log = deps.log.child({ stream: stream.name });
    try {
      await planOne(deps, run, stream, { retireLevel, room, planned });
      log.info({ ...planned.plan[stream.name] }, 'stream planned');
    } catch (error) {
      if (dispositionOf(error) !== 'dead') throw error;
      // One unreadable source does not keep the others from going: it fails alone, with nothing of it sent.
      await deps.state.db.transaction(async (tx) => {
        await deleteBatches(tx, run.id, stream.name);
        const failed = { runId: run.id, stream: stream.name, level: stream.level, state: 'failed' } as const;
        const reason = {
          errorCode: codeOf(error),
          errorMessage: `${stream.name}: ${messageWithDetail(error)}`,
        };
        await insertBatches(tx, [
          { ...failed, keys: [], counts: NO_OUTCOMES, finishedAt: new Date(), ...reason },
        ]);
      });
      log.error({ code: codeOf(error) }, 'stream failed while planning');
    }
  }
  return planned;
}

interface Planning {
  retireLevel: number;
  room: { keys: number };
  planned: Planned;
}

async function planOne(
  deps: RunDeps,
  run: Run,
  stream: Stream,
  { retireLevel, room, planned }: Planning,
): Promise<void> {
  const { mirror, state } = deps;
  const part = await partOf(deps, run, stream);
  const byKeys = part.selection.keys !== undefined;
  // A few keys are not worth reading the whole source; what they share with others is found before they are sent.
  const shared = byKeys
    ? new Map<string, { externalId: string; message: string }>()
    : explainSharedIds(await mirror.findSharedExternalIds(stream));
  const writer = createBatchWriter(state, stream, { runId: run.id, retireLevel, room });
  const differences = planStream({ mirror, state }, stream, part);
  const met: typeof shared = new Map();

  let step = await differences.next();
  for (; !step.done; step = await differences.next()) {
    const { operation, key } = step.value;
    if (operation === 'retire') {
      if (stream.retire === 'deactivate' && mayRetire(run)) await writer.retire(step.value);
    } else if (operation === 'back') {
      await writer.reset(key);
    } else if (operation === 'forget') {
      if (run.range === null) await writer.forget(key);
    } else {
      const fault = shared.get(key);
      if (fault) met.set(key, fault);
      else await writer.write(operation, key);
    }
  }
  const counts = step.value;
  await writer.flush();
  // Of a part, only what lies in it is told: the rest is another run's.
  const failing = run.range === null ? shared : met;
  if (failing.size > 0) await failShared(deps, run, stream, failing);
  planned.plan[stream.name] = toPlanCounts(counts, writer.counts.retire);
  planned.batches += writer.batches();
  await applyLimits(deps, run, stream, { counts, writer, planned, byKeys });
}

/** Only whole readings, and keys that are asked for one by one, tell that a row is gone for good. */
function mayRetire({ kind, range }: Run): boolean {
  return range === null && kind !== 'backfill';
}

async function partOf({ state }: RunDeps, run: Run, stream: Stream): Promise<Part> {
  if (run.kind === 'incremental') {
    return { selection: { keys: await readTakenKeys(state.db, run.id, stream.name) }, isForced: false };
  }
  const { keys, from, to, where, force = false } = run.range ?? {};
  return { selection: { keys, from, to, where }, isForced: force };
}

/** Two rows of one external id: neither is sent. */
async function failShared(
  { state: { db }, meter = noMeter }: RunDeps,
  run: Run,
  stream: Stream,
  shared: ReadonlyMap<string, { externalId: string; message: string }>,
): Promise<void> {
  const failures = [...shared].map(([localKey, { externalId, message }]) => ({
    localKey,
    externalId,
    message,
    code: 'external_id_shared',
  }));
  await failRecords(db, stream.name, run.id, failures);
  const batch = { runId: run.id, stream: stream.name, level: stream.level, keys: [...shared.keys()] };
  const counts = { ...NO_OUTCOMES, failed: shared.size };
  await insertBatches(db, [{ ...batch, state: 'done', counts, finishedAt: new Date() }]);
  meter.settled(stream.name, counts);
}

/** Lets go what is within the limits or approved; the rest stays held, with the reason. */
async function applyLimits(
  { mirror, state }: RunDeps,
  run: Run,
  stream: Stream,
  read: { counts: MergeCounts; writer: BatchWriter; planned: Planned; byKeys: boolean },
): Promise<void> {
  const { counts, writer, planned, byKeys } = read;
  const operations = LIMITED_OPERATIONS.filter(
    (operation) => hasLimit(stream, operation) && writer.counts[operation] > 0,
  );
  if (operations.length === 0) return;
  const isIncremental = run.kind === 'incremental';
  // An approval is given for what a whole reading found: single changes must not use it up.
  const approvals = isIncremental ? new Map<never, never>() : await readOpenApprovals(state.db, stream.name);
  for (const operation of operations) {
    const retires = operation === 'retire';
    const approval = approvals.get(operation);
    const facts = {
      operation,
      count: writer.counts[operation],
      passed: retires ? writer.passed() : 0,
      accepted: byKeys ? await countAccepted(state.db, stream.name) : counts.accepted,
      isEmpty: retires && (byKeys ? await mirror.isEmpty(stream) : counts.rows === 0),
      earlier: retires && isIncremental ? await countRetiringToday(state.db, stream.name, run.id) : 0,
      runId: run.id,
    };
    const unapproved = explainHold(stream, facts);
    const hold = unapproved && explainHold(stream, { ...facts, allowed: approval?.allowed });
    if (hold) {
      planned.holds[stream.name] = { ...planned.holds[stream.name], [operation]: hold };
    } else {
      await writer.letGo(operation);
      if (unapproved && approval) planned.approvals.push(approval.id);
    }
  }
}
