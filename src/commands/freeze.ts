// `freeze` and `unfreeze`: forbids writes to streams until a time, and allows them again.
import type { App } from '../app/app.js';
import { selectStreams, type Configuration } from '../config/config-file.js';
import { UsageError } from '../errors/errors.js';
import { print } from '../render/print.js';
import { actAs } from '../state/actions.js';
import { readClock, type Queries } from '../state/database.js';
import {
  freezeStreams,
  listFreezes,
  listFrozen,
  unfreezeStreams,
  type FrozenStream,
  type StandingFreeze,
  endFreezes,
} from '../state/freezes.js';
import { markDue } from '../state/streams.js';
import { formatMinute, lines } from '../text/format.js';
import type { CommonOptions, ReasonOption } from './command.js';
import { readUntil } from './read-options.js';

export async function freeze(
  app: App,
  names: string[],
  options: CommonOptions & { until: string; reason: string },
): Promise<void> {
  const streams = selectStreams(await app.configuration(), names).map(({ name }) => name);
  const { db } = await app.state();
  const timeZone = await app.timeZone();
  const endsAt = readUntil(options.until, await readClock(db), timeZone);
  const actor = await app.actor(options.reason);
  const { by, reason } = actor;
  if (reason === undefined)
    throw new UsageError(
      '--reason is empty: say why, because the reason is shown beside the waiting changes',
    );
  const until = formatMinute(endsAt, timeZone);
  const named = names.length === 0 ? 'all streams' : streams.join(', ');
  const asked = { streams: names.length === 0 ? null : streams, endsAt, reason, by };
  await actAs(
    db,
    actor,
    'freeze',
    (tx) => freezeStreams(tx, asked),
    () => ({ subject: `${named} until ${until}` }),
  );
  print(options, { frozen: await listFrozen(db, streams) }, [
    `Frozen until ${until}: ${named}. Requests in progress are answered.`,
    'Runs still plan, and hold their changes. Changed keys wait in the inbox.',
    `To see what waits: slotsync status. To end it earlier: ${['slotsync unfreeze', ...names].join(' ')}`,
  ]);
}

/** Ends freezes of streams, which need not be configured. Without names, ends every freeze set by a command. */
export async function unfreeze(
  app: App,
  names: string[],
  options: CommonOptions & ReasonOption,
): Promise<void> {
  const configuration = await app.configuration();
  const { db } = await app.state();
  const timeZone = await app.timeZone();
  const streams = selectFrozen(configuration, await listFreezes(db), names);
  const before = await listFrozen(db, streams);
  const actor = await app.actor(options.reason);
  const isConfigured = (name: string) => configuration.streams.some((own) => own.name === name);
  const end = async (tx: Queries) => {
    if (names.length === 0) await endFreezes(tx);
    else await unfreezeStreams(tx, streams);
    const still = await listFrozen(tx, streams);
    await markDue(tx, endedOf(before, still).filter(isConfigured), 'frozen');
    return still;
  };
  const after = await actAs(db, actor, 'unfreeze', end, (still) => {
    const ended = endedOf(before, still);
    return ended.length > 0 ? { subject: ended.join(', ') } : undefined;
  });
  const unfrozen = endedOf(before, after);
  print(options, { unfrozen, frozen: after }, [
    ...lines(
      before.length === 0 && 'No named stream is frozen.',
      unfrozen.length > 0 &&
        `No longer frozen: ${unfrozen.join(', ')}. A worker plans the waiting changes within 15 seconds. Without a worker: ${['slotsync sync', ...unfrozen].join(' ')}`,
    ),
    ...after.map(
      ({ stream, endsAt, reason }) =>
        `${stream} is frozen until ${formatMinute(endsAt, timeZone)} (${reason}), by \`freeze\` in the configuration. To end it: change \`freeze\` and restart the worker.`,
    ),
  ]);
}

const endedOf = (before: readonly FrozenStream[], after: readonly FrozenStream[]) =>
  before.flatMap(({ stream }) => (after.some((still) => still.stream === stream) ? [] : stream));

/** Returns the named streams, or all known streams. Throws UsageError for a name that is not known. */
function selectFrozen(
  configuration: Configuration,
  freezes: readonly StandingFreeze[],
  names: readonly string[],
): string[] {
  const ofFreezes = freezes.flatMap(({ streams }) => streams ?? []);
  const configured = names.filter((name) => !ofFreezes.includes(name));
  if (names.length === 0)
    return [...new Set([...configuration.streams.map(({ name }) => name), ...ofFreezes])];
  if (configured.length > 0) selectStreams(configuration, configured);
  return [...names];
}
