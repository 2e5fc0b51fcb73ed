// A repair: the run that sends again what drifts.
import type { Queries } from '../../state/database.js';
import type { Run } from '../../state/runs/read-runs.js';
import { type RunRequest, startFreeRun } from '../../state/runs/start-run.js';

/** Starts a run over those of the streams that no unfinished run covers; undefined: each is covered. */
export async function startRepairRun(
  db: Queries,
  { streams, ...started }: Pick<RunRequest, 'streams' | 'startedBy' | 'fingerprints'>,
): Promise<Run | undefined> {
  const request = { kind: 'repair', lane: 'verify', ...started, streams } as const;
  return (await startFreeRun(db, request)).run;
}
