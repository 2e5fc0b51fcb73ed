// Records of which the service has accepted nothing yet: each takes an object of another record over, overwrites one that is
// nobody's record, or creates one.
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

/** Records kept field by field of those that would overwrite an object. */
const SAMPLES = 3;

/** Plans creates into the batches, and counts them in `planned`. */
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
    /** Gets the keys of new rows. */
    noteCreated: (keys: readonly string[]) => void;
    /** Gets the keys of rows whose creates are left out: no record of theirs is kept. */
    forget: (key: string) => Promise<void>;
  },
) {
  const existingObjects = createExistingObjectFinder(deps, stream, request.context);
  /** Objects of streams that left the configuration, by stream, that rows of this one would take over. */
  const formerStreams: Record<string, number> = {};
  /** Rows that take an object over; `changed`: those of them that change it, which are updates. */
  const takenOver = { all: 0, changed: 0 };
  const [creates, updates] = [sends(stream, 'create'), sends(stream, 'update')];
  /** Writes that the operations of the stream leave out. `taken`: changes of objects that rows take over. */
  const leftOut = { create: 0, retry: 0, taken: 0 };
  /** New rows of a stream without creates whose objects may be there: they are updates. */
  const found = { create: 0, retry: 0 };
  /** Records about whose objects the service is asked or not; `equal`: the object is there as it should be. */
  const counts = { asked: 0, unasked: 0, equal: 0 };
  /** The first records that would overwrite an object. */
  const samples: HeldSample[] = [];
  /** Requests that a run sends to look for existing objects. */
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
    // The plan of rows that are gone counts the former record, if it meets it.
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
      // The batch notes the object, and leaves it as it is.
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
   * The objects that exist for these records. A few of them are never held, whatever they overwrite, and are not asked about;
   * unless they come in parts, because what is overwritten counts over a day. `isRest`: no other list comes after this one.
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
    // A preview shows what would be overwritten, also where a run does not ask.
    if (!mayBeHeld && request.runId !== undefined) return NONE_ASKED;
    counts.asked += wanted.length;
    const existing = await existingObjects.find(wanted);
    if (mayBeHeld) questions = existingObjects.requests();
    return existing;
  }

  return {
    /** Plans a list of records; one that is shorter than `KEYS_AT_ONCE` is the last. */
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
