import { lines, plural } from '../text/format.js';
import type { App } from '../app/app.js';
import { selectStream } from '../config/config-file.js';
import { print, printNote } from '../render/print.js';
import { noteAction, actAs } from '../state/actions.js';
import { renameKey } from '../sync/operator/rename-key.js';
import type { CommonOptions, ReasonOption } from './command.js';
import { UsageError } from '../errors/errors.js';
import { LONG_STATEMENT_SECONDS, openState } from '../state/database.js';
import { renameStream as moveStream } from '../state/rename-stream.js';

export async function rename(
  app: App,
  name: string,
  from: string,
  to: string,
  options: CommonOptions & ReasonOption,
): Promise<void> {
  const stream = selectStream(await app.configuration(), name);
  const deps = { mirror: await app.mirror(), state: await app.state(), streams: await app.streams() };
  const actor = await app.actor(options.reason);
  const { externalId, isLinked, templateId, former } = await renameKey(deps, stream, { from, to });
  await noteAction(deps.state.db, actor, 'rename', { subject: `${name} '${from}' to '${to}'` });
  print(
    options,
    { stream: name, from, to, externalId, isLinked, former: former ?? null, next: `slotsync sync ${name}` },
    lines(
      `The object '${externalId}' and its bookings now belong to ${name} '${to}' instead of '${from}'.`,
      isLinked &&
        `The record is linked to it${templateId === undefined ? '' : `: its template would give '${templateId}'`}.`,
      former !== undefined &&
        `The object '${former}', which '${to}' had until now, no longer has a row: ${
          stream.retire === 'keep'
            ? `${name} keeps such objects active.`
            : 'the next run deactivates it, within the limits.'
        }`,
      `To send the differences: slotsync sync ${name}`,
    ),
  );
}

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
      remedy: 'Give the stream its new name in the configuration first.',
    });
  await app.state(); // it is migrated
  const state = openState({ url: app.stateUrl(), statementSeconds: LONG_STATEMENT_SECONDS });
  app.own(state, state.close);
  const statements = await (await app.triggers()).renaming(from, stream);
  const records = await actAs(
    state.db,
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
      `The stream '${from}' is now '${to}', with ${plural(records, 'record')} and all its other data.`,
      hasTriggers && 'Its triggers have the new name too.',
      `To sync what has changed meanwhile: slotsync sync ${to}`,
    ),
  );
}
