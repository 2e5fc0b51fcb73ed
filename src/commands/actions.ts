import type { App } from '../app/app.js';
import { actionsDocument } from '../documents/actions.js';
import { printDocument } from '../render/print-document.js';
import { listActions } from '../state/actions.js';
import { readClock } from '../state/database.js';
import type { CommonOptions } from './command.js';
import { readSince } from './read-options.js';

interface ActionsOptions extends CommonOptions {
  limit: number;
  run?: number;
  since?: string;
}

export async function actions(app: App, options: ActionsOptions): Promise<void> {
  const { db } = await app.state();
  const timeZone = await app.timeZone();
  const listed = await listActions(db, {
    runId: options.run,
    from: readSince(options.since, await readClock(db), timeZone),
    limit: options.limit,
  });
  printDocument(actionsDocument(listed), { json: options.json, timeZone }, { actions: listed });
}
