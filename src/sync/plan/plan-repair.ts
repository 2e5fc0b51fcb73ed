// The plan of a repair: the records of a stream whose objects drift, as a verify has written them down. Each is looked at
// once more before it is sent. How many there may be unasked is a limit of its own: all of them at once may mean that the
// service was restored from a backup, and not that its objects are wrong.
import { listRepairable } from '../../state/drift/read-drift.js';
import { countAccepted } from '../../state/records/read/count-records.js';
import type { PlanCounts } from '../../state/schema.js';
import { readStanding } from '../../state/streams.js';
import type { Stream } from '../../streams/stream.js';
import type { SyncDeps } from '../run/sync-deps.js';
import { collectBatches, collectLists, keysPerBatch, type PlanSink } from './planned-batches.js';
import { createLoadJudge } from './judge-load.js';
import { NOTHING_PLANNED } from './plan-lists.js';
import { weigh } from './plan-stream.js';

/** Records read at once. */
const AT_ONCE = 1000;

interface RepairRequest {
  runId: number;
  /** Only what was seen since this ISO time; undefined: all that drifts. */
  seenSince: string | undefined;
}

/** Plans the repair of one stream into the sink. Throws what state and sink throw. */
export async function planRepair(
  { state, mirror }: Pick<SyncDeps, 'state' | 'mirror'>,
  stream: Stream,
  { runId, seenSince }: RepairRequest,
  sink: PlanSink,
) {
  const { db } = state;
  const standing = await readStanding(db, stream.name);
  const judge = await createLoadJudge(db, stream);
  judge.note(await mirror.readLoad(stream));
  const load = judge.load();
  let repair = 0;
  const batches = collectBatches(keysPerBatch(stream), sink);
  const wishes = collectLists<string>(AT_ONCE, (keys) => sink.wish?.('repair', keys));
  for (let after: string | undefined; ;) {
    const block = await listRepairable(db, { stream: stream.name, seenSince }, after, AT_ONCE);
    for (const { localKey: key, isRetired } of block) {
      repair++;
      await wishes.add(key);
      await batches.add(isRetired ? 'repairRetire' : 'repair', { operation: 'repair', key });
    }
    const last = block.at(-1);
    if (!last || block.length < AT_ONCE) break;
    after = last.localKey;
  }
  await wishes.flush();
  await batches.flush();
  await sink.flush?.();

  const counts: PlanCounts = { create: 0, update: 0, retire: 0, unchanged: 0, retry: 0, dead: 0, repair };
  if (load?.problem) counts.staleLoad = load.problem;
  const merged = { accepted: await countAccepted(db, stream.name), rows: 1, deadRows: 0 };
  const planned = { ...NOTHING_PLANNED, repair, asked: 0, samples: [], formerStreams: {} };
  const request = { kind: 'repair', range: null, runId } as const;
  const decisions = await weigh({ state, mirror }, stream, request, {
    standing,
    merged,
    planned,
    keys: undefined,
    load,
  });
  return { counts, standing, keys: undefined, gone: 0, load: undefined, ...decisions };
}
