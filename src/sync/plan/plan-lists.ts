// The lists of the plan of one stream. What the merge finds is collected, because mirror, state and service are asked about
// many keys at once; each list has a function that decides what becomes of its keys.
import type { Context } from '../../destination/client.js';
import { readLinks } from '../../state/records/links.js';
import type { RecordKey } from '../../state/records/outcome-types.js';
import { listRecordedStreams } from '../../state/records/read/count-records.js';
import { isWhole as isWholeRun } from '../../state/runs/read-runs.js';
import { countUnaskedWithinADay } from '../../state/sent.js';
import type { HeldSample, PlanCounts, RunKind, RunRange } from '../../state/schema.js';
import type { SharedExternalId } from '../../mirror/mirror.js';
import type { Stream } from '../../streams/stream.js';
import type { Decision } from '../object/decide-operation.js';
import { chooseDue, maySeeGone } from '../object/retire.js';
import { collectBatches, collectLists, keysPerBatch, type PlanSink } from './planned-batches.js';
import { createExistingObjectFinder, type ExistingObjectDeps } from './existing-objects.js';
import type { MergeCounts, PlanEntry, RefusedEntry, WriteEntry } from './merge-readings.js';
import { createMoves, type Takeover } from './moved-records.js';
import { explainRefusal } from './refused-rows.js';
import { MOST_COMPARED } from './renamed-rows.js';

/** Keys handed to the sink at once, and objects asked for. */
const KEYS_AT_ONCE = 1000;
/** Records kept field by field of those that would overwrite an object. */
const SAMPLES = 3;

export type PlanDeps = ExistingObjectDeps;

export interface PlanRequest {
  kind: RunKind;
  range: RunRange | null;
  /** Keys taken from the inbox; undefined: what the range selects. */
  keys?: readonly string[];
  /** Undefined for a preview. */
  runId?: number;
  /** Records that may still be written, over all streams of the run; used up here. `isShort`: some were left out. */
  room: { records: number; isShort?: boolean };
  /** For the questions to the service. */
  context: Context;
}

interface PlanFacts {
  request: PlanRequest;
  /** Undefined: the whole stream, or what its range selects. */
  keys: ReadonlySet<string> | undefined;
  shared: readonly SharedExternalId[];
}

export type PlanLists = ReturnType<typeof createPlanLists>;

export const NOTHING_PLANNED = {
  create: 0,
  update: 0,
  retire: 0,
  overwrite: 0,
  repair: 0,
  released: 0,
  moved: 0,
  gone: 0,
};

