// Records of which the service has accepted nothing yet: each takes an object of another record over, overwrites one that is
// nobody's record, or creates one.
import { countUnaskedWithinADay } from '../../state/sent.js';
import type { HeldSample } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import { maySeeGone } from '../object/retire.js';
import { KEYS_AT_ONCE, type collectBatches, type Planned, type PlanRequest } from './planned-batches.js';
import { createExistingObjectFinder, type PlanDeps } from './existing-objects.js';
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
  }: {
    request: PlanRequest;
    keys: ReadonlySet<string> | undefined;
    planned: Planned;
    moves: ReturnType<typeof createMoves>;
    batches: ReturnType<typeof collectBatches>;
    /** Gets the keys of new rows. */
    noteCreated: (keys: readonly string[]) => void;
  },
) {
  const existingObjects = createExistingObjectFinder(deps, stream, request.context);
  /** Objects of streams that left the configuration, by stream, that rows of this one would take over. */
  const formerStreams: Record<string, number> = {};
  /** Rows that take an object over; `changed`: those of them that change it, which are updates. */
  const takenOver = { all: 0, changed: 0 };
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
    if (former.isChanged) {
      takenOver.changed++;
      planned.update++;
    }
    // The plan of rows that are gone counts the former record, if it meets it.
    const isGone =
      former.stream === stream.name &&
      stream.retire === 'deactivate' &&
      maySeeGone(request) &&
      (keys?.has(former.localKey) ?? true);
    if (!isGone) planned.moved++;
    await batches.add(former.isChanged ? 'update' : 'unlimited', entry);
  }

  async function planCreate(entry: WriteEntry, existing: HeldSample | undefined): Promise<void> {
    if (entry.operation === 'create') noteCreated([entry.key]);
    if (existing && existing.changes.length > 0) {
      planned.overwrite++;
      if (samples.length < SAMPLES) samples.push(existing);
      return batches.add('overwrite', entry);
    }
    if (existing) counts.equal++;
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
      counts.asked === 0 &&
      wanted.length + (await countUnaskedWithinADay(deps.state.db, stream.name)) <=
        stream.limits.overwrite.count;
    const mayBeHeld = request.kind === 'incremental' || request.range !== null || !areFew;
    if (!mayBeHeld) counts.unasked += wanted.length;
    // A preview shows what would be overwritten, also where a run does not ask.
    if (!mayBeHeld && request.runId !== undefined) return new Map<string, HeldSample>();
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
        else await planCreate(entry, existing.get(entry.key));
      }
    },

    takenOver,
    counts,
    samples,
    formerStreams,
    questions: () => questions,
  };
}
