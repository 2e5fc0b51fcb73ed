// The row of a run, as it is asked for.
import { sql } from 'drizzle-orm';
import type { Fingerprints } from '../../streams/fingerprints.js';
import type { Queries } from '../database.js';
import { runs, type RunKind, type RunRange, type StartedBy } from '../schema.js';
import { noteAttempted } from '../streams.js';
import { isWhole, type Run } from './read-runs.js';

export interface RunRequest {
  kind: RunKind;
  lane: string;
  startedBy: StartedBy;
  streams: readonly string[];
  range?: RunRange | undefined;
  /** The fingerprints of the configuration that it belongs to. A run that only reads is worked by who started it, and needs none. */
  fingerprints?: Fingerprints | undefined;
}

/** Writes the row of a run, without looking at others: as to be planned, or as under way already. */
export async function insertRun(
  tx: Queries,
  { streams, range, fingerprints, ...request }: RunRequest,
  status: 'planning' | 'running' = 'planning',
): Promise<Run> {
  const startedAt = status === 'running' ? sql`now()` : null;
  const row = {
    ...request,
    streams: [...streams],
    range: range ?? null,
    status,
    startedAt,
    configuration: fingerprints?.configuration ?? null,
    fingerprints: fingerprints
      ? Object.fromEntries(streams.map((name) => [name, fingerprints.streams[name] ?? '']))
      : null,
  };
  const [run] = await tx.insert(runs).values(row).returning();
  if (!run) throw new Error('the run was not written');
  if (isWhole(run)) await noteAttempted(tx, streams);
  return run;
}
