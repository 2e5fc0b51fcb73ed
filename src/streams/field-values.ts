// The destination stores lists of texts. Here a value becomes one.
import type { FieldValue } from './config-schema.js';

/**
 * A column's or function's value as the destination's list of texts: null and undefined send nothing,
 * a list gives several values, dates become YYYY-MM-DD (in UTC when a Date).
 * Throws a plain Error that says what cannot be sent.
 */
export function toValues(value: FieldValue): string[] {
  if (value === null || value === undefined) return [];
  if (Array.isArray(value)) return (value as readonly FieldValue[]).flatMap(toValues);
  switch (typeof value) {
    case 'string':
      return [value];
    case 'boolean':
    case 'bigint':
      return [String(value)];
    case 'number':
      if (!Number.isFinite(value)) throw new Error(`${value} is not a number that can be sent`);
      return [String(value)];
    case 'object':
      if (value instanceof Date) {
        if (Number.isNaN(value.getTime())) throw new Error('the date is not valid');
        return [value.toISOString().slice(0, 10)];
      }
      throw new Error('an object cannot be sent; map it to text with a function of the row');
    default:
      throw new Error(`a ${typeof value} cannot be sent; map it to text with a function of the row`);
  }
}
