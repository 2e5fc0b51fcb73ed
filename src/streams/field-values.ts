// The destination stores lists of texts. Here a value becomes one.
import type { FieldValue } from './config-schema.js';

/**
 * A value of the mirror that no text can express at the service: NaN, an infinity, a date of which YYYY-MM-DD cannot be
 * said. The mapping that uses it fails, so that it never arrives as a text that reads like a value.
 */
export class UnfitValue {
  /** As PostgreSQL prints it. */
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** In words that hold nothing of a person. */
  describe(): string {
    if (/nan|infinity/i.test(this.text)) return this.text;
    return this.text.includes('BC') ? 'a date before the year 1' : 'a date after the year 9999';
  }

  toJSON(): string {
    return this.text;
  }
}

/**
 * A column's or function's value as the destination's list of texts: null and undefined send nothing,
 * a list becomes several values, dates become YYYY-MM-DD (in UTC when a Date).
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
      if (value instanceof UnfitValue) throw new Error(`${value.describe()} cannot be sent`);
      if (value instanceof Date) {
        if (Number.isNaN(value.getTime())) throw new Error('the date is not valid');
        return [value.toISOString().slice(0, 10)];
      }
      if (value instanceof Promise) {
        value.catch(() => undefined); // a rejection that nobody handles would end the process
        throw new Error('a promise cannot be sent; a function of the row must return its value at once');
      }
      throw new Error('an object cannot be sent; map it to text with a function of the row');
    default:
      throw new Error(`a ${typeof value} cannot be sent; map it to text with a function of the row`);
  }
}
