// Plans one stream: compares mirror and state, passes batches to a sink, and decides which operations may be sent. Runs
// and previews use the same function with different sinks, so they cannot disagree.
import type { LoadReading } from '../../mirror/mirror.js';
import { readClock, type Queries } from '../../state/database.js';
import { listRepairable, summarizeDrift } from '../../state/drift.js';
import { readLoad, type SeenLoad, readStanding, type StreamStanding } from '../../state/streams.js';
import { digestPlanned } from '../../state/gates/held.js';
import { readPlanMarks } from '../../state/records/read/plan-marks.js';
import { countAccepted } from '../../state/records/read/count-records.js';
import { isWhole as isWholeRun } from '../../state/runs/read-runs.js';
import { LIMITED_OPERATIONS, type Hold, type LimitedOperation, type PlanCounts } from '../../state/schema.js';
import { listFrozen } from '../../state/freezes.js';
import { countWithinADay } from '../../state/sent.js';
import { shortenKey } from '../../streams/local-key.js';
import { sends, type Stream } from '../../streams/stream.js';
import { decide, findApproval, type Weighed } from '../limits/decide.js';
import { judgeLoad, toLoadFacts } from '../limits/load-age.js';
import { maySeeGone } from '../object/retire.js';
import { requireLookups } from '../run/current-streams.js';
import type { SyncDeps } from '../run/sync-deps.js';
import {
  collectBatches,
  collectLists,
  KEYS_AT_ONCE,
  keysPerBatch,
  NOTHING_PLANNED,
  type PlanRequest,
  type PlanSink,
} from './planned-batches.js';
import type { PlanDeps } from './existing-objects.js';
import { mergeReadings, type MergeCounts } from './merge-readings.js';
import { findRenamed } from './moved-rows.js';
import { createPlanLists, readSharedIds, type PlanLists } from './plan-lists.js';

/** Plans one stream into the sink. Throws errors of mirror, state, service and sink. The sink is then incomplete. */
export function planStream(deps: PlanDeps, stream: Stream, request: PlanRequest, sink: PlanSink) {
  const plan = () => planWithinTurn(deps, stream, request, sink);
  return (request.keys ?? request.range?.keys) ? plan() : deps.mirror.takeTurn(plan);
}

async function planWithinTurn(deps: PlanDeps, stream: Stream, request: PlanRequest, sink: PlanSink) {
  requireLookups(stream);
  const { mirror, state } = deps;
  const { from, to, where, force = false } = request.range ?? {};
  const keys = (request.keys ?? request.range?.keys)?.map(shortenKey);
  // For a few keys, the whole source is not searched for shared external ids. Batches detect these before sending.
  const [shared, judge, standing] = await Promise.all([
    keys ? [] : readSharedIds(deps, stream),
    createLoadJudge(state.db, stream),
    readStanding(state.db, stream.name),
  ]);
  const lists = createPlanLists(deps, stream, { request, keys: keys && new Set(keys), shared }, sink);
  const merged = await mergeReadings(
    mirror.readHashes(
      stream,
      { keys, from, to, where },
      { shared: shared.map(({ externalId }) => externalId), noteLoad: judge.note },
    ),
    readPlanMarks(state, stream.name, keys),
    lists.add,
    { isForced: force, sendsUpdates: sends(stream, 'update'), excepted: new Set(standing.excepted) },
  );
  await lists.flush();
  // The digest of the planned keys is computed from the stored batches, so all batches must be stored.
  if (standing.gates.some(({ allowedDigest }) => allowedDigest !== null)) await sink.flush?.(true);
  const renamed = await findRenamed(deps, stream, lists.compared);
  if (renamed.length > 0) await sink.noteRenamed?.(renamed);
  const load = judge.load();
  const planned = lists.limited();
  const decisions = await weigh(deps, stream, request, { standing, merged, planned, keys, load });
  const counts: PlanCounts = lists.counts(merged);
  if (load?.problem) counts.staleLoad = load.problem;
  const { gone } = planned;
  const kept = stream.retire === 'keep' && maySeeGone(request) ? merged.retire : 0;
  const read = { load, standing, keys, gone, kept, typeObjects: lists.typeObjects };
  return { counts, questions: lists.questions(), renamed, ...read, ...decisions };
}

