// Streams with the contents of their lookups. A lookup that is a table of the mirror may change at any time, and a worker
// runs for weeks: so the tables are read for each run anew, by every process that plans it or applies a batch of it. Row
// hashes are seeded with what was read, so whichever content a row was sent with, a later plan sees whether it is the
// present one.
import { SlotsyncError } from '../../errors/errors.js';
import type { Mirror } from '../../mirror/mirror.js';
import {
  fillLookups,
  type LookupContent,
  type LookupTable,
  type UsedLookups,
} from '../../streams/lookups.js';
import type { Stream } from '../../streams/stream.js';

type LookupMirror = Pick<Mirror, 'readLookup'>;
type Streams = ReadonlyMap<string, Stream>;

/** Runs whose streams are kept. */
const MOST_RUNS = 20;

export type CurrentStreams = ReturnType<typeof createCurrentStreams>;

export function createCurrentStreams(mirror: LookupMirror, declared: Streams) {
  const ofRuns = new Map<number, Promise<Streams>>();
  const isConstant = [...declared.values()].every(({ lookups }) => lookups.tables.size === 0);

  async function read(): Promise<Streams> {
    if (isConstant) return declared;
    const filled = await readLookupTables(mirror, [...declared.values()]);
    return new Map(filled.map((stream) => [stream.name, stream]));
  }

  return {
    /** With the tables as they are now. */
    read,

    /** With the tables as they were when this process first met the run. */
    async ofRun(runId: number): Promise<Streams> {
      const known = ofRuns.get(runId);
      if (known) return known;
      const reading = read();
      ofRuns.set(runId, reading);
      for (const oldest of ofRuns.keys()) if (ofRuns.size > MOST_RUNS) ofRuns.delete(oldest);
      const isUnread = await reading.then(
        (streams) => [...streams.values()].some(({ lookups }) => lookups.fault),
        () => true,
      );
      // The next attempt reads again.
      if (isUnread) ofRuns.delete(runId);
      return reading;
    },
  };
}

/**
 * These declarations with the tables of their lookups as they are now, each read once. One that cannot be read is the
 * `fault` of those that use it: nothing of them can be mapped, and the others go on.
 */
export async function readLookupTables<T extends { lookups: UsedLookups; fingerprint?: bigint }>(
  mirror: LookupMirror,
  declared: readonly T[],
): Promise<T[]> {
  const tables = new Map<string, LookupTable>(declared.flatMap(({ lookups }) => [...lookups.tables]));
  const contents = new Map<string, LookupContent>();
  const faults = new Map<string, SlotsyncError>();
  for (const [name, table] of tables) {
    try {
      contents.set(name, await mirror.readLookup(name, table));
    } catch (error) {
      if (!(error instanceof SlotsyncError)) throw error;
      faults.set(name, error);
    }
  }
  return declared.map((one) => {
    if (one.lookups.tables.size === 0) return one;
    const fault = [...one.lookups.tables.keys()].map((name) => faults.get(name)).find(Boolean);
    return fault ? { ...one, lookups: { ...one.lookups, fault } } : fillLookups(one, contents);
  });
}

/** Throws why the lookups of a declaration cannot be read. */
export function requireLookups({ lookups }: Pick<Stream, 'lookups'>): void {
  if (lookups.fault) throw lookups.fault;
}
