// Collects the differences of one stream in lists by operation, and plans each list when it is full. Lists save
// queries, because mirror, state and service are asked about many keys at once.
import type { SharedExternalId } from '../../mirror/mirror.js';
import { readLinks } from '../../state/records/links.js';
import type { RecordKey } from '../../state/records/outcome-types.js';
import { isWhole as isWholeRun } from '../../state/runs/read-runs.js';
import type { PlanCounts } from '../../state/schema.js';
import { MAX_ID_BYTES } from '../../streams/local-key.js';
import { sends, type Stream } from '../../streams/stream.js';
import type { Decision } from '../object/decide-operation.js';
import { chooseDue, maySeeGone } from '../object/retire.js';
import {
  collectBatches,
  collectLists,
  KEYS_AT_ONCE,
  keysPerBatch,
  NOTHING_PLANNED,
  type Planned,
  type PlanRequest,
  type PlanSink,
  type RefusedRow,
} from './planned-batches.js';
import type { PlanDeps } from './existing-objects.js';
import type { MergeCounts, PlanEntry, RefusedEntry, WriteEntry } from './merge-readings.js';
import { findMoved, MOST_COMPARED } from './moved-rows.js';
import { createCreates } from './plan-creates.js';

interface PlanFacts {
  request: PlanRequest;
  /** Keys to plan. If undefined, the run's range decides, or the whole stream is planned. */
  keys: ReadonlySet<string> | undefined;
  shared: readonly SharedExternalId[];
}

export type PlanLists = ReturnType<typeof createPlanLists>;

/** Plans differences into the sink. Throws errors of mirror, state, service and sink. */
export function createPlanLists(
  deps: PlanDeps,
  stream: Stream,
  { request, keys, shared }: PlanFacts,
  sink: PlanSink,
) {
  const { state } = deps;
  const { range, room } = request;
  const isIncremental = request.kind === 'incremental';
  const isWhole = isWholeRun(request);
  const seesGone = maySeeGone(request);
  const retires = stream.retire === 'deactivate';
  const planned: Planned = { ...NOTHING_PLANNED };
  /**
   * The first keys whose rows are gone. Keeps one more than the maximum that is compared with new rows, to detect that
   * there are too many.
   */
  const firstGone: string[] = [];

  const batches = collectBatches(keysPerBatch(stream, request.context.lane), sink);
  const forgotten = collectLists<string>(KEYS_AT_ONCE, (found) => sink.forget?.(found));
  const creates = createCreates(deps, stream, { request, keys }, { planned, batches, forgotten });
  const updates = sends(stream, 'update');
  /** Number of updates that `operations` exclude, but that a batch settles because their record is not in sync. */
  let unsent = 0;
  const lists = {
    refused: collectLists(KEYS_AT_ONCE, refuseRows),
    unaccepted: collectLists(KEYS_AT_ONCE, creates.plan),
    gone: collectLists(KEYS_AT_ONCE, planGone),
    kept: collectLists(KEYS_AT_ONCE, noteGone),
    back: collectLists<string>(KEYS_AT_ONCE, (found) => sink.noteRowsBack?.(found)),
    forgotten,
    abandoned: collectLists<string>(KEYS_AT_ONCE, (found) => sink.abandon?.(found)),
    forced: collectLists<string>(KEYS_AT_ONCE, (found) => sink.wish?.('forced', found)),
  };

  /** Plans a write, unless `--limit` is reached. A retry counts as an update, or as a create if never accepted. */
  async function addWrite(entry: WriteEntry): Promise<void> {
    if (room.records <= 0) {
      room.isShort = true;
      return;
    }
    room.records--;
    const { operation } = entry;
    if (entry.isForced) await lists.forced.add(entry.key);
    if (operation === 'create' || entry.isNew) return lists.unaccepted.add(entry);
    if (entry.isCheck) return batches.add('unlimited', entry);
    if (operation === 'repair') {
      planned.repair++;
      return batches.add(entry.isRetired ? 'repairRetire' : 'repair', entry);
    }
    if (!updates) {
      if (operation === 'update') unsent++;
      return batches.add('unlimited', entry);
    }
    planned.update++;
    await batches.add('update', entry);
  }

  async function noteGone(keys: readonly string[]): Promise<void> {
    await sink.noteRowsGone?.(keys);
    for (const key of keys.slice(0, MOST_COMPARED + 1 - firstGone.length)) firstGone.push(key);
  }

  /** Plans records whose rows were deleted. Their objects are deactivated, unless other rows have them now. */
  async function planGone(found: readonly WriteEntry[]): Promise<void> {
    const moved = await findMoved(
      deps,
      stream,
      found.map(({ key }) => key),
    );
    planned.moved += moved.size;
    // Rows that take over an object but are not among the run's keys go to the inbox.
    const isPlanned = (row: RecordKey) => row.stream === stream.name && keys?.has(row.localKey) === true;
    if (isIncremental) await sink.follow?.([...moved.values()].flat().filter((row) => !isPlanned(row)));
    const entries = found.filter(({ key }) => !moved.has(key));
    await noteGone(entries.map(({ key }) => key));
    for (const entry of await chooseDue(state, stream, entries)) {
      // A released deactivation may be sent by any run. Only a whole sync plans a new one.
      if (!isWhole && !entry.wasReleased) {
        planned.gone++;
        continue;
      }
      planned.retire++;
      if (entry.wasReleased) planned.released++;
      await batches.add(entry.wasReleased ? 'releasedRetire' : 'retire', entry);
    }
  }

  /** Refuses rows with a shared external id or too long a key. A linked row does not use the shared id: it is sent. */
  async function refuseRows(entries: readonly RefusedEntry[]): Promise<void> {
    const sharing = entries.flatMap(({ key, sharedId }) => (sharedId === undefined ? [] : key));
    const links = await readLinks(state.db, stream.name, sharing);
    for (const { key, decision } of entries)
      if (links.has(key) && isWrite(decision)) await addWrite({ operation: decision, key });
    const unlinked = entries.filter(({ key }) => !links.has(key));
    await sink.refuse(unlinked.map((entry) => explainRefusal(entry, shared)));
  }

  return {
    async add(entry: PlanEntry): Promise<void> {
      switch (entry.operation) {
        case 'retire':
          if (!seesGone) return undefined;
          if (retires) return lists.gone.add(entry);
          return entry.wasGone ? undefined : lists.kept.add(entry.key);
        case 'back':
          return lists.back.add(entry.key);
        case 'forget':
          // In a run over a range, a missing row may be outside the range instead of deleted.
          return range === null ? lists.forgotten.add(entry.key) : undefined;
        case 'unsettled':
          return range === null && stream.retire === 'keep' ? lists.abandoned.add(entry.key) : undefined;
        case 'refuse': {
          // A whole run reports an unchanged row with a shared external id each time. A key that is too long is
          // reported once.
          const isNews = !entry.isSettled || (range === null && entry.sharedId !== undefined);
          return isNews ? lists.refused.add(entry) : undefined;
        }
        default:
          return addWrite(entry);
      }
    },

    /** Plans what remains in the lists. Refused rows come first, because some turn out to be writes. */
    async flush(): Promise<void> {
      for (const list of Object.values(lists)) await list.flush();
      await batches.flush();
      await sink.flush?.();
    },

    /** Returns the counts of the plan. `merged`: the counts that the merge returned. */
    counts: (merged: MergeCounts): PlanCounts => countPlan(planned, creates, merged, unsent),

    /** Returns the numbers of records to compare with the limits. */
    limited: () => ({
      ...planned,
      asked: creates.counts.asked,
      samples: creates.samples,
      formerStreams: creates.formerStreams,
    }),

    questions: creates.questions,
    typeObjects: creates.typeObjects,

    /** Keys of deleted and new rows, from which rows with a changed key are detected. */
    compared: { gone: firstGone, created: creates.firstCreated },
  };
}

