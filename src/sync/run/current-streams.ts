// Fills the streams' lookup tables with their current content in the mirror. A worker runs for weeks while these tables
// change, so each run reads them again. The content is part of the row hashes, so a plan finds rows that were sent with
// other content.
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

/** Maximum number of runs whose streams are kept. */
const MOST_RUNS = 20;

export function createCurrentStreams(mirror: LookupMirror, declared: Streams) {
  const ofRuns = new Map<number, Promise<Streams>>();
  const isConstant = [...declared.values()].every(({ lookups }) => lookups.tables.size === 0);

  async function read(): Promise<Streams> {
    if (isConstant) return declared;
    const filled = await readLookupTables(mirror, [...declared.values()]);
    return new Map(filled.map((stream) => [stream.name, stream]));
  }

  return {
    /** Returns the streams with the lookup tables as they are now. */
    read,

    /** Returns the streams with the lookup tables as they were when this process first worked on the run. */
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
      // If a table could not be read, the result is not kept, so that the next attempt reads again.
      if (isUnread) ofRuns.delete(runId);
      return reading;
    },
  };
}

/**
 * Reads the lookup tables of these declarations from the mirror, each once. If a table cannot be read, `fault` is set
 * on the declarations that use it, whose rows then cannot be mapped.
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

/** Throws the error if the lookup tables of a stream could not be read. */
export function requireLookups({ lookups }: Pick<Stream, 'lookups'>): void {
  if (lookups.fault) throw lookups.fault;
}
