import type { App } from '../app/app.js';
import { deleteQueues } from '../queue/bullmq.js';
import { print, printLine, printNote } from '../render/print.js';
import { LONG_STATEMENT_SECONDS, openState } from '../state/database.js';
import { requireSchema } from '../state/migrate.js';
import { countLosses, dropState, readDestination, requireIdle, type Losses } from '../state/reset.js';
import { plural } from '../text/format.js';
import { confirm } from './ask.js';
import { type CommonOptions, EXIT } from './command.js';

export async function reset(app: App, options: CommonOptions & { yes?: boolean }): Promise<number> {
  const state = openState({ url: app.stateUrl(), statementSeconds: LONG_STATEMENT_SECONDS });
  app.own(state, state.close);
  await requireSchema(state);
  await state.db.transaction(requireIdle);
  const binding = await readDestination(state.db);
  const triggers = await app.triggers();
  const lost = { ...(await countLosses(state.db)), triggers: (await triggers.list()).length };
  const what = `all data of slotsync about ${binding ? `organization ${binding.organizationId} at ${binding.baseUrl}` : 'no service yet'}: ${describe(lost)}`;
  const isConfirmed = await confirm(options, {
    lines: [
      `This removes ${what}.`,
      'Objects and bookings at the service and rows of the mirror stay as they are.',
    ],
    question: 'Remove it?',
    unasked: [`reset removes ${what}`, 'If that is meant: slotsync reset --yes'],
  });
  if (!isConfirmed) {
    printLine('Nothing was removed.');
    return EXIT.failed;
  }
  const statements = await triggers.removal();
  const before = async () => {
    if (binding) await deleteQueues(app.queueStore(), binding.stateId);
  };
  await dropState(state, { statements, before }, { onWait: printNote });
  print(options, { removed: lost }, [
    `Removed ${what}.`,
    'To start from nothing: slotsync migrate. If objects of these rows are at the service: slotsync verify --adopt, then slotsync plan',
  ]);
  return EXIT.done;
}

function describe(lost: Losses & { triggers: number }) {
  return [
    plural(lost.records, 'record'),
    plural(lost.links, 'link'),
    plural(lost.runs, 'run'),
    plural(lost.held, 'held record'),
    `${plural(lost.changes, 'change')} in the inbox`,
    plural(lost.bookings, 'booking'),
    `triggers of ${plural(lost.triggers, 'stream')}`,
  ].join(', ');
}
