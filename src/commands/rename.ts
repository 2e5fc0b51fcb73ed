import { lines } from '../text/format.js';
import type { App } from '../app/app.js';
import { selectStream } from '../config/config-file.js';
import { print } from '../render/print.js';
import { noteAction } from '../state/actions.js';
import { renameKey } from '../sync/operator/rename-record.js';
import type { CommonOptions, ReasonOption } from './command.js';

export async function rename(
  app: App,
  name: string,
  from: string,
  to: string,
  options: CommonOptions & ReasonOption,
): Promise<void> {
  const configuration = await app.configuration();
  const stream = selectStream(configuration, name);
  const streams = new Map(configuration.streams.map((one) => [one.name, one]));
  const deps = { mirror: await app.mirror(), state: await app.state(), streams };
  const actor = await app.actor(options.reason);
  const { externalId, isLinked, templateId, former } = await renameKey(deps, stream, { from, to });
  await noteAction(deps.state.db, actor, 'rename', { subject: `${name} '${from}' to '${to}'` });
  print(
    options,
    { stream: name, from, to, externalId, isLinked, former: former ?? null, next: `slotsync sync ${name}` },
    lines(
      `The object '${externalId}' belongs to ${name} '${to}' now, with its bookings, and no longer to '${from}'.`,
      isLinked &&
        `The record is linked to it${templateId === undefined ? '' : `: its template would give '${templateId}'`}.`,
      former !== undefined &&
        `The object '${former}', which '${to}' had until now, has no row any more: ${
          stream.retire === 'keep'
            ? `${name} keeps such objects as they are.`
            : 'the next run deactivates it, within the limits.'
        }`,
      `The next run sends what differs: slotsync sync ${name}`,
    ),
  );
}
