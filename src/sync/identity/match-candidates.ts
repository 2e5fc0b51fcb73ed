// A row that has no object yet means the one at the service that has the same values of the fields in `match`, and that is
// nobody's. Plans ask, to say what a run would change; and batches, to link.
import type { Context } from '../../destination/client.js';
import type { Destination, FoundObject, Unreadable } from '../../destination/destination.js';
import type { SlotsyncError } from '../../errors/errors.js';
import type { RecordKey } from '../../state/records/outcome-types.js';
import type { DestinationObject, FieldValues } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import { whoHasObjects } from './who-has.js';
import type { SyncDeps } from '../run/sync-deps.js';

// The values by which an object is found. Plans, batches and the match command compare here.

/** The placeholder of a reference to a record that is not at the service yet. No value of a field is equal to it. */
export const NOT_THERE_YET = '\u0000';

/**
 * The values of these fields as one text, equal where all values are. Undefined when a field has none that can be
 * compared: what is empty on both sides is not the same.
 */
export function matchValue(
  fieldIds: readonly string[] = [],
  fields: readonly FieldValues[],
): string | undefined {
  const values = valuesOf(fieldIds, fields);
  const isComparable = (list: readonly string[]) =>
    list.some((value) => value !== '') && !list.includes(NOT_THERE_YET);
  return values.length > 0 && values.every(isComparable) ? JSON.stringify(values) : undefined;
}

/** The values of these fields, in this order; a field without a value has none. */
export function valuesOf(fieldIds: readonly string[], fields: readonly FieldValues[]): (readonly string[])[] {
  return fieldIds.map((id) => fields.find(({ fieldId }) => fieldId === id)?.values ?? []);
}

// The object that a row means.

export interface MatchDeps extends Pick<SyncDeps, 'mirror' | 'state' | 'streams'> {
  destination: Pick<Destination, 'findObjectsByFields'>;
}

/** A row, as the object that it would become. */
interface SoughtRow {
  key: string;
  object: DestinationObject;
}

/** The object that a row means; or why that cannot be said, as a sentence; or why the service cannot be asked for its values. */
export type Meant = { object: FoundObject } | { ambiguity: string } | { error: SlotsyncError };

/** An object that matches, and who has it. */
interface Candidate {
  object: FoundObject;
  /** Undefined: nobody. `true`: a record or a row, by its external id. */
  owner: RecordKey | true | undefined;
}

/** Objects or rows named in a message. */
const NAMED = 5;

/**
 * By key, what rows mean; a row that means no object is not in the answer. Sends one request for each type, or reads the types
 * whole, unless `known` has all their objects. Throws what mirror, state and service throw.
 */
export async function findMeant(
  deps: MatchDeps,
  stream: Stream,
  rows: readonly SoughtRow[],
  context: Context,
  known?: readonly FoundObject[],
): Promise<Map<string, Meant>> {
  const meant = new Map<string, Meant>();
  const groups = groupByValues(stream, rows);
  if (groups.size === 0) return meant;
  const unreadable: Unreadable = new Map();
  const candidates = await findCandidates(deps, stream, groups, context, unreadable, known);
  for (const [values, group] of groups) {
    const matching = candidates.get(values) ?? [];
    const error = unreadable.get(values);
    for (const { key } of group) {
      const found = error ? { error } : chooseMeant(stream, { key, group }, matching);
      if (found) meant.set(key, found);
    }
  }
  return meant;
}

/** By their values of the fields in `match`, in which each of these has some that can be compared, or is left out. */
function groupByValues<T extends { object: Pick<DestinationObject, 'fields'> }>(
  { match }: Stream,
  list: readonly T[],
): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const one of list) {
    const values = matchValue(match, one.object.fields);
    if (values !== undefined) groups.set(values, [...(groups.get(values) ?? []), one]);
  }
  return groups;
}

/** By their values, the objects of the type that match any of the rows. */
async function findCandidates(
  deps: MatchDeps,
  stream: Stream,
  groups: ReadonlyMap<string, readonly SoughtRow[]>,
  context: Context,
  unreadable: Unreadable,
  known: readonly FoundObject[] | undefined,
): Promise<Map<string, Candidate[]>> {
  const { objectTypes: types } = stream;
  const isMatch = (object: FoundObject) =>
    types.has(object.typeId) && groups.has(matchValue(stream.match, object.fields) ?? '');
  const sought = fieldsToFind(stream, groups);
  // A search answers any of the values of a field, and whole objects are compared here.
  const objects =
    known?.filter(isMatch) ??
    (await deps.destination.findObjectsByFields(types, sought, isMatch, context, unreadable));
  const holderOf = await whoHasObjects(deps, objects, { rows: 'all' });
  const candidates = objects.map((object): Candidate => {
    const { record, link, rows } = holderOf(object);
    const isKept = record?.mayBeAtService && !record.isFormer && record.status !== 'retired';
    return { object, owner: link ?? (rows.length > 0 || isKept ? true : undefined) };
  });
  return groupByValues(stream, candidates);
}

/** By their values, the fields in `match` of each group. */
const fieldsToFind = ({ match = [] }: Stream, groups: ReadonlyMap<string, readonly SoughtRow[]>) =>
  new Map(
    [...groups].map(([values, [row]]) => [
      values,
      (row?.object.fields ?? []).filter(({ fieldId }) => match.includes(fieldId)),
    ]),
  );

/** Chooses what a row means, among the rows and the objects with its values. */
function chooseMeant(
  stream: Stream,
  { key, group }: { key: string; group: readonly SoughtRow[] },
  candidates: readonly Candidate[],
): Meant | undefined {
  const fields = (stream.match ?? []).join(', ');
  const free = candidates.filter(({ owner }) => owner === undefined);
  const names = list(free.map(({ object }) => nameOf(object)));
  if (free.length > 1) return { ambiguity: `${free.length} objects have its values of ${fields}: ${names}` };
  const [only] = free;
  if (only && group.length > 1) {
    const others = group.filter((other) => other.key !== key).map((other) => `'${other.key}'`);
    return {
      ambiguity: `the object ${names} has its values of ${fields}, and so ${others.length > 1 ? 'have' : 'has'} ${stream.name} ${list(others)}`,
    };
  }
  if (only) return { object: only.object };
  for (const { object, owner } of candidates)
    if (typeof owner === 'object')
      return {
        ambiguity: `the object ${nameOf(object)} has its values of ${fields}, but is linked to ${owner.stream} '${owner.localKey}'`,
      };
  return undefined;
}

function nameOf({ extId, id, active }: FoundObject): string {
  return (extId === undefined ? `number ${id}` : `'${extId}'`) + (active ? '' : ' (inactive)');
}

function list(names: readonly string[]): string {
  const more = names.length - NAMED;
  return names.slice(0, NAMED).join(', ') + (more > 0 ? ` and ${more} more` : '');
}
