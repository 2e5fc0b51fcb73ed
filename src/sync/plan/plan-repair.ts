// The plan of a repair: the records of a stream whose objects drift, as a verify has written them down. Each is looked at
// once more before it is sent. How many there may be unasked is a limit of its own: all of them at once may mean that the
// service was restored from a backup, and not that its objects are wrong.
import { readMirrorChange } from '../../state/databases.js';
import { listRepairable, summarizeDrift } from '../../state/drift/read-drift.js';
import { countAccepted } from '../../state/records/read/count-records.js';
import type { UsedApproval } from '../../state/runs/approvals.js';
import type { Holds, PlanCounts } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import type { SyncDeps } from '../run/sync-deps.js';
import { toLoadFacts } from '../limits/load-age.js';
import { withoutAnyUnasked } from '../limits/mass-change-limits.js';
import { collectBatches, keysPerBatch, type PlanSink } from './batches.js';
import { createLoadJudge } from './judge-load.js';
import { weighOperation } from './weigh-operation.js';

/** Records read at once. */
const AT_ONCE = 1000;

interface RepairRequest {
  runId: number;
  /** Only what this verify has seen; undefined: all that drifts. */
  seenBy: number | undefined;
}

/** Plans the repair of one stream into the sink. Throws what state and sink throw. */
export async function planRepair(
  { state, mirror }: Pick<SyncDeps, 'state' | 'mirror'>,
  declared: Stream,
  { runId, seenBy }: RepairRequest,
  sink: PlanSink,
): Promise<{ counts: PlanCounts; holds: Holds[string]; approvals: UsedApproval[] }> {
  const { db } = state;
  const mirrorChange = await readMirrorChange(db, declared.name);
  const judge = await createLoadJudge(db, declared);
  judge.note(await mirror.readLoad(declared));
  const load = judge.load();
  const stream = mirrorChange || load?.holds ? withoutAnyUnasked(declared) : declared;
  const choice = { stream: stream.name, seenBy };
  let repair = 0;
  const batches = collectBatches(keysPerBatch(stream), sink);
  for (let after: string | undefined; ;) {
    const block = await listRepairable(db, choice, after, AT_ONCE);
    for (const { localKey: key, isRetired } of block) {
      repair++;
      await batches.add(isRetired ? 'repairRetire' : 'repair', { operation: 'repair', key });
    }
    const last = block.at(-1);
    if (!last || block.length < AT_ONCE) break;
    after = last.localKey;
  }
  await batches.flush();
  await sink.flush?.();

  const counts: PlanCounts = { create: 0, update: 0, retire: 0, unchanged: 0, retry: 0, dead: 0, repair };
  if (load?.problem) counts.staleLoad = load.problem;
  if (repair === 0) return { counts, holds: {}, approvals: [] };
  const accepted = await countAccepted(db, stream.name);
  const drift = await summarizeDrift(db, choice);
  const why = { mirrorChange: mirrorChange?.why, load: load?.holds ? toLoadFacts(load) : undefined };
  const facts = { operation: 'repair', count: repair, accepted, runId, ...why, drift } as const;
  const { hold, used } = await weighOperation({ state }, stream, facts, { sink });
  return { counts, holds: hold ? { repair: hold } : {}, approvals: used ? [used] : [] };
}
