// Converts a value of the mirror to the list of texts that the destination stores.
import type { FieldValue } from './config-schema.js';

/**
 * A value of the mirror without a text form at the service: NaN, an infinity, or a date that has no YYYY-MM-DD form.
 * Mapping such a value fails, so that no misleading text is sent.
 */
export class UnfitValue {
  /** The value as PostgreSQL prints it. */
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** Describes the value without personal data, for an error message. */
  describe(): string {
    if (/nan|infinity/i.test(this.text)) return this.text;
    return this.text.includes('BC') ? 'a date before the year 1' : 'a date after the year 9999';
  }

  toJSON(): string {
    return this.text;
  }
}

/**
 * Converts a value of a column or function to a list of texts. Null becomes an empty list, and a Date becomes
 * YYYY-MM-DD in UTC. Throws a plain Error for a value that cannot be sent.
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
        value.catch(() => undefined); // an unhandled rejection would end the process
        throw new Error('a promise cannot be sent; a function of the row must return its value at once');
      }
      throw new Error('an object cannot be sent; map it to text with a function of the row');
    default:
      throw new Error(`a ${typeof value} cannot be sent; map it to text with a function of the row`);
  }
}
