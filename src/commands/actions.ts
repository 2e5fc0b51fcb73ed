import type { App } from '../app/app.js';
import { actionsDocument } from '../documents/actions.js';
import { printDocument } from '../render/print.js';
import { listActions } from '../state/actions.js';
import { readClock } from '../state/database.js';
import type { CommonOptions } from './command.js';
import { readRunNumber } from './find-run.js';
import { readSince } from './read-time.js';
import { readWholeNumber } from './work-run.js';

interface ActionsOptions extends CommonOptions {
  limit: string;
  run?: string;
  since?: string;
}

export async function actions(app: App, options: ActionsOptions): Promise<void> {
  const { db } = await app.state();
  const timeZone = await app.timeZone();
  const listed = await listActions(db, {
    runId: options.run === undefined ? undefined : readRunNumber(options.run),
    from:
      options.since === undefined
        ? undefined
        : readSince(options.since, '--since', await readClock(db), timeZone),
    limit: readWholeNumber(options.limit, '--limit takes'),
  });
  printDocument(actionsDocument(listed), { json: options.json, timeZone }, { actions: listed });
}