/** Plans into the sink. Errors are those of the readings and of the sink. */
export function createPlanLists(
  deps: PlanDeps,
  stream: Stream,
  { request, keys, shared }: PlanFacts,
  sink: PlanSink,
) {
  const { state } = deps;
  const { kind, range, room, runId } = request;
  const isIncremental = kind === 'incremental';
  const isWhole = isWholeRun(request);
  const seesGone = maySeeGone(request);
  const retires = stream.retire === 'deactivate';
  /** Records by what is planned for them. `gone`: their rows are gone, and the next whole sync retires them. */
  const planned = { ...NOTHING_PLANNED };
  /** Objects of streams that left the configuration, by stream, that rows of this one would take over. */
  const formerStreams: Record<string, number> = {};
  /** Rows that take an object over; `changed`: those of them that change it, which are updates. */
  const takenOver = { all: 0, changed: 0 };
  /** Records never accepted, about whose objects the service is asked or not; `equal`: the object is there as it should be. */
  const unaccepted = { asked: 0, unasked: 0, equal: 0 };
  /** The first records that would overwrite an object. */
  const samples: HeldSample[] = [];
  /** The first keys whose rows are gone, and the first of new rows: as many as are compared, and one more. */
  const compared = { gone: [] as string[], created: [] as string[] };
  /** Requests that a run sends to look for existing objects. */
  let questions = 0;

  const moves = createMoves(deps, stream, () => listRecordedStreams(state.db));
  const existingObjects = createExistingObjectFinder(deps, stream, request.context);
  const batches = collectBatches(keysPerBatch(stream, request.context.lane), sink);
  const lists = {
    refused: collectLists(KEYS_AT_ONCE, refuseRows),
    unaccepted: collectLists(KEYS_AT_ONCE, planUnaccepted),
    gone: collectLists(KEYS_AT_ONCE, planGone),
    kept: collectLists(KEYS_AT_ONCE, noteGone),
    back: collectLists<string>(KEYS_AT_ONCE, (found) => sink.noteRowsBack?.(found)),
    forgotten: collectLists<string>(KEYS_AT_ONCE, (found) => sink.forget?.(found)),
    abandoned: collectLists<string>(KEYS_AT_ONCE, (found) => sink.abandon?.(found)),
    forced: collectLists<string>(KEYS_AT_ONCE, (found) => sink.wish?.('forced', found)),
  };

  /** Writes, as long as the run has room for them. A retry is an update, or a create of what was never accepted. */
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
    planned.update++;
    await batches.add('update', entry);
  }

  /** Records of which the service has accepted nothing yet: each takes an object over, overwrites one or creates one. */
  async function planUnaccepted(entries: readonly WriteEntry[]): Promise<void> {
    const creates = entries.filter(({ operation }) => operation === 'create');
    const takeovers = await moves.findTakeovers(creates.map(({ key }) => key));
    const others = entries.flatMap(({ key }) => (takeovers.has(key) ? [] : key));
    const existing = await findExisting(others, entries.length < KEYS_AT_ONCE);
    for (const entry of entries) {
      const former = takeovers.get(entry.key);
      if (former) await planTakeover(entry, former);
      else await planCreate(entry, existing.get(entry.key));
    }
  }

  async function planTakeover(entry: WriteEntry, former: Takeover): Promise<void> {
    if (!deps.streams.has(former.stream)) {
      formerStreams[former.stream] = (formerStreams[former.stream] ?? 0) + 1;
      planned.overwrite++;
      unaccepted.asked++;
      return batches.add('overwrite', entry);
    }
    takenOver.all++;
    if (former.isChanged) {
      takenOver.changed++;
      planned.update++;
    }
    // A former record that comes into `gone` is counted there.
    const isGone =
      former.stream === stream.name && retires && seesGone && (keys?.has(former.localKey) ?? true);
    if (!isGone) planned.moved++;
    await batches.add(former.isChanged ? 'update' : 'unlimited', entry);
  }

  async function planCreate(entry: WriteEntry, existing: HeldSample | undefined): Promise<void> {
    if (entry.operation === 'create') addCompared(compared.created, [entry.key]);
    if (existing && existing.changes.length > 0) {
      planned.overwrite++;
      if (samples.length < SAMPLES) samples.push(existing);
      return batches.add('overwrite', entry);
    }
    if (existing) unaccepted.equal++;
    planned.create++;
    await batches.add('create', entry);
  }

  /**
   * The objects that exist for these records. A few of them are never held, whatever they overwrite, and are not asked about;
   * unless they come in parts, because what is overwritten counts over a day. `isRest`: no other list comes after this one.
   */
  async function findExisting(wanted: readonly string[], isRest: boolean) {
    if (wanted.length === 0) return new Map<string, HeldSample>();
    const areFew =
      isRest &&
      unaccepted.asked === 0 &&
      wanted.length + (await countUnaskedWithinADay(state.db, stream.name)) <= stream.limits.overwrite.count;
    const mayBeHeld = isIncremental || range !== null || !areFew;
    if (!mayBeHeld) unaccepted.unasked += wanted.length;
    // A preview shows what would be overwritten, also where a run does not ask.
    if (!mayBeHeld && runId !== undefined) return new Map<string, HeldSample>();
    unaccepted.asked += wanted.length;
    const existing = await existingObjects.find(wanted);
    if (mayBeHeld) questions = existingObjects.requests();
    return existing;
  }

  async function noteGone(keys: readonly string[]): Promise<void> {
    await sink.noteRowsGone?.(keys);
    addCompared(compared.gone, keys);
  }

  /** Records at the service whose rows are gone: another row has the object now, or it is retired. */
  async function planGone(found: readonly WriteEntry[]): Promise<void> {
    const moved = await moves.findMoved(found.map(({ key }) => key));
    planned.moved += moved.size;
    // The rows that take these objects over may not be among single keys.
    const isPlanned = (row: RecordKey) => row.stream === stream.name && keys?.has(row.localKey) === true;
    if (isIncremental) await sink.follow?.([...moved.values()].flat().filter((row) => !isPlanned(row)));
    const entries = found.filter(({ key }) => !moved.has(key));
    await noteGone(entries.map(({ key }) => key));
    for (const entry of await chooseDue(state, stream, entries)) {
      // A retirement that a whole sync has let go may be sent again: its object may have become active since.
      if (!isWhole && !entry.wasReleased) {
        planned.gone++;
        continue;
      }
      planned.retire++;
      if (entry.wasReleased) planned.released++;
      await batches.add(entry.wasReleased ? 'releasedRetire' : 'retire', entry);
    }
  }

  /** Rows that share their external id or have too long a key. A linked row does not use the id that it shares: it is sent. */
  async function refuseRows(entries: readonly RefusedEntry[]): Promise<void> {
    const sharing = entries.flatMap(({ key, sharedId }) => (sharedId === undefined ? [] : key));
    const links = await readLinks(state.db, stream.name, sharing);
    for (const { key, decision } of entries)
      if (links.has(key) && isWrite(decision)) await addWrite({ operation: decision, key });
    const unlinked = entries.filter(({ key }) => !links.has(key));
    await sink.refuse(unlinked.map((entry) => explainRefusal(entry, shared)));
  }

  return {
    /** Adds one difference to its list. */
    async add(entry: PlanEntry): Promise<void> {
      switch (entry.operation) {
        case 'retire':
          if (!seesGone) return undefined;
          if (retires) return lists.gone.add(entry);
          return entry.wasGone ? undefined : lists.kept.add(entry.key);
        case 'back':
          return lists.back.add(entry.key);
        case 'forget':
          // A partial run cannot tell whether a missing row is gone or only outside its range.
          return range === null ? lists.forgotten.add(entry.key) : undefined;
        case 'unsettled':
          return range === null && stream.retire === 'keep' ? lists.abandoned.add(entry.key) : undefined;
        case 'refuse': {
          // A row that is accepted and shares its external id now is reported by every run over the whole stream; a key that
          // is too long, once.
          const isNews = !entry.isSettled || (range === null && entry.sharedId !== undefined);
          return isNews ? lists.refused.add(entry) : undefined;
        }
        default:
          return addWrite(entry);
      }
    },

    /** Hands over what the lists still hold: refused rows may turn out to be writes, and all of them become batches. */
    async flush(): Promise<void> {
      for (const list of Object.values(lists)) await list.flush();
      await batches.flush();
      await sink.flush?.();
    },

    /** The counts of the plan; `merged` are those of the whole merge. */
    counts({ create, update, unchanged, retry, dead }: MergeCounts): PlanCounts {
      const { asked, unasked, equal } = unaccepted;
      const counts: PlanCounts = {
        create: create - takenOver.all,
        update: update + takenOver.changed,
        retire: planned.retire,
        unchanged,
        retry,
        dead,
        moved: Math.max(0, planned.moved - takenOver.changed),
        ...(planned.repair > 0 && { repair: planned.repair }),
      };
      if (unasked > 0) counts.unasked = unasked;
      if (equal + planned.overwrite > 0)
        Object.assign(counts, {
          new: asked - equal - planned.overwrite,
          equal,
          overwrite: planned.overwrite,
        });
      return counts;
    },

    /** The counts that the limits apply to. */
    limited: () => ({ ...planned, asked: unaccepted.asked, samples, formerStreams }),

    questions: () => questions,

    /** The keys of rows that may only have changed their key. */
    compared,
  };
}

function addCompared(list: string[], keys: readonly string[]): void {
  for (const key of keys.slice(0, MOST_COMPARED + 1 - list.length)) list.push(key);
}

const isWrite = (decision: Decision) =>
  decision === 'create' || decision === 'update' || decision === 'retry';
