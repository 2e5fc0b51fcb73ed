// Searches the service for objects that the creates of a plan would overwrite. Such objects were made by people, by
// another integration, or by slotsync before its state was lost. They are not overwritten until an operator approves.
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
  | ('findObjects' | 'findObjectsByNumber' | 'countObjects' | 'listObjects')
  | ('pageSize' | 'patches' | 'canChangeTypes')
>;

export interface PlanDeps extends MatchDeps {
  destination: TypeDestination & MatchDeps['destination'];
}

/** A row whose object is searched for at the service. */
export interface SoughtObject {
  key: string;
  extId: string;
  link: Link | undefined;
  /** Object rendered from the row. Used for a search by the fields of `match` if no object has the external id. */
  object?: DestinationObject | undefined;
}

/** Existing object of a row, under the external id to write. Otherwise why the object cannot be determined. */
export type ExistingObject =
  { object: ServiceObject } | { ambiguity: string } | { unreadable: SlotsyncError };

/**
 * Returns the existing objects to which rows would be written, by key. Searches by the number of a link, then by
 * external id, then by the fields of `match`. Sends at most three requests for 1,000 rows. Throws errors of mirror,
 * state and service.
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
  // Numbers of objects without an external id to which records are linked.
  const numberOf = ({ link }: SoughtObject) =>
    link?.assignsId ? (link.destinationId ?? undefined) : undefined;
  const byNumber = await type.findByNumber(sought.flatMap((one) => numberOf(one) ?? []));
  // Rows without an object of their external id. A run searches by the fields of `match` before it creates one.
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

/** Searches by the fields of `match`, for rows whose external id no object has. Returns the objects by key. */
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
  /** Objects that a create would overwrite and that no record owns, by the create's key. */
  met: ReadonlyMap<string, HeldSample>;
  absent: ReadonlySet<string>;
  /** Keys of rows whose write would change an object that another record owns. */
  owned: ReadonlySet<string>;
}

export const NONE_ASKED: ExistingObjects = { met: new Map(), absent: new Set(), owned: new Set() };

/** Creates a search for the objects that the creates of one stream's plan would overwrite. */
export function createExistingObjectFinder(deps: PlanDeps, stream: Stream, context: Context) {
  let requests = 0;
  const counting: Context = { ...context, noteSent: () => void requests++ };
  const type = createTypeObjects(deps.destination, stream, counting);
  return {
    /**
     * Searches for the objects that these creates would overwrite. `met`: objects without a record; `changes` is empty
     * if the object is equal. Rows that cannot be read or mapped are neither in `met` nor in `absent`. Sends one
     * request for 1,000 rows, or none after the types were read completely. Throws errors of mirror, state and service.
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
        // A create never overwrites an object of another type. The batch will report the record instead.
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

    /** Returns the number of requests sent so far. */
    requests: () => requests,
    type,
  };
}

/** Leaves out objects that a record owns, even inactive ones. Writing them is an update, not an overwrite. */
async function withoutOwned(
  { state }: PlanDeps,
  met: ReadonlyMap<string, HeldSample>,
): Promise<ReadonlyMap<string, HeldSample>> {
  const ids = [...met.values()].flatMap(({ externalId, changes }) => (changes.length > 0 ? externalId : []));
  if (ids.length === 0) return met;
  const records = await readOwners(state.db, ids);
  return new Map([...met].filter(([, { externalId }]) => !records.get(externalId)?.mayBeAtService));
}

/** Maximum number of objects of a stream's types to read completely, since they are kept in memory. */
const MOST_READ = 20_000;

export type TypeObjects = ReturnType<typeof createTypeObjects>;

/**
 * Searches for a stream's objects during one plan: first in lists of external ids, later by reading all objects. After
 * the first list, the service counts the objects. If the count is 0, no more requests are sent. If more lists were
 * searched than all objects have pages, all objects are read. So a plan sends at most twice the minimum number of
 * requests, plus one. A first load of 100,000 objects into an empty type takes two requests instead of 100.
 */
function createTypeObjects(destination: TypeDestination, stream: Stream, context: Context) {
  const { type, objectTypes } = stream;
  /** Number of lists searched, and the external ids found. A later reading of all objects must contain these ids. */
  let lists = 0;
  const found = new Set<string>();
  /** The first list and its objects, among which are the examples of a first plan. */
  let first = { extIds: new Set<string>(), objects: new Map<string, FoundObject>() };
  /** Number of objects of the stream's types. Infinity if the service returns no count, or a wrong one. */
  let count: number | undefined;
  let whole: readonly FoundObject[] | undefined;
  let byExtId: ReadonlyMap<string, FoundObject> = new Map();
  let byNumber: ReadonlyMap<string, FoundObject> = new Map();

  /** Returns undefined if the request fails. The search in lists that follows reports the error, if it persists. */
  async function unlessFailing<T>(answer: Promise<T>): Promise<T | undefined> {
    try {
      return await answer;
    } catch {
      context.signal?.throwIfAborted();
      return undefined;
    }
  }

  const countAll = async (): Promise<number> =>
    (count ??= (await unlessFailing(destination.countObjects(objectTypes, context))) ?? Infinity);

  async function readWhenCheaper(): Promise<void> {
    if (whole || lists === 0) return;
    if ((await countAll()) > Math.min(lists * destination.pageSize, MOST_READ)) return;
    const objects = count === 0 ? [] : await unlessFailing(destination.listObjects(objectTypes, context));
    byExtId = new Map(
      objects?.flatMap((object) => (object.extId === undefined ? [] : [[object.extId, object]])),
    );
    byNumber = new Map(objects?.map((object) => [object.id, object]));
    if (objects && [...found].every((extId) => byExtId.has(extId))) whole = objects;
    else count = Infinity;
  }

  const isKnown = (extIds: readonly string[]) =>
    whole !== undefined || extIds.every((extId) => first.extIds.has(extId));

  return {
    /** Returns true if `find` sends no request for these external ids. */
    isKnown,

    /** Returns the objects with these external ids. Objects of other types may be included. */
    async find(extIds: readonly string[], unreadable: Unreadable): Promise<ReadonlyMap<string, FoundObject>> {
      if (!isKnown(extIds)) await readWhenCheaper();
      if (isKnown(extIds)) return whole ? byExtId : first.objects;
      lists++;
      const objects = await destination.findObjects(extIds, type, context, unreadable);
      for (const { typeId, extId } of objects.values()) if (objectTypes.has(typeId)) found.add(extId);
      if (lists === 1 && unreadable.size === 0) first = { extIds: new Set(extIds), objects };
      return objects;
    },

    /** Returns the number of objects, or Infinity if it is unknown. Sends a request for each type at most once. */
    count: countAll,

    /** Returns the objects with these numbers. Objects of other types may be included, unreadable objects are not. */
    findByNumber: async (numbers: readonly string[]): Promise<ReadonlyMap<string, FoundObject>> =>
      whole ? byNumber : destination.findObjectsByNumber(numbers, type, context, new Map()),

    /** Returns all objects of the stream's types. Undefined if lists are still searched instead. */
    whole: (): readonly FoundObject[] | undefined => whole,
  };
}
