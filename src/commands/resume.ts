import type { App } from '../app.js';
import { print } from '../report/print.js';
import { setPaused } from '../state/runs/pause-runs.js';
import type { CommonOptions } from './command.js';
import { EXIT } from './exit-code.js';
import { findUnfinishedRun } from './find-run.js';

export async function resume(app: App, id: string | undefined, options: CommonOptions): Promise<number> {
  const { db } = await app.state();
  const run = id === undefined ? undefined : await findUnfinishedRun(db, id);
  const resumed = await setPaused(db, false, run?.id);
  if (resumed.length > 0) await (await app.queue()).producer.requeue();
  const lines = resumed.map(
    (each) => `Run ${each} goes on with the next worker, sync or backfill; watch it with: slotsync status`,
  );
  const none = run ? `Run ${run.id} is not paused.` : 'No run is paused.';
  print(options, { resumed }, lines.length > 0 ? lines : [none]);
  return EXIT.done;
}
