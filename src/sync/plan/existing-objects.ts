// Objects that the rows of a plan meet at the service: made by hand, by another integration, or by this program whose state is
// lost. What people keep there is not overwritten unasked, so the service is asked about every create before it is planned.
import type { Context } from '../../destination/client.js';
import type { Destination, FoundObject, ServiceObject, Unreadable } from '../../destination/destination.js';
import type { SlotsyncError } from '../../errors/errors.js';
import type { Link } from '../../state/records/links.js';
import { readOwners } from '../../state/records/read/owners.js';
import type { HeldSample } from '../../state/schema.js';
import type { DestinationObject } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import { findMeant, matchValue, type MatchDeps, type Meant } from '../identity/match-candidates.js';
import { differencesOf } from '../object/compare-objects.js';
import { renderWithParents } from '../object/render.js';

type TypeDestination = Pick<
  Destination,
  | 'findObjects'
  | 'findObjectsByNumber'
  | 'countObjects'
  | 'listObjects'
  | 'pageSize'
  | 'patches'
  | 'canChangeTypes'
>;

export interface PlanDeps extends MatchDeps {
  destination: TypeDestination & MatchDeps['destination'];
}

/** A row whose object is looked for. */
export interface SoughtObject {
  key: string;
  extId: string;
  link: Link | undefined;
  /** The object that the row becomes. Given: where no object has its external id, the row means the one with its values. */
  object?: DestinationObject | undefined;
}

/** The object that is there for a row, under the external id that its write has; or why that cannot be said. */
export type ExistingObject =
  { object: ServiceObject } | { ambiguity: string } | { unreadable: SlotsyncError };

/**
 * By key, the objects that rows would be written to: by the number of a link, by the external id, or else by the values of the
 * fields in `match`. At most three requests for a thousand rows. Throws what mirror, state and service throw.
 */
export async function findExistingObjects(
  deps: PlanDeps,
  stream: Stream,
  sought: readonly SoughtObject[],
  context: Context,
  type: TypeObjects = createTypeObjects(deps.destination, stream, context),
): Promise<Map<string, ExistingObject>> {
  const unreadable: Unreadable = new Map();
  const extIds = sought.map(({ extId }) => extId);
  const found = await type.find(extIds, unreadable);
  // Objects that records are linked to and that have no external id yet.
  const numberOf = ({ link }: SoughtObject) =>
    link?.assignsId ? (link.destinationId ?? undefined) : undefined;
  const byNumber = await type.findByNumber(sought.flatMap((one) => numberOf(one) ?? []));
  // The run links these before it would create them.
  const absent = sought.flatMap(({ key, extId, link, object }) =>
    object && !link && !found.has(extId) && !unreadable.has(extId) ? { key, object } : [],
  );
  const meant = stream.match ? await findMeantOf(deps, stream, { absent, type }, context) : undefined;
  return new Map(
    sought.flatMap((one): [string, ExistingObject][] => {
      const { key, extId } = one;
      const match = meant?.get(key);
      if (match && 'ambiguity' in match) return [[key, match]];
      if (match && 'error' in match) return [[key, { unreadable: match.error }]];
      const reason = unreadable.get(extId);
      const there = match?.object ?? byNumber.get(numberOf(one) ?? '') ?? found.get(extId);
      if (!there) return reason ? [[key, { unreadable: reason }]] : [];
      return [[key, { object: { ...there, extId: match?.object.extId ?? extId } }]];
    }),
  );
}

/** By key, what rows mean whose external ids no object has. A row whose id an object of another type has means none. */
async function findMeantOf(
  deps: PlanDeps,
  stream: Stream,
  { absent, type }: { absent: readonly { key: string; object: DestinationObject }[]; type: TypeObjects },
  context: Context,
): Promise<Map<string, Meant>> {
  const whole = type.whole();
  if (!whole) return findMeant(deps, stream, absent, context);
  const values = new Set(whole.map((object) => matchValue(stream.match, object.fields)));
  const matching = absent.filter(({ object }) => values.has(matchValue(stream.match, object.fields)));
  const extIds = matching.map(({ object }) => object.extId);
  const unreadable: Unreadable = new Map();
  const others = await deps.destination.findObjects(extIds, stream.type, context, unreadable);
  const open = matching.filter(({ object: { extId } }) => !others.has(extId) && !unreadable.has(extId));
  return findMeant(deps, stream, open, context, whole);
}

export interface ExistingObjects {
  /** By key of a create. */
  met: ReadonlyMap<string, HeldSample>;
  /** Keys of rows without an object at the service. */
  absent: ReadonlySet<string>;
  /** Keys of rows that would change an object of one of our records. */
  owned: ReadonlySet<string>;
}

export const NONE_ASKED: ExistingObjects = { met: new Map(), absent: new Set(), owned: new Set() };

