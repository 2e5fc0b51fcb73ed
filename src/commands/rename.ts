import type { App } from '../app.js';
import { selectStream } from '../config-file.js';
import { lines, print } from '../report/print.js';
import { renameKey } from '../sync/rename-record.js';
import type { CommonOptions } from './command.js';

export async function rename(
  app: App,
  name: string,
  from: string,
  to: string,
  options: CommonOptions,
): Promise<void> {
  const stream = selectStream(await app.configuration(), name);
  const deps = { mirror: await app.mirror(), state: await app.state() };
  const { externalId, isLinked, templateId } = await renameKey(deps, stream, { from, to });
  print(
    options,
    { stream: name, from, to, externalId, isLinked, next: `slotsync sync ${name}` },
    lines(
      `The object '${externalId}' belongs to ${name} '${to}' now, with its bookings, and no longer to '${from}'.`,
      isLinked &&
        `The record is linked to it${templateId === undefined ? '' : `: its template would give '${templateId}'`}.`,
      `The next run sends what differs: slotsync sync ${name}`,
    ),
  );
}
