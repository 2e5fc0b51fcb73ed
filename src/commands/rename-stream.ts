import type { App } from '../app/app.js';
import { UsageError } from '../errors/errors.js';
import { print, printNote } from '../render/print.js';
import { actAs } from '../state/actions.js';
import { renameStream as moveStream } from '../state/rename-stream.js';
import { lines, plural } from '../text/format.js';
import type { CommonOptions, ReasonOption } from './command.js';

export async function renameStream(
  app: App,
  from: string,
  to: string,
  options: CommonOptions & ReasonOption,
): Promise<void> {
  if (from === to) throw new UsageError(`both names are '${from}'`);
  const { streams } = await app.configuration();
  const stream = streams.find(({ name }) => name === to);
  if (!stream)
    throw new UsageError(`no stream '${to}' is in the configuration`, {
      remedy: `Rename '${from}' there first, also where other streams and \`reservations\` name it, and run this again.`,
    });
  if (streams.some(({ name }) => name === from))
    throw new UsageError(`the stream '${from}' is still in the configuration`, {
      remedy: 'Only a stream that has another name there now can be renamed.',
    });
  const { db } = await app.state();
  const statements = await (await app.triggers()).renaming(from, stream);
  const records = await actAs(
    db,
    await app.actor(options.reason),
    'rename_stream',
    (tx) => moveStream(tx, { from, to }, statements, { onWait: printNote }),
    () => ({ subject: `${from} to ${to}` }),
  );
  const hasTriggers = statements.length > 0;
  print(
    options,
    { from, to, records, hasTriggers, next: `slotsync sync ${to}` },
    lines(
      `The stream '${from}' is '${to}' now, with ${plural(records, 'record')} and everything else that is known of it.`,
      hasTriggers && 'Its triggers have the new name too.',
      `To find what has changed meanwhile: slotsync sync ${to}`,
    ),
  );
}