/** Looks for what the creates of one plan of one stream meet. */
export function createExistingObjectFinder(deps: PlanDeps, stream: Stream, context: Context) {
  let requests = 0;
  const counting: Context = {
    ...context,
    noteSent: () => void requests++,
  };
  const type = createTypeObjects(deps.destination, stream, counting);
  return {
    /**
     * By key of the creates, the objects of their type that are nobody's record: no changes where one is equal. One request
     * for a thousand rows, or none where the type is known by then. A row that cannot be read or mapped meets none, and is not
     * among those without an object (`absent`). Throws what mirror, state and service throw.
     */
    async find(keys: readonly string[]): Promise<ExistingObjects> {
      const met = new Map<string, HeldSample>();
      if (type.whole()?.length === 0) return { ...NONE_ASKED, absent: new Set(keys) };
      const { rows } = await deps.mirror.readRows(stream, keys);
      const rendered = await renderWithParents(deps, stream, rows);
      const sought = [...rendered].flatMap(([key, one]) =>
        'object' in one ? [{ key, ...one, link: one.link }] : [],
      );
      if (sought.length === 0) return NONE_ASKED;
      const standing = await findExistingObjects(deps, stream, sought, counting, type);
      for (const { key, object } of sought) {
        const there = standing.get(key);
        // An object of another type is not overwritten: its record says so.
        if (!there || !('object' in there) || !stream.objectTypes.has(there.object.typeId)) continue;
        const externalId = there.object.extId;
        const { changes } = differencesOf(stream, { ...object, extId: externalId }, there.object);
        met.set(key, { key, externalId, changes });
      }
      const absent = sought.flatMap(({ key }) => (standing.has(key) ? [] : key));
      const others = await withoutOwned(deps, met);
      const owned = [...met.keys()].filter((key) => !others.has(key));
      return { met: others, absent: new Set(absent), owned: new Set(owned) };
    },

    /** Requests sent so far. */
    requests: () => requests,
  };
}

/** Leaves out the objects of our own records, retired ones too: they are not overwritten but synced. */
async function withoutOwned(
  { state }: PlanDeps,
  met: ReadonlyMap<string, HeldSample>,
): Promise<ReadonlyMap<string, HeldSample>> {
  const ids = [...met.values()].flatMap(({ externalId, changes }) => (changes.length > 0 ? externalId : []));
  if (ids.length === 0) return met;
  const records = await readOwners(state.db, ids);
  return new Map([...met].filter(([, { externalId }]) => !records.get(externalId)?.mayBeAtService));
}

/** A type with more objects is not read whole: they are kept in memory. */
const MOST_READ = 20_000;

type TypeObjects = ReturnType<typeof createTypeObjects>;

/**
 * The objects of a stream's types, for as long as one plan of one stream asks for them: list by list, until it is cheaper to
 * read the types whole. After the first list the objects of the types are counted. Of empty types nothing more is asked for;
 * others are read once there were as many lists as they have pages. So there are at most twice as many requests as would have
 * been the fewest, and one more, however many lists come: a first load of 100 000 objects into an empty type takes two
 * requests instead of 100.
 */
function createTypeObjects(destination: TypeDestination, stream: Stream, context: Context) {
  const { type, objectTypes } = stream;
  /** Lists asked for, and the external ids of the type found by them: a reading without one of these is not believed. */
  let lists = 0;
  const found = new Set<string>();
  /** Infinity: the service does not tell, or not truly. */
  let count: number | undefined;
  let whole: readonly FoundObject[] | undefined;
  let byExtId: ReadonlyMap<string, FoundObject> = new Map();
  let byNumber: ReadonlyMap<string, FoundObject> = new Map();

  /** Undefined where it fails: the lists that are asked for instead succeed, or say what is wrong. */
  async function unlessFailing<T>(answer: Promise<T>): Promise<T | undefined> {
    try {
      return await answer;
    } catch {
      context.signal?.throwIfAborted();
      return undefined;
    }
  }

  async function readWhenCheaper(): Promise<void> {
    if (whole || lists === 0) return;
    count ??= (await unlessFailing(destination.countObjects(objectTypes, context))) ?? Infinity;
    if (count > Math.min(lists * destination.pageSize, MOST_READ)) return;
    const objects = count === 0 ? [] : await unlessFailing(destination.listObjects(objectTypes, context));
    byExtId = new Map(
      objects?.flatMap((object) => (object.extId === undefined ? [] : [[object.extId, object]])),
    );
    byNumber = new Map(objects?.map((object) => [object.id, object]));
    if (objects && [...found].every((extId) => byExtId.has(extId))) whole = objects;
    else count = Infinity;
  }

  return {
    /** The objects with these external ids. One of another type may be among them, or left out. */
    async find(extIds: readonly string[], unreadable: Unreadable): Promise<ReadonlyMap<string, FoundObject>> {
      await readWhenCheaper();
      if (whole) return byExtId;
      lists++;
      const objects = await destination.findObjects(extIds, type, context, unreadable);
      for (const { typeId, extId } of objects.values()) if (objectTypes.has(typeId)) found.add(extId);
      return objects;
    },

    /** The objects with these numbers; of another type as above. One that cannot be read is left out. */
    findByNumber: async (numbers: readonly string[]): Promise<ReadonlyMap<string, FoundObject>> =>
      whole ? byNumber : destination.findObjectsByNumber(numbers, type, context, new Map()),

    /** Every object of the type; undefined while lists are asked for. */
    whole: (): readonly FoundObject[] | undefined => whole,
  };
}
