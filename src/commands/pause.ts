// `pause` and `resume`: of one run, or of every run that is not incremental.
import type { App } from '../app/app.js';
import { print } from '../render/print.js';
import { actAs, toRuns } from '../state/actions.js';
import { findPausableRun, findUnfinishedRun } from '../state/runs/read-runs.js';
import { setPaused } from '../state/runs/advance-run.js';
import type { CommonOptions, ReasonOption } from './command.js';
import { readRunNumber } from './find-run.js';

export async function pause(
  app: App,
  id: string | undefined,
  options: CommonOptions & ReasonOption,
): Promise<void> {
  const { db } = await app.state();
  const run = id === undefined ? undefined : await findPausableRun(db, readRunNumber(id));
  const paused = await actAs(
    db,
    await app.actor(options.reason),
    'pause',
    (tx) => setPaused(tx, true, run?.id),
    toRuns,
  );
  const none = run ? `Run ${run.id} is paused already.` : 'No run is under way.';
  const describe = (each: number) =>
    `Run ${each} is paused: requests in progress are answered. To continue: slotsync resume ${each}`;
  print(options, { paused }, paused.length > 0 ? paused.map(describe) : [none]);
}

export async function resume(
  app: App,
  id: string | undefined,
  options: CommonOptions & ReasonOption,
): Promise<void> {
  const { db } = await app.state();
  const run = id === undefined ? undefined : await findUnfinishedRun(db, readRunNumber(id));
  const resumed = await actAs(
    db,
    await app.actor(options.reason),
    'resume',
    (tx) => setPaused(tx, false, run?.id),
    toRuns,
  );
  if (resumed.length > 0) await (await app.queue()).producer.requeue();
  const none = run ? `Run ${run.id} is not paused.` : 'No run is paused.';
  const describe = (each: number) =>
    `Run ${each} goes on with the next worker, sync or backfill of its configuration; watch it with: slotsync status`;
  print(options, { resumed }, resumed.length > 0 ? resumed.map(describe) : [none]);
}
