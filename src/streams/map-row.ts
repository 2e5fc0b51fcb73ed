// From a row to an object. Pure: references are named here and resolved by callers that know the state.
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
  /** As it is written, where the service compares another form of it. */
  spelling: string | undefined;
  values: ReadonlyMap<string, readonly string[]>;
  references: readonly NeededReference[];
}

/** The row cannot become an object. The message names the place in the configuration. */
export class MappingError extends Error {
  override readonly name = 'MappingError';
  readonly code: MappingErrorCode;
  /** In the configuration; the message begins with it. */
  readonly place: string;
  constructor(code: MappingErrorCode, place: string, reason: string, options?: ErrorOptions) {
    super(`${place}: ${reason}`, options);
    this.code = code;
    this.place = place;
  }
}
export type MappingErrorCode = 'mapping_failed' | 'key_too_long' | 'external_id_too_long';

/**
 * Maps one row; throws MappingError with the place and the reason. `linkedId`: the external id of the object that the
 * record is linked to, in place of the template's.
 */
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

/** The values of one field. The row is guarded: see `guardColumns`. Throws a plain Error. */
export function readField(from: FieldSource, row: Row, lookups: UsedLookups): string[] {
  if (typeof from === 'function') return toValues(from(row)).map(requireText);
  if (typeof from === 'string') return toValues(row[from]);
  return toValues(row[from.column]).flatMap((code) => translate(lookups, from, code));
}

/** Columns cannot hold such a text; neither the state nor every service takes it. */
function requireText(text: string): string {
  if (text.includes('\0') || !text.isWellFormed())
    throw new Error('a text with a NUL character or half a character cannot be sent');
  return text;
}

/** The first reference that an object is sent without. `ruled`: the fields of all such references that have rules. */
export type LeftOut = NeededReference & { ruled: readonly string[] };

/** The whole object, once every reference is an external id. References of which `externalIdOf` returns null are left out. */
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

/** No key when a column is null; several when a single column holds a list. */
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
 * A row that throws for a column it does not have, since a typo would otherwise empty a field without an error; and for a
 * value that cannot be sent, since a function might make text of it.
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

/** No index of the state would take it. */
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
