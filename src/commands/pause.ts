import type { App } from '../app.js';
import { UsageError } from '../errors.js';
import { print } from '../report/print.js';
import { setPaused } from '../state/runs/pause-runs.js';
import type { CommonOptions } from './command.js';
import { EXIT } from './exit-code.js';
import { findUnfinishedRun } from './find-run.js';

export async function pause(app: App, id: string | undefined, options: CommonOptions): Promise<number> {
  const { db } = await app.state();
  const run = id === undefined ? undefined : await findUnfinishedRun(db, id);
  if (run?.kind === 'reconcile') {
    throw new UsageError(`run ${run.id} is a reconcile run, which only reads and cannot be paused`, {
      remedy: `To end it: slotsync cancel ${run.id}`,
    });
  }
  const paused = await setPaused(db, true, run?.id);
  const lines = paused.map(
    (each) => `Run ${each} is paused: batches in progress are finished. To go on: slotsync resume ${each}`,
  );
  const none = run ? `Run ${run.id} is paused already.` : 'No run is under way.';
  print(options, { paused }, lines.length > 0 ? lines : [none]);
  return EXIT.done;
}
