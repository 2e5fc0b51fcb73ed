// Makes the object that a row becomes at the service: maps the row, resolves references, and merges the existing
// object. Batches, previews and `explain` share these functions.
import type { ServiceObject } from '../../destination/destination.js';
import { messageOf } from '../../errors/errors.js';
import type { State } from '../../state/database.js';
import { readExternalIds } from '../../state/records/read/owners.js';
import { readLinks, type Link } from '../../state/records/links.js';
import { keyOf } from '../../streams/external-id-rule.js';
import { createObject, mergeObject, type DestinationObject } from '../../streams/destination-object.js';
import { applyRules, type KeptField } from '../../streams/field-rules.js';
import type { Row } from '../../streams/config-schema.js';
import {
  MappingError,
  mapRow,
  toObject,
  type LeftOut,
  type MappedRow,
  type MappingErrorCode,
  type NeededReference,
} from '../../streams/map-row.js';
import { sends, type Stream } from '../../streams/stream.js';
import { recordName } from '../../state/records/outcome-types.js';
import { readRowIds, type IdentityDeps } from '../identity/row-ids.js';

/**
 * Result of rendering a row: the object, or a reference to a record not at the service yet, or a mapping error.
 * `leftOut`: a reference that the object omits for now.
 */
export type Rendered =
  | (Identified & { object: DestinationObject; leftOut?: LeftOut | undefined })
  | (Identified & { missing: NeededReference })
  | Unmapped;

/** External id of a row's object. If `link` is set, it determines the external id instead of the stream's template. */
export interface Identified {
  extId: string;
  link?: Link | undefined;
}

/** Why the mapping cannot make an object from a row. */
export interface Unmapped {
  problem: string;
  code: MappingErrorCode;
  /** Path in the configuration where the mapping failed. `problem` begins with it. */
  place: string;
}

/**
 * Renders the objects of rows, by key. `placeholder` returns a text for a reference to a record not at the service yet,
 * or null to omit the reference; if undefined, the row is not rendered and its result is the missing reference.
 * `knownLinks`: links of these rows, if already read.
 */
export async function renderRows(
  { db }: Pick<State, 'db'>,
  stream: Stream,
  rows: ReadonlyMap<string, { row: Row }>,
  placeholder: (reference: NeededReference, key: string) => string | null | undefined = () => undefined,
  knownLinks?: ReadonlyMap<string, Link>,
): Promise<Map<string, Rendered>> {
  const links = knownLinks ?? (await readLinks(db, stream.name, [...rows.keys()]));
  const mapped = new Map(
    [...rows].map(([key, { row }]) => [key, mapOrExplain(stream, row, links.get(key)?.externalId)]),
  );
  const references = [...mapped.values()].flatMap((result) => ('problem' in result ? [] : result.references));
  const externalIdOf = await readExternalIds(db, references);
  return new Map(
    [...mapped].map(([key, result]) => [
      key,
      'problem' in result
        ? result
        : {
            extId: result.extId,
            link: links.get(key),
            ...toObject(stream, result, (needed) => externalIdOf(needed) ?? placeholder(needed, key)),
          },
    ]),
  );
}

function mapOrExplain(stream: Stream, row: Row, linkedId: string | undefined): MappedRow | Unmapped {
  try {
    return mapRow(stream, row, linkedId);
  } catch (error) {
    if (error instanceof MappingError)
      return { problem: error.message, code: error.code, place: error.place };
    return { problem: `${stream.name}: ${messageOf(error)}`, code: 'mapping_failed', place: stream.name };
  }
}

/**
 * Returns the object to write: the rendered object, with the service's values in fields that the mapping does not own
 * or that field rules keep. `accepted`: the record's `accepted_fields`.
 */
export function mergeWithService(
  stream: Stream,
  object: DestinationObject,
  found: ServiceObject | undefined,
  accepted: string | null | undefined,
): { object: DestinationObject; kept: readonly KeptField[] } {
  const typed = found && stream.objectTypes.has(found.typeId) ? { ...object, typeId: found.typeId } : object;
  const set = found ? setByRetirement(stream, found) : NONE;
  const rules =
    set.size === 0 ? stream.rules : new Map([...stream.rules].filter(([field]) => !set.has(field)));
  const { object: applied, kept } = applyRules(rules, typed, found && keyReferences(stream, found), accepted);
  const chosen = found ? spellAsThere(stream, applied, found) : applied;
  const merged = stream.owns === 'object' ? chosen : mergeObject(chosen, found, ownedOf(stream, found));
  return {
    object: chosen.spelling === undefined ? merged : { ...merged, spelling: chosen.spelling },
    kept,
  };
}

