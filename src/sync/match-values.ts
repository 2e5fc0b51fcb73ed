// The values by which an object is found that is at the service already: those of the fields in `match`. Runs and the
// match command compare here.
import type { FieldValues } from '../streams/destination-object.js';
import type { Stream } from '../streams/stream.js';

/** The values of all fields in `match` as one text, equal where all values are. Undefined: one of them has no value. */
export function matchValues(
  { match = [] }: Pick<Stream, 'match'>,
  { fields }: { fields: readonly FieldValues[] },
): string | undefined {
  const values = match.map((wanted) => fields.find(({ fieldId }) => fieldId === wanted)?.values ?? []);
  return match.length === 0 || values.some(({ length }) => length === 0) ? undefined : JSON.stringify(values);
}
