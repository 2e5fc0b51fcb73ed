// The plan of one stream: what differs between mirror and state, in batches, weighed against the stream's limits. A run
// and a preview plan through this one function, so that they cannot disagree; a sink says what becomes of the batches.
import { readMirrorChange, type MirrorChange } from '../../state/databases.js';
import type { SeenLoad } from '../../state/freshness.js';
import { readPlanMarks } from '../../state/records/read/plan-marks.js';
import { countAccepted } from '../../state/records/read/count-records.js';
import type { UsedApproval } from '../../state/runs/approvals.js';
import {
  LIMITED_OPERATIONS,
  type HeldSample,
  type Hold,
  type LimitedOperation,
  type PlanCounts,
} from '../../state/schema.js';
import { shortenKey } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import { hasLimit, withoutAnyUnasked, type LimitFacts } from '../limits/mass-change-limits.js';
import { toLoadFacts } from '../limits/load-age.js';
import { explainRetirementHold } from '../object/retire.js';
import { requireLookups } from '../run/current-streams.js';
import type { PlanSink } from './batches.js';
import { createLoadJudge } from './judge-load.js';
import { mergeReadings, type MergeCounts } from './merge-readings.js';
import { createPlanLists, type PlanDeps, type PlanLists, type PlanRequest } from './plan-lists.js';
import { readSharedIds } from './refused-rows.js';
import { findRenamed } from './renamed-rows.js';
import { weighOperation } from './weigh-operation.js';

/** Plans one stream into the sink. Throws what the readings and the sink throw; then the sink holds only a part. */
export function planStream(deps: PlanDeps, stream: Stream, request: PlanRequest, sink: PlanSink) {
  const plan = () => planWithinTurn(deps, stream, request, sink);
  return (request.keys ?? request.range?.keys) ? plan() : deps.mirror.takeTurn(plan);
}

async function planWithinTurn(deps: PlanDeps, declared: Stream, request: PlanRequest, sink: PlanSink) {
  requireLookups(declared);
  const { mirror, state } = deps;
  const { from, to, where, force = false } = request.range ?? {};
  const keys = (request.keys ?? request.range?.keys)?.map(shortenKey);
  // A few keys are not worth reading the whole source; what they share with others is found before they are sent.
  const [shared, judge, mirrorChange] = await Promise.all([
    keys ? [] : readSharedIds(deps, declared),
    createLoadJudge(state.db, declared),
    readMirrorChange(state.db, declared.name),
  ]);
  const readings = mergeReadings(
    mirror.readHashes(
      declared,
      { keys, from, to, where },
      { shared: shared.map(({ externalId }) => externalId), noteLoad: judge.note },
    ),
    readPlanMarks(state, declared.name, keys),
    force,
  );
  const openLists = () => {
    // Its data may be older than what was sent: nothing of it is sent unasked.
    const isDoubtful = mirrorChange !== undefined || judge.load()?.holds === true;
    const stream = isDoubtful ? withoutAnyUnasked(declared) : declared;
    const facts = { request, keys: keys && new Set(keys), shared, isDoubtful };
    return { stream, lists: createPlanLists(deps, stream, facts, sink) };
  };
  const { merged, stream, lists } = await mergeInto(openLists, readings);
  await lists.flush();
  const renamed = await findRenamed(deps, stream, lists.compared);
  if (renamed.length > 0) await sink.noteRenamed?.(renamed);
  const planned = lists.limited();
  const load = judge.load();
  const read = { merged, planned, keys, mirrorChange, load };
  const weighed = await weighLimits(deps, stream, request, read, sink);
  const counts: PlanCounts = lists.counts(merged);
  if (load?.problem) counts.staleLoad = load.problem;
  return { counts, questions: lists.questions(), renamed, mirrorChange, load, ...weighed };
}

/** Adds every difference to its list, which are opened when the readings have begun; returns them, and the counts of the merge. */
async function mergeInto<Opened extends { lists: Pick<PlanLists, 'add'> }>(
  openLists: () => Opened,
  differences: ReturnType<typeof mergeReadings>,
): Promise<Opened & { merged: MergeCounts }> {
  try {
    let step = await differences.next();
    const opened = openLists();
    for (; !step.done; step = await differences.next()) await opened.lists.add(step.value);
    return { ...opened, merged: step.value };
  } finally {
    // A plan that stops in the middle must end its readings: each holds one of the few connections.
    await differences.return(NO_COUNTS);
  }
}

/** Releases what is within the limits or approved; the rest stays held, with the reason. */
async function weighLimits(
  { mirror, state }: Pick<PlanDeps, 'mirror' | 'state'>,
  stream: Stream,
  { kind, runId }: PlanRequest,
  read: {
    merged: MergeCounts;
    planned: Record<LimitedOperation | 'released' | 'asked', number> & { samples: HeldSample[] };
    keys: readonly string[] | undefined;
    mirrorChange: MirrorChange | undefined;
    load: SeenLoad | undefined;
  },
  sink: PlanSink,
) {
  const { merged, planned, keys, mirrorChange, load } = read;
  const holds: Partial<Record<LimitedOperation, Hold>> = {};
  /** Approvals that lift what would be held otherwise. */
  const approvals: UsedApproval[] = [];
  const operations = LIMITED_OPERATIONS.filter(
    (operation) => hasLimit(stream, operation) && planned[operation] > 0,
  );
  if (operations.length === 0) return { holds, approvals };
  const accepted = keys === undefined ? merged.accepted : await countAccepted(state.db, stream.name);
  for (const operation of operations) {
    const facts: LimitFacts = {
      operation,
      count: planned[operation],
      accepted,
      runId,
      mirrorChange: mirrorChange?.why,
      load: load?.holds ? toLoadFacts(load) : undefined,
    };
    if (operation === 'overwrite') facts.accepted = planned.asked;
    const weighing: Parameters<typeof weighOperation>[3] = { sink, isIncremental: kind === 'incremental' };
    if (operation === 'retire') {
      facts.released = planned.released;
      const isSourceEmpty = merged.rows === 0 && (keys === undefined || (await mirror.isEmpty(stream)));
      weighing.explain = (of, weighed) => explainRetirementHold(of, { ...weighed, isSourceEmpty });
    }
    const { hold, used } = await weighOperation({ state }, stream, facts, weighing);
    if (hold) holds[operation] = operation === 'overwrite' ? { ...hold, samples: planned.samples } : hold;
    if (used) approvals.push(used);
  }
  return { holds, approvals };
}

/** In place of the counts of a reading that was stopped. */
const NO_COUNTS = {} as MergeCounts;