function countPlan(
  planned: Planned,
  { counts: { asked, unasked, equal }, takenOver, leftOut, found }: ReturnType<typeof createCreates>,
  { create, update, unchanged, retry, dead, left_out = 0, excepted = 0 }: MergeCounts,
  unsent: number,
): PlanCounts {
  const { overwrite } = planned;
  const left = left_out + leftOut.create + leftOut.retry + leftOut.taken + unsent;
  return {
    create: create - takenOver.all - leftOut.create - found.create,
    update: update + takenOver.changed + found.create - unsent,
    retire: planned.retire,
    unchanged,
    retry: retry - leftOut.retry,
    dead,
    ...(left > 0 && { left_out: left }),
    ...(excepted > 0 && { excepted }),
    moved: Math.max(0, planned.moved - takenOver.changed),
    ...(planned.repair > 0 && { repair: planned.repair }),
    ...(unasked > 0 && { unasked }),
    ...(equal + overwrite > 0 && { new: asked - equal - overwrite, equal, overwrite }),
  };
}

const isWrite = (decision: Decision) =>
  decision === 'create' || decision === 'update' || decision === 'retry';

/** Explains why a row is refused. `shared`: list of shared external ids, in which `sharedId` is an index. */
export function explainRefusal(
  { key, hash, sharedId }: RefusedEntry,
  shared: readonly SharedExternalId[],
): RefusedRow {
  const sharing = sharedId === undefined ? undefined : shared[sharedId];
  if (sharing) {
    const { externalId } = sharing;
    return { key, code: 'external_id_shared', externalId, message: explainSharedId(sharing, key) };
  }
  const message = `its key is longer than ${MAX_ID_BYTES} bytes`;
  return { key, code: 'key_too_long', message, deadHash: hash };
}

/** Maximum number of other rows that the message names. */
const NAMED = 5;

/**
 * Returns external ids that several rows have. None of these rows is sent. A linked row does not use its template's id, so it
 * does not count. A batch checks its own rows again (`findSharedInBatch` of apply/prepare.ts), because rows may have changed
 * since the plan.
 */
export async function readSharedIds(
  { mirror, state }: Pick<PlanDeps, 'mirror' | 'state'>,
  stream: Stream,
): Promise<SharedExternalId[]> {
  const shared = await mirror.findSharedExternalIds(stream);
  const links = await readLinks(
    state.db,
    stream.name,
    shared.flatMap(({ keys }) => keys),
  );
  return shared.flatMap(({ externalId, count, keys }) => {
    const unlinked = keys.filter((key) => !links.has(key));
    const left = count - (keys.length - unlinked.length);
    return left > 1 ? [{ externalId, count: left, keys: unlinked }] : [];
  });
}

/** Explains why a row is not sent: other rows have the same external id. */
function explainSharedId({ externalId, count, keys }: SharedExternalId, key: string): string {
  const others = keys.filter((other) => other !== key).slice(0, NAMED);
  const more = count - 1 - others.length;
  const unnamed = more <= 0 ? '' : ` and ${more} more ${more === 1 ? 'row' : 'rows'}`;
  return `external id '${externalId}' is also that of ${others.join(', ')}${unnamed}`;
}