const NONE: ReadonlySet<string> = new Set();

/** Returns fields of an inactive object that still have the values of its deactivation. A write may replace them. */
function setByRetirement(
  { retireFields }: Stream,
  { active, fields }: DestinationObject,
): ReadonlySet<string> {
  if (active || retireFields.size === 0) return NONE;
  const standing = new Map(fields.map(({ fieldId, values }) => [fieldId, values]));
  const isAsSet = ([fieldId, values]: readonly [string, readonly string[]]) =>
    JSON.stringify(standing.get(fieldId) ?? []) === JSON.stringify(values);
  return new Set([...retireFields].filter(isAsSet).map(([fieldId]) => fieldId));
}

/** Returns the fields that a write may change: mapped fields, and fields that the object's deactivation has set. */
export function ownedOf(stream: Stream, found?: DestinationObject): ReadonlySet<string> {
  const set = found ? setByRetirement(stream, found) : NONE;
  return set.size === 0 ? stream.owned : new Set([...stream.owned, ...set]);
}

/** Returns the object to write for a deactivation: inactive, with the values configured in `retireFields`. */
export function deactivate({ retireFields }: Stream, standing: ServiceObject): DestinationObject {
  const set = createObject(standing.extId, standing.typeId, false, retireFields);
  return { ...mergeObject(set, standing, new Set(retireFields.keys())), spelling: standing.spelling };
}

/** Normalizes an object's references as the service compares external ids, for example in lower case. */
export function keyReferences<T extends DestinationObject>(
  { externalId: { rule }, references }: Stream,
  object: T,
): T {
  if (!rule) return object;
  const isReference = ({ fieldId }: DestinationObject['fields'][number]) =>
    references.some((reference) => reference.fieldId === fieldId);
  const fields = object.fields.map((field) =>
    isReference(field) ? { ...field, values: field.values.map((extId) => keyOf(rule, extId)) } : field,
  );
  return { ...object, fields };
}

/** Returns the object with external ids in the service's spelling, which may differ, for example in case. */
function spellAsThere(
  { externalId: { rule }, references, rules }: Stream,
  object: DestinationObject,
  found: ServiceObject,
): DestinationObject {
  if (!rule) return object;
  const keysOf = (values: readonly string[]) => JSON.stringify(values.map((extId) => keyOf(rule, extId)));
  const fields = object.fields.map((field) => {
    const there = found.fields.find(({ fieldId }) => fieldId === field.fieldId)?.values ?? [];
    const isReference = references.some(({ fieldId }) => fieldId === field.fieldId);
    if (!isReference) return field;
    if (keysOf(there) === keysOf(field.values)) return { ...field, values: there };
    if (!rules.get(field.fieldId)?.add) return field;
    const spelled = new Map(there.map((extId) => [keyOf(rule, extId), extId]));
    return { ...field, values: field.values.map((extId) => spelled.get(extId) ?? extId) };
  });
  return { ...object, fields, spelling: found.spelling ?? object.spelling };
}

/** Explains that a referenced record is not at the service. `parent`: the stream of the referenced record. */
export function describeMissing({ fieldId, stream, localKey }: NeededReference, parent?: Stream): string {
  const isNeverCreated = parent && !sends(parent, 'create');
  const why = isNeverCreated ? `; ${stream} creates nothing: its \`operations\` have no 'create'` : ' yet';
  return `${fieldId} refers to ${stream} '${localKey}', which is not at the service${why}`;
}

/**
 * Renders rows as `renderRows` does. A reference to a record not at the service yet becomes the external id of that
 * record's row. If there is no such row, `placeholder` returns the text.
 */
export async function renderWithParents(
  deps: IdentityDeps,
  stream: Stream,
  rows: ReadonlyMap<string, { row: Row }>,
  placeholder: (reference: NeededReference) => string | undefined = () => undefined,
): Promise<Map<string, Rendered>> {
  const wanted = new Map<string, NeededReference>();
  const rendered = await renderRows(deps.state, stream, rows, (reference) => {
    wanted.set(recordName(reference), reference);
    return '';
  });
  if (wanted.size === 0) return rendered;
  const rowIdOf = await readRowIds(deps, [...wanted.values()]);
  const idOf = (reference: NeededReference) => rowIdOf(reference).id ?? placeholder(reference);
  return renderRows(deps.state, stream, rows, idOf);
}
