// Objects that creates meet: an object with the external id of a row that no record knows is at the service already. Made
// by hand, by another integration, or by this program whose state is lost. What people keep there is not overwritten
// unasked, so the service is asked about every create before it is planned.
import type { Context } from '../../destination/client.js';
import type { Unreadable } from '../../destination/destination.js';
import type { Link } from '../../state/records/links.js';
import { readOwners } from '../../state/records/read/owners.js';
import type { HeldSample } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import { differencesOf } from '../object/compare-objects.js';
import { findMeant, type MatchDeps, type Meant, type SoughtRow } from '../identity/match-candidates.js';
import { matchValue } from '../identity/match-values.js';
import { renderWithParents } from '../object/render-with-parents.js';
import { createTypeObjects, type TypeDestination, type TypeObjects } from './type-objects.js';

export interface ExistingObjectDeps extends MatchDeps {
  destination: TypeDestination & MatchDeps['destination'];
}

/** By key of the creates that meet an object of their type that is nobody's record. No changes: it is equal. */
type ExistingObjects = ReadonlyMap<string, HeldSample>;

/** Looks for what the creates of one plan of one stream meet. */
export function createExistingObjectFinder(deps: ExistingObjectDeps, stream: Stream, context: Context) {
  let requests = 0;
  const counting: Context = {
    ...context,
    noteSent: () => void requests++,
  };
  const reading = createTypeObjects(deps.destination, stream, counting);
  return {
    /**
     * Looks for the objects of these rows: one request for a thousand of them, or none where the type is known by then. A
     * row that cannot be read or mapped meets none. Throws what mirror, state and service throw.
     */
    find: (keys: readonly string[]) => meetObjects(deps, stream, { keys, reading }, counting),
    /** Requests sent so far. */
    requests: () => requests,
  };
}

async function meetObjects(
  deps: ExistingObjectDeps,
  stream: Stream,
  { keys, reading }: { keys: readonly string[]; reading: TypeObjects },
  context: Context,
): Promise<ExistingObjects> {
  const met = new Map<string, HeldSample>();
  if (reading.whole()?.length === 0) return met;
  const { rows } = await deps.mirror.readRows(stream, keys);
  const rendered = await renderWithParents(deps, stream, rows);
  const sought = [...rendered].flatMap(([key, one]) => ('object' in one ? [{ key, ...one }] : []));
  if (sought.length === 0) return met;
  const found = await reading.find(sought.map(({ extId }) => extId));
  // Objects that records are linked to and that have no external id yet.
  const numberOf = (link: Link | undefined) =>
    link?.assignsId ? (link.destinationId ?? undefined) : undefined;
  const byNumber = await reading.findByNumber(sought.flatMap(({ link }) => numberOf(link) ?? []));
  // The run links these before it would create them: they are overwritten as well.
  const absent = sought.filter(({ link, extId }) => !link && !found.has(extId));
  const meant = stream.match ? await findMeantBy(deps, stream, { absent, reading }, context) : undefined;
  for (const { key, object, link } of sought) {
    const match = meant?.get(key);
    const matching = match && 'object' in match ? match.object : undefined;
    const standing = matching ?? byNumber.get(numberOf(link) ?? '') ?? found.get(object.extId);
    // An object of another type is not overwritten: its record says so.
    if (!standing || !stream.objectTypes.has(standing.typeId)) continue;
    const externalId = matching?.extId ?? object.extId;
    met.set(key, {
      key,
      externalId,
      changes: differencesOf(stream, { ...object, extId: externalId }, standing),
    });
  }
  return withoutOwned(deps, met);
}

/**
 * By key, the objects that rows match whose external ids no object of the type has. A row whose id an object of another type
 * has matches none.
 */
async function findMeantBy(
  deps: ExistingObjectDeps,
  stream: Stream,
  { absent, reading }: { absent: readonly SoughtRow[]; reading: TypeObjects },
  context: Context,
): Promise<Map<string, Meant>> {
  const whole = reading.whole();
  if (!whole) return findMeant(deps, stream, absent, context);
  const values = new Set(whole.map((object) => matchValue(stream.match, object.fields)));
  const matching = absent.filter(({ object }) => values.has(matchValue(stream.match, object.fields)));
  const extIds = matching.map(({ object }) => object.extId);
  const unreadable: Unreadable = new Map();
  const others = await deps.destination.findObjects(extIds, stream.type, context, unreadable);
  const sought = matching.filter(({ object: { extId } }) => !others.has(extId) && !unreadable.has(extId));
  return findMeant(deps, stream, sought, context, whole);
}

/** Leaves out the objects of our own records, retired ones too: they are not overwritten but synced. */
async function withoutOwned({ state }: ExistingObjectDeps, met: ExistingObjects): Promise<ExistingObjects> {
  const ids = [...met.values()].flatMap(({ externalId, changes }) => (changes.length > 0 ? externalId : []));
  if (ids.length === 0) return met;
  const records = await readOwners(state.db, ids);
  const isOurs = (externalId: string) => {
    const record = records.get(externalId);
    return record?.mayBeAtService ?? false;
  };
  return new Map([...met].filter(([, { externalId }]) => !isOurs(externalId)));
}
