// By what a row and an object that nobody stands for are recognized as the same thing: equal values of certain fields.
import type { FieldValues } from './destination-object.js';

/** What holds the place of a reference to a record that is not at the service yet. No value of a field is equal to it. */
export const NOT_THERE_YET = '\u0000';

/** The values of these fields, in this order; a field without a value has none. */
export function valuesOf(fieldIds: readonly string[], fields: readonly FieldValues[]): (readonly string[])[] {
  return fieldIds.map((id) => fields.find(({ fieldId }) => fieldId === id)?.values ?? []);
}

/**
 * One text for the values of these fields: two that are equal name the same thing. Undefined when a field has no value
 * that can be compared: what is empty on both sides is not the same.
 */
export function matchValue(fieldIds: readonly string[], fields: readonly FieldValues[]): string | undefined {
  const values = valuesOf(fieldIds, fields);
  const isComparable = (list: readonly string[]) =>
    list.some((value) => value !== '') && !list.includes(NOT_THERE_YET);
  return values.length > 0 && values.every(isComparable) ? JSON.stringify(values) : undefined;
}
