// Plans records of which the service has accepted nothing yet. Each row takes over another record's object, overwrites
// an object that no record owns, or creates one.
import { countUnaskedWithinADay } from '../../state/sent.js';
import type { HeldSample } from '../../state/schema.js';
import { sends, type Stream } from '../../streams/stream.js';
import { maySeeGone } from '../object/retire.js';
import { KEYS_AT_ONCE, type collectBatches, type Planned, type PlanRequest } from './planned-batches.js';
import {
  createExistingObjectFinder,
  NONE_ASKED,
  type ExistingObjects,
  type PlanDeps,
} from './existing-objects.js';
import type { WriteEntry } from './merge-readings.js';
import type { createMoves, Takeover } from './moved-rows.js';

/** Number of overwrites for which a plan keeps the changes of each field. */
const SAMPLES = 3;

/** Plans creates as batches, and counts them in `planned`. */
export function createCreates(
  deps: PlanDeps,
  stream: Stream,
  {
    request,
    keys,
    planned,
    moves,
    batches,
    noteCreated,
    forget,
  }: {
    request: PlanRequest;
    keys: ReadonlySet<string> | undefined;
    planned: Planned;
    moves: ReturnType<typeof createMoves>;
    batches: ReturnType<typeof collectBatches>;
    /** Called with the keys of new rows. */
    noteCreated: (keys: readonly string[]) => void;
    /** Called with the key of a row whose create is excluded. Its record is deleted. */
    forget: (key: string) => Promise<void>;
  },
) {
  const existingObjects = createExistingObjectFinder(deps, stream, request.context);
  /** Number of objects that rows would take over from streams that left the configuration, by former stream. */
  const formerStreams: Record<string, number> = {};
  /** Number of rows that take over an object. `changed`: takeovers that change the object, and so count as updates. */
  const takenOver = { all: 0, changed: 0 };
  const [creates, updates] = [sends(stream, 'create'), sends(stream, 'update')];
  /** Writes that the stream's `operations` exclude. `taken`: changes of objects that rows take over. */
  const leftOut = { create: 0, retry: 0, taken: 0 };
  /** New rows whose objects may exist, in a stream without creates. They count as updates. */
  const found = { create: 0, retry: 0 };
  /** Number of records about which the service was asked or not. `equal`: their object exists and needs no change. */
  const counts = { asked: 0, unasked: 0, equal: 0 };
  const samples: HeldSample[] = [];
  /** Number of requests that a run sends to search for existing objects. */
  let questions = 0;

  async function planTakeover(entry: WriteEntry, former: Takeover): Promise<void> {
    if (!deps.streams.has(former.stream)) {
      formerStreams[former.stream] = (formerStreams[former.stream] ?? 0) + 1;
      planned.overwrite++;
      counts.asked++;
      return batches.add('overwrite', entry);
    }
    takenOver.all++;
    const isUpdate = former.isChanged && updates;
    if (isUpdate) {
      takenOver.changed++;
      planned.update++;
    } else if (former.isChanged) leftOut.taken++;
    // Counts the former record as moved, unless the plan of deleted rows will count it.
    const isGone =
      former.stream === stream.name &&
      stream.retire === 'deactivate' &&
      maySeeGone(request) &&
      (keys?.has(former.localKey) ?? true);
    if (!isGone) planned.moved++;
    await batches.add(isUpdate ? 'update' : 'unlimited', entry);
  }

  async function planCreate(entry: WriteEntry, { met, absent, owned }: ExistingObjects): Promise<void> {
    const operation = entry.operation === 'create' ? 'create' : 'retry';
    if (operation === 'create') noteCreated([entry.key]);
    const existing = met.get(entry.key);
    if (!creates && absent.has(entry.key)) {
      leftOut[operation]++;
      return forget(entry.key);
    }
    if (!updates && existing && existing.changes.length > 0) {
      // The batch records the existing object and leaves it unchanged.
      leftOut[operation]++;
      return batches.add('unlimited', entry);
    }
    if (!creates) found[operation]++;
    if (existing && existing.changes.length > 0) {
      planned.overwrite++;
      if (samples.length < SAMPLES) samples.push(existing);
      return batches.add('overwrite', entry);
    }
    if (existing) counts.equal++;
    const isUpdate = updates && owned.has(entry.key);
    const limited = creates ? 'create' : isUpdate ? 'update' : undefined;
    if (limited) planned[limited]++;
    await batches.add(limited ?? 'unlimited', entry);
  }

  /**
   * Returns the existing objects of these records. A few records are not searched for, because their overwrites stay
   * below the limit. Partial runs always search, because overwrites add up over a day. `isRest`: this is the last list.
   */
  async function findExisting(wanted: readonly string[], isRest: boolean): Promise<ExistingObjects> {
    if (wanted.length === 0) return NONE_ASKED;
    const areFew =
      isRest &&
      counts.asked === 0 &&
      wanted.length + (await countUnaskedWithinADay(deps.state.db, stream.name)) <=
        stream.limits.overwrite.count;
    const isDecided = !creates || !updates;
    const mayBeHeld = isDecided || request.kind === 'incremental' || request.range !== null || !areFew;
    if (!mayBeHeld) counts.unasked += wanted.length;
    // A preview shows overwrites even if a run would not search for them.
    if (!mayBeHeld && request.runId !== undefined) return NONE_ASKED;
    counts.asked += wanted.length;
    const existing = await existingObjects.find(wanted);
    if (mayBeHeld) questions = existingObjects.requests();
    return existing;
  }

  return {
    /** Plans one list of records. A list shorter than `KEYS_AT_ONCE` is the last. */
    async plan(entries: readonly WriteEntry[]): Promise<void> {
      const creates = entries.filter(({ operation }) => operation === 'create');
      const takeovers = await moves.findTakeovers(creates.map(({ key }) => key));
      const others = entries.flatMap(({ key }) => (takeovers.has(key) ? [] : key));
      const existing = await findExisting(others, entries.length < KEYS_AT_ONCE);
      for (const entry of entries) {
        const former = takeovers.get(entry.key);
        if (former) await planTakeover(entry, former);
        else await planCreate(entry, existing);
      }
    },

    takenOver,
    leftOut,
    found,
    counts,
    samples,
    formerStreams,
    questions: () => questions,
  };
}
