// A repair: the run that sends again what drifts.
import type { Queries } from '../../state/database.js';
import type { Run } from '../../state/runs/read-runs.js';
import { startFreeRun } from '../../state/runs/start-run.js';
import type { StartedBy } from '../../state/schema.js';

/** Starts a run over those of the streams that no unfinished run covers; undefined: each is covered. */
export async function startRepairRun(
  db: Queries,
  { streams, startedBy }: { streams: readonly string[]; startedBy: StartedBy },
): Promise<Run | undefined> {
  const request = { kind: 'verify', lane: 'verify', startedBy, streams, range: { repair: true } } as const;
  return (await startFreeRun(db, request)).run;
}
