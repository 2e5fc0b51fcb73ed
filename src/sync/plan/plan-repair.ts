// The plan of a repair: the records of a stream whose objects drift, as a verify has written them down. Each is looked at
// once more before it is sent. How many there may be unasked is a limit of its own: all of them at once may mean that the
// service was restored from a backup, and not that its objects are wrong.
import { readMirrorChange } from '../../state/databases.js';
import { listRepairable, summarizeDrift, type DriftSummary } from '../../state/drift/read-drift.js';
import { countAccepted } from '../../state/records/count-records.js';
import type { UsedApproval } from '../../state/runs/approvals.js';
import type { Holds, PlanCounts } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import type { SyncDeps } from '../sync-deps.js';
import { describeMirrorChange, withoutAnyUnasked } from '../mass-change-limits.js';
import { keysPerBatch } from './keys-per-batch.js';
import type { WriteEntry } from './merge-readings.js';
import type { PlanSink } from './plan-stream.js';
import { weighOperation } from './weigh-operation.js';

/** Records read at once. */
const AT_ONCE = 1000;
/** From this share of the missing among the drifting on, a hold says what that looks like. */
const MOST = 0.5;

interface RepairRequest {
  runId: number;
  /** Only what this verify has seen; undefined: all that drifts. */
  seenBy: number | undefined;
}

/** Plans the repair of one stream into the sink. Throws what state and sink throw. */
export async function planRepair(
  { state }: Pick<SyncDeps, 'state'>,
  declared: Stream,
  { runId, seenBy }: RepairRequest,
  sink: PlanSink,
): Promise<{ counts: PlanCounts; holds: Holds[string]; approvals: UsedApproval[] }> {
  const { db } = state;
  const mirrorChange = await readMirrorChange(db, declared.name);
  const stream = mirrorChange ? withoutAnyUnasked(declared) : declared;
  const choice = { stream: stream.name, seenBy };
  const most = keysPerBatch(stream);
  let repair = 0;
  // Retirements come after all other writes, as in every run.
  const open = { writes: [] as WriteEntry[], retirements: [] as WriteEntry[] };
  const hand = async (name: keyof typeof open) => {
    const entries = open[name];
    open[name] = [];
    if (entries.length > 0) await sink.addBatch({ limit: 'repair', isLast: name === 'retirements', entries });
  };
  for (let after: string | undefined; ;) {
    const block = await listRepairable(db, choice, after, AT_ONCE);
    for (const { localKey: key, isRetired } of block) {
      repair++;
      const name = isRetired ? 'retirements' : 'writes';
      if (open[name].push({ operation: 'repair', key }) >= most) await hand(name);
    }
    const last = block.at(-1);
    if (!last || block.length < AT_ONCE) break;
    after = last.localKey;
  }
  await hand('writes');
  await hand('retirements');
  await sink.flush?.();

  const counts = { create: 0, update: 0, retire: 0, unchanged: 0, retry: 0, dead: 0, repair };
  if (repair === 0) return { counts, holds: {}, approvals: [] };
  const accepted = await countAccepted(db, stream.name);
  const looksLike = mirrorChange
    ? describeMirrorChange(mirrorChange)
    : describeSummary(await summarizeDrift(db, choice), accepted);
  const facts = { operation: 'repair', count: repair, accepted, runId, looksLike } as const;
  const { hold, used } = await weighOperation({ state }, stream, facts, { sink });
  return { counts, holds: hold ? { repair: hold } : {}, approvals: used ? [used] : [] };
}

/** What so much drift looks like; undefined: nothing in particular. */
function describeSummary(
  { total, missing, inactive, changed, commonField }: DriftSummary,
  accepted: number,
): string | undefined {
  if (missing > 0 && missing >= accepted)
    return `the service holds none of the ${accepted} objects: it may have been restored empty or from a backup`;
  if (missing >= total * MOST)
    return `the service lacks ${missing} of the ${accepted} objects: it may have been restored from a backup`;
  if (inactive === total)
    return `all ${total} objects that drift were made inactive at the service, perhaps on purpose`;
  if (changed === total && commonField !== null)
    return `all ${total} objects that drift differ in ${commonField}, perhaps because it was changed at the service on purpose`;
  return undefined;
}