/**
 * Plans the repair of a stream: sends objects again that a verify found to differ, since the ISO time `seenSince` if it is set.
 * Batches read each object once more before they write. Repairs have a limit of their own: if many objects differ, the service may
 * have been restored from a backup. Throws errors of state and sink.
 */
export async function planRepair(
  { state, mirror }: Pick<SyncDeps, 'state' | 'mirror'>,
  stream: Stream,
  { runId, seenSince }: { runId: number; seenSince: string | undefined },
  sink: PlanSink,
) {
  const { db } = state;
  const standing = await readStanding(db, stream.name);
  const judge = await createLoadJudge(db, stream);
  judge.note(await mirror.readLoad(stream));
  const load = judge.load();
  let repair = 0;
  let leftOut = 0;
  let excepted = 0;
  const exceptions = new Set(standing.excepted);
  const batches = collectBatches(keysPerBatch(stream), sink);
  const wishes = collectLists<string>(KEYS_AT_ONCE, (keys) => sink.wish?.('repair', keys));
  for (let after: string | undefined; ;) {
    const block = await listRepairable(db, { stream: stream.name, seenSince }, after, KEYS_AT_ONCE);
    for (const { localKey: key, isRetired, kind } of block) {
      if (exceptions.has(key)) {
        excepted++;
        continue;
      }
      if (!sends(stream, isRetired ? 'retire' : kind === 'missing' ? 'create' : 'update')) {
        leftOut++;
        continue;
      }
      repair++;
      await wishes.add(key);
      await batches.add(isRetired ? 'repairRetire' : 'repair', { operation: 'repair', key });
    }
    const last = block.at(-1);
    if (!last || block.length < KEYS_AT_ONCE) break;
    after = last.localKey;
  }
  await wishes.flush();
  await batches.flush();
  await sink.flush?.();

  const counts: PlanCounts = { create: 0, update: 0, retire: 0, unchanged: 0, retry: 0, dead: 0, repair };
  if (leftOut > 0) counts.left_out = leftOut;
  if (excepted > 0) counts.excepted = excepted;
  if (load?.problem) counts.staleLoad = load.problem;
  const keys = undefined;
  const merged = { accepted: await countAccepted(db, stream.name), rows: 1, deadRows: 0 };
  const planned = { ...NOTHING_PLANNED, repair, asked: 0, samples: [], formerStreams: {} };
  const request = { kind: 'repair', range: null, runId } as const;
  const read = { standing, merged, planned, keys, load };
  const decisions = await weigh({ state, mirror }, stream, request, read);
  return { counts, standing, keys, gone: 0, load: undefined, ...decisions };
}

/**
 * Judges how old a stream's load is. Reads the previously noted load first, so that a load arriving in between counts
 * as newer.
 */
async function createLoadJudge(db: Queries, { name, freshness }: Pick<Stream, 'name' | 'freshness'>) {
  const before = freshness && { noted: await readLoad(db, name), now: await readClock(db) };
  let load: SeenLoad | undefined;
  return {
    note(reading: LoadReading | undefined): void {
      if (freshness && before && reading) load = judgeLoad(freshness, reading, before);
    },
    /** Returns the judged load. Undefined if the configuration sets no maximum age, or no age was read. */
    load: () => load,
  };
}

/** Decisions about the operations of a plan: which records gates hold, and which approvals remain. */
interface PlanDecisions {
  /** Held records by operation. A gate of all operations is listed under its reason. */
  holds: Record<string, Hold>;
  /** Operations with an approval that this plan could not use. These approvals remain. */
  unused: LimitedOperation[];
  /** Operations whose records do not count towards later limits. */
  exempt: LimitedOperation[];
}

