// The values by which an object is found that is at the service already. Runs, which go by `match`, and the match command
// compare here.
import type { FieldValues } from '../../streams/destination-object.js';

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
