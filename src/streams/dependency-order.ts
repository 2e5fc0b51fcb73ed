// Parents before children: streams get levels by their references, so that the records a record refers to are sent before
// it.
import type { Fault } from './config-schema.js';

/** Level of each stream: 0 refers to nothing, n refers to something of level n-1. Cycles are faults, by name. */
export function levelStreams(
  references: ReadonlyMap<string, readonly string[]>,
  faults: Fault[],
): Map<string, number> {
  const levels = new Map<string, number>();

  function levelOf(stream: string, path: readonly string[]): number {
    const known = levels.get(stream);
    if (known !== undefined) return known;
    const start = path.indexOf(stream);
    if (start >= 0) {
      const cycle = [...path.slice(start), stream];
      const message = `the streams refer to each other in a circle: ${cycle.join(' → ')}; leave one of these references out`;
      if (!faults.some((fault) => fault.message === message))
        faults.push({ path: `streams.${stream}.references`, message });
      return 0;
    }
    const parents = (references.get(stream) ?? []).filter((parent) => references.has(parent));
    const level = parents.reduce((most, one) => Math.max(most, levelOf(one, [...path, stream]) + 1), 0);
    levels.set(stream, level);
    return level;
  }

  for (const stream of references.keys()) levelOf(stream, []);
  return levels;
}
