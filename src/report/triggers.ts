// What `triggers` prints of a stream's table and of the triggers it removed.
import type { Stream } from '../streams/stream.js';

export function describeSource({ source }: Pick<Stream, 'source'>): string {
  return 'table' in source ? source.table.join('.') : 'a query';
}

export function describeRemoved(wanted: readonly string[], removed: readonly string[]): string[] {
  if (wanted.length === 0) return ['No triggers are installed.'];
  return wanted.map((name) =>
    removed.includes(name) ? `${name}: triggers removed` : `${name}: there were none`,
  );
}
