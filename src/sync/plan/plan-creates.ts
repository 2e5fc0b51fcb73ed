// Plans rows whose objects the service has never accepted. A row takes over another record's object, overwrites an
// object without a record, or creates an object.
import { readLinks } from '../../state/records/links.js';
import { countUnaskedWithinADay } from '../../state/sent.js';
import type { HeldSample } from '../../state/schema.js';
import { sends, type Stream } from '../../streams/stream.js';
import { maySeeGone } from '../object/retire.js';
import {
  KEYS_AT_ONCE,
  type collectBatches,
  type collectLists,
  type Planned,
  type PlanRequest,
} from './planned-batches.js';
import {
  createExistingObjectFinder,
  NONE_ASKED,
  type ExistingObjects,
  type PlanDeps,
} from './existing-objects.js';
import type { WriteEntry } from './merge-readings.js';
import { createTakeoverFinder, MOST_COMPARED, type Takeover } from './moved-rows.js';

/** Number of overwrites whose changed fields are kept as examples. */
const SAMPLES = 3;

/** The lists of a plan that get what becomes of its creates. */
interface Collected {
  planned: Planned;
  batches: Pick<ReturnType<typeof collectBatches>, 'add'>;
  /** Keys of rows whose creates are left out: no record of theirs is kept. */
  forgotten: Pick<ReturnType<typeof collectLists<string>>, 'add'>;
}

export function createCreates(
  deps: PlanDeps,
  stream: Stream,
  { request, keys }: { request: PlanRequest; keys: ReadonlySet<string> | undefined },
  { planned, batches, forgotten }: Collected,
) {
  const findTakeovers = createTakeoverFinder(deps, stream);
  const existingObjects = createExistingObjectFinder(deps, stream, request.context);
  /** Number of objects to take over from streams that left the configuration, by stream. */
  const formerStreams: Record<string, number> = {};
  /** Number of rows that take over an object. `changed`: rows that also change the object, counted as updates. */
  const takenOver = { all: 0, changed: 0 };
  const [creates, updates] = [sends(stream, 'create'), sends(stream, 'update')];
  /** Number of writes that `operations` exclude. `taken`: rows that take over an object and would change it. */
  const leftOut = { create: 0, retry: 0, taken: 0 };
  /** Number of new rows that count as updates: linked rows, and rows of a stream without creates whose objects may exist. */
  const found = { create: 0, retry: 0 };
  /** Numbers of creates. `asked`: searched for at the service. `equal`: the existing object needs no change. */
  const counts = { asked: 0, unasked: 0, equal: 0 };
  /** The first keys of new rows: as many as are compared with rows that are gone, and one more. */
  const firstCreated: string[] = [];
  const samples: HeldSample[] = [];
  /** Number of search requests that a run sends for the plan. */
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
    // Counts the move here, unless the plan of deleted rows finds the former record and counts it.
    const isGone =
      former.stream === stream.name &&
      stream.retire === 'deactivate' &&
      maySeeGone(request) &&
      (keys?.has(former.localKey) ?? true);
    if (!isGone) planned.moved++;
    await batches.add(isUpdate ? 'update' : 'unlimited', entry);
  }

  async function planCreate(
    entry: WriteEntry,
    { met, absent, owned }: ExistingObjects,
    isLinked: boolean,
  ): Promise<void> {
    const operation = entry.operation === 'create' ? 'create' : 'retry';
    if (operation === 'create' && firstCreated.length <= MOST_COMPARED) firstCreated.push(entry.key);
    const existing = met.get(entry.key);
    if (!creates && absent.has(entry.key)) {
      leftOut[operation]++;
      return forgotten.add(entry.key);
    }
    if (!updates && existing && existing.changes.length > 0) {
      // The object exists, but `operations` exclude updates. The batch only records its owner.
      leftOut[operation]++;
      return batches.add('unlimited', entry);
    }
    if (!creates || isLinked) found[operation]++;
    if (existing && existing.changes.length > 0) {
      planned.overwrite++;
      if (samples.length < SAMPLES) samples.push(existing);
      return batches.add('overwrite', entry);
    }
    if (existing) counts.equal++;
    const isUpdate = updates && owned.has(entry.key);
    const limited = creates ? 'create' : isUpdate ? 'update' : undefined;
    if (limited) planned[limited]++;
    const updated = { ...entry, operation: 'update', isNew: true } as const;
    await batches.add(limited ?? 'unlimited', isLinked && operation === 'create' ? updated : entry);
  }

  /**
   * Searches for existing objects that these creates would overwrite. If the plan has only few creates, it does not
   * search, because their overwrites would stay below the limit. A run over a part of the stream always searches,
   * because the overwrites of several runs add up over a day. `isRest`: this is the last list of the plan.
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
    // A run skips the search. A preview (without `runId`) searches nevertheless, to show overwrites.
    if (!mayBeHeld && request.runId !== undefined) return NONE_ASKED;
    counts.asked += wanted.length;
    const existing = await existingObjects.find(wanted);
    if (mayBeHeld) questions = existingObjects.requests();
    return existing;
  }

  return {
    /** Plans a list of creates. A list shorter than `KEYS_AT_ONCE` is the last one. */
    async plan(entries: readonly WriteEntry[]): Promise<void> {
      const creates = entries.filter(({ operation }) => operation === 'create');
      const takeovers = await findTakeovers(creates.map(({ key }) => key));
      const others = entries.flatMap(({ key }) => (takeovers.has(key) ? [] : key));
      const existing = await findExisting(others, entries.length < KEYS_AT_ONCE);
      const links = await readLinks(deps.state.db, stream.name, others);
      for (const entry of entries) {
        const former = takeovers.get(entry.key);
        if (former) await planTakeover(entry, former);
        else await planCreate(entry, existing, links.has(entry.key));
      }
    },

    takenOver,
    leftOut,
    found,
    counts,
    firstCreated,
    samples,
    formerStreams,
    questions: () => questions,
    typeObjects: existingObjects.type,
  };
}
