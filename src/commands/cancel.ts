import type { App } from '../app/app.js';
import { print } from '../render/print.js';
import { actAs } from '../state/actions.js';
import { cancelRun } from '../state/runs/end-run.js';
import { findUnfinishedRun } from '../state/runs/read-runs.js';
import type { CommonOptions, ReasonOption } from './command.js';
import { readRunNumber } from './find-run.js';

export async function cancel(app: App, id: string, options: CommonOptions & ReasonOption): Promise<void> {
  const { db } = await app.state();
  const run = await findUnfinishedRun(db, readRunNumber(id));
  const actor = await app.actor(options.reason);
  await actAs(
    db,
    actor,
    'cancel',
    (tx) => cancelRun(tx, run.id),
    () => ({ runId: run.id }),
  );
  print(options, { cancelled: run.id }, [
    `Run ${run.id} is cancelled: requests in progress are answered, and what was accepted stays at the service.`,
    run.range?.force === true
      ? 'It clears the wish to send again what it had not sent: a sync leaves out what has not changed. To send that all the same: slotsync backfill --force'
      : 'Its other records are sent by the next run: slotsync sync',
  ]);
}
