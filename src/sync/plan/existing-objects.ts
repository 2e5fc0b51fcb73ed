// Finds objects at the service that a plan's creates would overwrite. People, another integration, or slotsync with a
// lost state may have made them. They must not be overwritten without approval, so the plan looks for each create.
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

/** A row, for which the service is searched for an existing object. */
export interface SoughtObject {
  key: string;
  extId: string;
  link: Link | undefined;
  /** Object rendered from the row. If no object has the external id, the search uses its values of `match`. */
  object?: DestinationObject | undefined;
}

/** Existing object of a row, with the external id that the write will use. Otherwise why it is unknown. */
export type ExistingObject =
  { object: ServiceObject } | { ambiguity: string } | { unreadable: SlotsyncError };

/**
 * Returns, by key, the objects that rows would be written to. Searches by the number of a link, by external id, then by
 * the values of `match` fields. Sends at most three requests for 1,000 rows. Throws errors of mirror, state and
 * service.
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
  // Numbers of linked objects that have no external id yet.
  const numberOf = ({ link }: SoughtObject) =>
    link?.assignsId ? (link.destinationId ?? undefined) : undefined;
  const byNumber = await type.findByNumber(sought.flatMap((one) => numberOf(one) ?? []));
  // Rows without an object of their external id. A run links them to a matching object before it creates one.
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

/** Returns, by key, the matches of rows whose external id no object has. An object of another type may have it. */
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
  /** Existing objects without a record, by the key of the create that would overwrite them. */
  met: ReadonlyMap<string, HeldSample>;
  absent: ReadonlySet<string>;
  /** Keys of rows whose write would change an object that another record owns. */
  owned: ReadonlySet<string>;
}

export const NONE_ASKED: ExistingObjects = { met: new Map(), absent: new Set(), owned: new Set() };

/** Searches for existing objects of the creates in one stream's plan. */
export function createExistingObjectFinder(deps: PlanDeps, stream: Stream, context: Context) {
  let requests = 0;
  const counting: Context = {
    ...context,
    noteSent: () => void requests++,
  };
  const type = createTypeObjects(deps.destination, stream, counting);
  return {
    /**
     * Returns the objects of the creates' type that no record owns; `changes` is empty if the object is equal. Sends
     * one request for 1,000 rows, or none if the whole type was read. Unreadable or unmappable rows appear neither in
     * `met` nor in `absent`. Throws errors of mirror, state and service.
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
        // An object of another type is not overwritten. The batch makes the record `dead` instead.
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
  };
}

/** Leaves out objects that a record owns, even an inactive one. Their writes count as updates, not as overwrites. */
async function withoutOwned(
  { state }: PlanDeps,
  met: ReadonlyMap<string, HeldSample>,
): Promise<ReadonlyMap<string, HeldSample>> {
  const ids = [...met.values()].flatMap(({ externalId, changes }) => (changes.length > 0 ? externalId : []));
  if (ids.length === 0) return met;
  const records = await readOwners(state.db, ids);
  return new Map([...met].filter(([, { externalId }]) => !records.get(externalId)?.mayBeAtService));
}

/** Maximum number of objects of a type to read whole, because they are kept in memory. */
const MOST_READ = 20_000;

type TypeObjects = ReturnType<typeof createTypeObjects>;

/**
 * Finds a stream's objects during one plan: list by list, until reading the types whole takes fewer requests. After the
 * first list, the service counts the objects. Empty types need no more requests. Other types are read whole after as
 * many lists as they have pages. So the plan sends at most twice the minimum number of requests, plus one. A first load
 * of 100,000 objects into an empty type takes two requests instead of 100.
 */
function createTypeObjects(destination: TypeDestination, stream: Stream, context: Context) {
  const { type, objectTypes } = stream;
  /** Number of searches, and external ids found. A whole reading that lacks one of these ids is not trusted. */
  let lists = 0;
  const found = new Set<string>();
  /** Number of objects of the types. Infinity if the service does not count them, or counts them wrongly. */
  let count: number | undefined;
  let whole: readonly FoundObject[] | undefined;
  let byExtId: ReadonlyMap<string, FoundObject> = new Map();
  let byNumber: ReadonlyMap<string, FoundObject> = new Map();

  /** Returns undefined if the request fails. The list requests that replace it will succeed or report the error. */
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
    /** Returns the objects with these external ids. An object of another type may be included or left out. */
    async find(extIds: readonly string[], unreadable: Unreadable): Promise<ReadonlyMap<string, FoundObject>> {
      await readWhenCheaper();
      if (whole) return byExtId;
      lists++;
      const objects = await destination.findObjects(extIds, type, context, unreadable);
      for (const { typeId, extId } of objects.values()) if (objectTypes.has(typeId)) found.add(extId);
      return objects;
    },

    /** Returns the objects with these numbers, possibly of another type. Unreadable objects are left out. */
    findByNumber: async (numbers: readonly string[]): Promise<ReadonlyMap<string, FoundObject>> =>
      whole ? byNumber : destination.findObjectsByNumber(numbers, type, context, new Map()),

    /** Returns all objects of the types, or undefined if they have not been read whole. */
    whole: (): readonly FoundObject[] | undefined => whole,
  };
}
