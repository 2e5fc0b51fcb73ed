// Maps a row of the mirror to an object of the service. Pure: callers resolve its references from the state.
import type { Row } from './config-schema.js';
import { messageOf } from '../errors/errors.js';
import { spellExternalId } from './external-id.js';
import { keyOf } from './external-id-rule.js';
import { isTooLong, joinKey, MAX_ID_BYTES } from './local-key.js';
import { createObject, type DestinationObject } from './destination-object.js';
import type { Stream } from './stream.js';
import { toValues, UnfitValue } from './field-values.js';
import { translate, type FieldSource, type UsedLookups } from './lookups.js';

export interface NeededReference {
  fieldId: string;
  stream: string;
  localKey: string;
}

export interface MappedRow {
  extId: string;
  /** The external id as the row spells it, if the service compares a different form. */
  spelling: string | undefined;
  values: ReadonlyMap<string, readonly string[]>;
  references: readonly NeededReference[];
}

/** Error of a row that cannot be mapped to an object. The message begins with the place in the configuration. */
export class MappingError extends Error {
  override readonly name = 'MappingError';
  readonly code: MappingErrorCode;
  /** Place in the configuration, such as `rooms.externalId`. */
  readonly place: string;
  constructor(code: MappingErrorCode, place: string, reason: string, options?: ErrorOptions) {
    super(`${place}: ${reason}`, options);
    this.code = code;
    this.place = place;
  }
}
export type MappingErrorCode = 'mapping_failed' | 'key_too_long' | 'external_id_too_long';

/** Maps one row, or throws MappingError. `linkedId`, if given, replaces the external id of the template. */
export function mapRow(stream: Stream, row: Row, linkedId?: string): MappedRow {
  const guarded = guardColumns(row);
  const idPath = `${stream.name}.externalId`;
  const spelling = linkedId ?? place(idPath, () => spellExternalId(stream.externalId, guarded));
  const extId = keyOf(stream.externalId.rule, spelling);
  refuseTooLong(extId, idPath, 'external_id_too_long', 'the external id');
  const values = new Map<string, readonly string[]>();
  for (const [fieldId, from] of stream.fields) {
    const path = `${stream.name}.fields['${fieldId}']`;
    values.set(
      fieldId,
      place(path, () => readField(from, guarded, stream.lookups)),
    );
  }
  const references = stream.references.flatMap(({ fieldId, stream: parent, key }) => {
    const path = `${stream.name}.references['${fieldId}']`;
    return place(path, () => referencedKeys(guarded, key)).map((localKey) => {
      refuseTooLong(localKey, path, 'key_too_long', 'the key');
      return { fieldId, stream: parent, localKey };
    });
  });
  return { extId, spelling: spelling === extId ? undefined : spelling, values, references };
}

/** Returns the values of one field. The row must come from `guardColumns`. Throws a plain Error. */
export function readField(from: FieldSource, row: Row, lookups: UsedLookups): string[] {
  if (typeof from === 'function') return toValues(from(row)).map(requireText);
  if (typeof from === 'string') return toValues(row[from]);
  return toValues(row[from.column]).flatMap((code) => translate(lookups, from, code));
}

/** Throws if a function of the row returned text that the state cannot store. Columns cannot hold such text. */
function requireText(text: string): string {
  if (text.includes('\0') || !text.isWellFormed())
    throw new Error('a text with a NUL character or half a character cannot be sent');
  return text;
}

/** The first reference that an object is sent without. `ruled`: all left-out fields that have rules. */
export type LeftOut = NeededReference & { ruled: readonly string[] };

/**
 * Returns the complete object, or the first reference without an external id. A reference is left out of the object if
 * `externalIdOf` returns null.
 */
export function toObject(
  stream: Stream,
  mapped: MappedRow,
  externalIdOf: (reference: NeededReference) => string | null | undefined,
): { object: DestinationObject; leftOut?: LeftOut | undefined } | { missing: NeededReference } {
  const values = new Map(mapped.values);
  let leftOut: LeftOut | undefined;
  for (const reference of mapped.references) {
    const extId = externalIdOf(reference);
    if (extId === undefined) return { missing: reference };
    if (extId === null) {
      const ruled = stream.rules.has(reference.fieldId) ? [reference.fieldId] : [];
      leftOut = { ...(leftOut ?? reference), ruled: [...(leftOut?.ruled ?? []), ...ruled] };
    } else values.set(reference.fieldId, [...(values.get(reference.fieldId) ?? []), extId]);
  }
  const { extId, spelling } = mapped;
  const object = createObject(extId, stream.type, true, values);
  return { object: spelling === undefined ? object : { ...object, spelling }, leftOut };
}

/** Returns the keys that a row refers to: none if a column is null, several if one column holds a list. */
export function referencedKeys(row: Row, key: readonly string[]): string[] {
  const parts = key.map((column) => toValues(row[column]));
  const [only] = parts;
  if (parts.length === 1 && only) return only;
  if (parts.some((values) => values.length === 0)) return [];
  return [
    joinKey(
      parts.map(([value, more]) => {
        if (value === undefined || more !== undefined)
          throw new Error('a part of a composite key holds several values');
        return value;
      }),
    ),
  ];
}

/**
 * Returns a proxy that throws when a missing column is read, because a typo would otherwise silently clear a field.
 * Also throws for a value that cannot be sent.
 */
export function guardColumns(row: Row): Row {
  return new Proxy(row, {
    get(target, column, receiver) {
      if (typeof column === 'string' && column !== 'toJSON' && !(column in target))
        throw new Error(`there is no column ${column}`);
      const value = Reflect.get(target, column, receiver) as unknown;
      if (value instanceof UnfitValue)
        throw new Error(
          `column ${String(column)} holds ${value.describe()}, which cannot be sent; let the source convert it`,
        );
      return value;
    },
    set() {
      throw new Error('a function must not change the row: its other fields are read from it');
    },
  });
}

function refuseTooLong(text: string, path: string, code: MappingErrorCode, what: string): void {
  if (isTooLong(text)) throw new MappingError(code, path, `${what} is longer than ${MAX_ID_BYTES} bytes`);
}

function place<T>(path: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw new MappingError('mapping_failed', path, messageOf(error), { cause: error });
  }
}
