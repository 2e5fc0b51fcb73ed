// Questions of the configuration about the load of the mirror.
import type { Stream } from './stream.js';

/** Names of the streams that ask. */
export const namesOfAsking = (streams: Iterable<Pick<Stream, 'name' | 'freshness'>>): string[] =>
  [...streams].flatMap(({ name, freshness }) => (freshness === undefined ? [] : [name]));

/** Whether two streams ask the same question: one answer serves both. */
export function readsSameLoad(one: Stream, other: Stream): boolean {
  const asked = one.freshness?.query;
  return (
    one === other ||
    (asked !== undefined &&
      asked === other.freshness?.query &&
      one.source.rowSecurity === other.source.rowSecurity)
  );
}
