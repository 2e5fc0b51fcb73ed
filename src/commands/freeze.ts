// `freeze` and `unfreeze`: nothing of these streams is written until a time, or from now on again.
import type { App } from '../app/app.js';
import { selectStreams } from '../config/config-file.js';
import { UsageError } from '../errors/errors.js';
import { print } from '../render/print.js';
import { actAs } from '../state/actions.js';
import { readClock } from '../state/database.js';
import { freezeStreams, listFrozen, unfreezeStreams } from '../state/freezes.js';
import { formatMinute, lines } from '../text/format.js';
import type { CommonOptions, ReasonOption } from './command.js';
import { readUntil } from './read-time.js';

interface FreezeOptions extends CommonOptions {
  until: string;
  reason: string;
}

export async function freeze(app: App, names: string[], options: FreezeOptions): Promise<void> {
  const streams = selectStreams(await app.configuration(), names).map(({ name }) => name);
  const { db } = await app.state();
  const timeZone = await app.timeZone();
  const endsAt = readUntil(options.until, '--until', await readClock(db), timeZone);
  const actor = await app.actor(options.reason);
  const { reason } = actor;
  if (reason === undefined) throw new UsageError('--reason is empty: say why, for whoever sees what waits');
  const until = formatMinute(endsAt, timeZone);
  await actAs(
    db,
    actor,
    'freeze',
    (tx) => freezeStreams(tx, { streams, endsAt, reason }),
    () => ({ subject: `${streams.join(', ')} until ${until}` }),
  );
  print(options, { frozen: await listFrozen(db, streams) }, [
    `Frozen until ${until}: ${streams.join(', ')}. Requests in progress are answered.`,
    'Runs plan as before and hold what they would send; changes wait in the inbox.',
    `To see what waits: slotsync status. To end it earlier: ${['slotsync unfreeze', ...names].join(' ')}`,
  ]);
}

export async function unfreeze(
  app: App,
  names: string[],
  options: CommonOptions & ReasonOption,
): Promise<void> {
  const streams = selectStreams(await app.configuration(), names).map(({ name }) => name);
  const { db } = await app.state();
  const timeZone = await app.timeZone();
  const unfrozen = await actAs(
    db,
    await app.actor(options.reason),
    'unfreeze',
    (tx) => unfreezeStreams(tx, streams),
    (ended) => (ended.length > 0 ? { subject: ended.join(', ') } : undefined),
  );
  const frozen = await listFrozen(db, streams);
  const left = unfrozen.filter((stream) => !frozen.some((freeze) => freeze.stream === stream));
  print(options, { unfrozen, frozen }, [
    ...lines(
      unfrozen.length === 0 && frozen.length === 0 && 'None of these streams is frozen.',
      left.length > 0 &&
        `No longer frozen: ${left.join(', ')}. A worker plans what waited within 15 seconds; without one: ${['slotsync sync', ...left].join(' ')}`,
    ),
    ...frozen.map(
      ({ stream, endsAt, reason }) =>
        `${stream} is frozen by the configuration until ${formatMinute(endsAt, timeZone)} (${reason}). To end that: correct \`freeze\` there, and restart the worker.`,
    ),
  ]);
}
