// `pause` and `resume`: for one run, or for all runs that are not incremental. `cancel`: for one run.
import type { App } from '../app/app.js';
import { print } from '../render/print.js';
import { actAs, toRuns } from '../state/actions.js';
import { findPausableRun, findUnfinishedRun } from '../state/runs/read-runs.js';
import type { Queries } from '../state/database.js';
import { setPaused } from '../state/runs/advance-run.js';
import type { CommonOptions, ReasonOption } from './command.js';
import { cancelRun } from '../state/runs/end-run.js';

type RunAction = [app: App, id: number | undefined, options: CommonOptions & ReasonOption];

export async function pause(...[app, id, options]: RunAction): Promise<void> {
  const { db } = await app.state();
  const run = id === undefined ? undefined : await findPausableRun(db, id);
  const paused = await setAllPaused(true, app, run?.id, options);
  const none = run ? `Run ${run.id} is already paused.` : 'No run is under way.';
  const describe = (each: number) =>
    `Run ${each} is paused: requests in progress are answered. To continue: slotsync resume ${each}`;
  print(options, { paused }, paused.length > 0 ? paused.map(describe) : [none]);
}

export async function resume(...[app, id, options]: RunAction): Promise<void> {
  const { db } = await app.state();
  const run = id === undefined ? undefined : await findUnfinishedRun(db, id);
  const resumed = await setAllPaused(false, app, run?.id, options);
  if (resumed.length > 0) await (await app.queue()).producer.requeue();
  const none = run ? `Run ${run.id} is not paused.` : 'No run is paused.';
  const describe = (each: number) =>
    `Run ${each} is resumed. A worker, sync or backfill with its configuration continues it. To watch: slotsync status`;
  print(options, { resumed }, resumed.length > 0 ? resumed.map(describe) : [none]);
}

async function setAllPaused(isPaused: boolean, ...[app, id, { reason }]: RunAction): Promise<number[]> {
  const { db } = await app.state();
  const actor = await app.actor(reason);
  return actAs(db, actor, isPaused ? 'pause' : 'resume', (tx) => setPaused(tx, isPaused, id), toRuns);
}

export async function cancel(app: App, id: number, options: CommonOptions & ReasonOption): Promise<void> {
  const { db } = await app.state();
  const run = await findUnfinishedRun(db, id);
  const actor = await app.actor(options.reason);
  const end = (tx: Queries) => cancelRun(tx, run.id);
  await actAs(db, actor, 'cancel', end, () => toRuns([run.id]));
  print(options, { cancelled: run.id }, [
    `Run ${run.id} is cancelled: requests in progress are answered, and what was accepted stays at the service.`,
    run.range?.force === true
      ? 'Its unsent records are no longer to be sent again, and a sync skips unchanged ones. To send them nevertheless: slotsync backfill --force'
      : 'Its other records are sent by the next run: slotsync sync',
  ]);
}