/** Decides for each operation of a plan or repair whether its records may be sent. */
async function weigh(
  { mirror, state }: Pick<PlanDeps, 'mirror' | 'state'>,
  stream: Stream,
  request: Pick<PlanRequest, 'kind' | 'range' | 'runId'>,
  read: {
    standing: StreamStanding;
    merged: Pick<MergeCounts, 'accepted' | 'rows' | 'deadRows'>;
    planned: ReturnType<PlanLists['limited']>;
    keys: readonly string[] | undefined;
    load: SeenLoad | undefined;
  },
): Promise<PlanDecisions> {
  const { standing, merged, planned, keys, load } = read;
  const { db } = state;
  const { runId = 0 } = request;
  const decisions: PlanDecisions = { holds: {}, unused: [], exempt: [] };
  const operations = LIMITED_OPERATIONS.filter((operation) => planned[operation] > 0);
  const isDoubtful = standing.mirrorChange !== null || load?.holds === true;
  const isWeighed = (operation: LimitedOperation) =>
    isDoubtful ||
    standing.frozen !== null ||
    standing.gates.length > 0 ||
    standing.refusals !== null ||
    stream.limits[operation] !== undefined;
  if (!operations.some(isWeighed)) {
    if (planned.create > 0 && merged.accepted === 0 && keys === undefined) decisions.exempt.push('create');
    return decisions;
  }
  const accepted = keys === undefined ? merged.accepted : await countAccepted(db, stream.name);
  // Decides about deactivations last, because they must wait if other operations are held.
  const isLast = (operation: LimitedOperation) => Number(operation === 'retire');
  for (const operation of operations.toSorted((a, b) => isLast(a) - isLast(b))) {
    const part = { stream: stream.name, operation, runId };
    const isExactly = (findApproval(standing.gates, operation)?.digest ?? null) !== null;
    const weighed: Omit<Weighed, 'earlier'> = {
      operation,
      count: planned[operation],
      accepted: operation === 'overwrite' ? planned.asked : accepted,
      isWhole: isWholeRun(request),
      standing,
      load: load?.holds ? toLoadFacts(load) : undefined,
      ...(isExactly && { digest: await digestPlanned(db, part) }),
    };
    if (operation === 'retire') {
      weighed.released = planned.released;
      weighed.isSourceEmpty = merged.rows === 0 && (keys === undefined || (await mirror.isEmpty(stream)));
      weighed.hasUnsentWrites = merged.deadRows > 0 || Object.keys(decisions.holds).length > 0;
    }
    if (operation === 'overwrite') {
      weighed.formerStreams = planned.formerStreams;
      weighed.isFormerFrozen = (await listFrozen(db, Object.keys(planned.formerStreams))).length > 0;
    }
    if (operation === 'repair') weighed.drift = await summarizeDrift(db, { stream: stream.name });
    // Decides first without what was sent within a day: a limit is the only reason that depends on it.
    let verdict = decide(stream, { ...weighed, earlier: 0 });
    if (stream.limits[operation] !== undefined && (verdict.send || verdict.facts.limit))
      // Then with the cheap count, which may count a key several times. Only if it is too much, with the exact one.
      for (const isExact of [false, true]) {
        verdict = decide(stream, { ...weighed, earlier: await countWithinADay(db, part, { isExact }) });
        if (verdict.send) break;
      }
    if (verdict.send) {
      if (verdict.isExempt) decisions.exempt.push(operation);
      continue;
    }
    const { gate, facts, keepsApproval } = verdict;
    if (keepsApproval) decisions.unused.push(operation);
    const name = gate.operation === '*' ? gate.reason : gate.operation;
    const count = planned[operation] + (decisions.holds[name]?.count ?? 0);
    const { samples } = planned;
    const hasSamples = operation === 'overwrite' && samples.length > 0;
    decisions.holds[name] = { ...gate, facts, count, ...(hasSamples && { samples }) };
  }
  return decisions;
}
