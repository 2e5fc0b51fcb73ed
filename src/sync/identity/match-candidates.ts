// Finds an existing object at the service for a row that owns none. The object must have equal values in the fields of
// `match`, and must belong to nobody. Plans use this to predict changes, and batches to link records.
import type { Context } from '../../destination/client.js';
import type { Destination, FoundObject, Unreadable } from '../../destination/destination.js';
import type { SlotsyncError } from '../../errors/errors.js';
import type { RecordKey } from '../../state/records/outcome-types.js';
import type { DestinationObject, FieldValues } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import type { IdentityDeps } from './row-ids.js';
import { whoHasObjects } from './who-has.js';

/** Value of a reference whose record is not at the service yet. No field at the service has this value. */
export const NOT_THERE_YET = '\u0000';

/**
 * Returns the values of these fields as one text for comparison. Returns undefined if a field is empty, because two
 * empty fields do not count as equal.
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

/** Returns the values of the given fields in the order of `fieldIds`. A missing field becomes an empty list. */
export function valuesOf(fieldIds: readonly string[], fields: readonly FieldValues[]): (readonly string[])[] {
  return fieldIds.map((id) => fields.find(({ fieldId }) => fieldId === id)?.values ?? []);
}

export interface MatchDeps extends IdentityDeps {
  destination: Pick<Destination, 'findObjectsByFields'>;
}

/** A row, with the object that slotsync would create for it. */
interface SoughtRow {
  key: string;
  object: DestinationObject;
}

/** The existing object that matches a row, or why the choice is ambiguous, or an error of the search. */
export type Meant = { object: FoundObject } | { ambiguity: string } | { error: SlotsyncError };

/** An existing object that has a row's values, with the owner of the object. */
interface Candidate {
  object: FoundObject;
  /** Undefined if nobody owns the object. `true` if a record or row has its external id. Otherwise the linked key. */
  owner: RecordKey | true | undefined;
}

/** Maximum number of objects or rows that an error message names. */
const NAMED = 5;

/**
 * Returns the existing object for each row, by key, or why the choice is ambiguous. Rows without such an object are
 * left out. Sends one search for each type, unless `known` has all objects. Throws errors of mirror, state and service.
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

/** Groups rows or objects with equal values in the fields of `match`. Leaves out any with an empty field. */
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

/** Returns the service's objects that have the same values as a row, grouped by these values. */
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
  // The service returns objects that have any of the searched values. `isMatch` keeps objects that have all of them.
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

/** Returns the fields to search for, for each group of rows with equal values. */
const fieldsToFind = ({ match = [] }: Stream, groups: ReadonlyMap<string, readonly SoughtRow[]>) =>
  new Map(
    [...groups].map(([values, [row]]) => [
      values,
      (row?.object.fields ?? []).filter(({ fieldId }) => match.includes(fieldId)),
    ]),
  );

/** Chooses one row's object among objects with equal values. Returns an ambiguity if objects or rows compete. */
function chooseMeant(
  stream: Stream,
  { key, group }: { key: string; group: readonly SoughtRow[] },
  candidates: readonly Candidate[],
): Meant | undefined {
  const fields = (stream.match ?? []).join(', ');
  const free = candidates.filter(({ owner }) => owner === undefined);
  const names = list(free.map(({ object }) => nameOf(object)));
  if (free.length > 1)
    return { ambiguity: `${free.length} objects have the row's values of ${fields}: ${names}` };
  const [only] = free;
  if (only && group.length > 1) {
    const others = group.filter((other) => other.key !== key).map((other) => `'${other.key}'`);
    return {
      ambiguity: `the object ${names} has the row's values of ${fields}, and so ${others.length > 1 ? 'have' : 'has'} ${stream.name} ${list(others)}`,
    };
  }
  if (only) return { object: only.object };
  for (const { object, owner } of candidates)
    if (typeof owner === 'object')
      return {
        ambiguity: `the object ${nameOf(object)} has the row's values of ${fields}, but is linked to ${owner.stream} '${owner.localKey}'`,
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
