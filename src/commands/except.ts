// `except` and `exceptions`: single records are left as they are, because somebody edits their objects by hand.
import type { App } from '../app/app.js';
import { selectStream } from '../config/config-file.js';
import { exceptionsDocument } from '../documents/exceptions.js';
import { UsageError } from '../errors/errors.js';
import { printDocument } from '../render/print-document.js';
import { print } from '../render/print.js';
import { actAs, toRecords } from '../state/actions.js';
import { readClock } from '../state/database.js';
import { endExceptions, exceptRecords, listExceptions, type Exception } from '../state/exceptions.js';
import { shortenKey } from '../streams/local-key.js';
import { findUnknownKeys } from '../sync/identity/read-keys.js';
import { formatMinute, plural } from '../text/format.js';
import type { CommonOptions, ReasonOption } from './command.js';
import { readUntil } from './read-options.js';

interface ExceptOptions extends CommonOptions, ReasonOption {
  until?: string;
  end?: boolean;
}

export async function except(app: App, name: string, given: string[], options: ExceptOptions): Promise<void> {
  const keys = [...new Set(given.map(shortenKey))];
  if (options.end) return endThem(app, name, keys, options);
  const stream = selectStream(await app.configuration(), name);
  const state = await app.state();
  const timeZone = await app.timeZone();
  const now = await readClock(state.db);
  const until = options.until === undefined ? null : readUntil(options.until, now, timeZone);
  const actor = await app.actor(options.reason);
  const { by, reason } = actor;
  if (reason === undefined)
    throw new UsageError('--reason is missing: say why the record must not change', {
      remedy: `slotsync except ${name} <key> --reason 'the caretaker names it'`,
    });
  const unknown = await findUnknownKeys({ mirror: await app.mirror(), state }, stream, keys);
  if (unknown.length > 0)
    throw new UsageError(
      `no row and no record of ${name} has the key ${unknown.map((key) => `'${key}'`).join(', ')}`,
      { remedy: `Nothing was changed. A composite key is written as slotsync failures prints it: 'a|b'.` },
    );
  const before = await actAs(
    state.db,
    actor,
    'except',
    async (tx) => {
      const standing = await listExceptions(tx, { stream: name, keys });
      const [first] = until === null ? standing : [];
      if (first) throw refuseTwice(first, timeZone);
      await exceptRecords(tx, { stream: name, keys, until, reason, by });
      return standing;
    },
    () => toRecords(keys.map((localKey) => ({ stream: name, localKey }))),
  );
  const exceptions = await listExceptions(state.db, { stream: name, keys });
  const end = until === null ? '' : ` until ${formatMinute(until, timeZone)}`;
  print(options, { exceptions }, [
    ...before.map((one) => `${name} '${one.localKey}' ${describeFormer(one, timeZone)}.`),
    `Left as ${keys.length === 1 ? 'it is' : 'they are'}${end}: ${plural(keys.length, 'record')} of ${name}. A request in progress is answered.`,
    `To end it: slotsync except ${name} <key> --end`,
  ]);
}

const describeFormer = ({ since, by, until, reason }: Exception, timeZone: string): string =>
  `was an exception since ${formatMinute(since, timeZone)}, by ${by ?? 'somebody'}, ${until ? `until ${formatMinute(until, timeZone)}` : 'without an end'} (${reason})`;

function refuseTwice(exception: Exception, timeZone: string): UsageError {
  const { stream, localKey } = exception;
  const known = describeFormer(exception, timeZone).replace('was', 'is');
  return new UsageError(`${stream} '${localKey}' ${known}`, {
    remedy: 'Nothing was changed. To change its end and reason, add --until. To end the exception: --end',
  });
}

/** Ends exceptions of records. The configuration need not contain the stream any more. */
async function endThem(
  app: App,
  name: string,
  keys: readonly string[],
  options: ExceptOptions,
): Promise<void> {
  if (options.until !== undefined)
    throw new UsageError('use --end or --until, not both', {
      remedy: 'To end the exceptions now, leave out --until.',
    });
  const { db } = await app.state();
  const ended = await actAs(
    db,
    await app.actor(options.reason),
    'except_end',
    async (tx) => {
      const done = await endExceptions(tx, name, keys);
      const [missing] = keys.filter((key) => !done.includes(key));
      if (missing !== undefined)
        throw new UsageError(`${name} '${missing}' is not an exception`, {
          remedy: 'Nothing was changed. To list the exceptions: slotsync exceptions',
        });
      return done;
    },
    (done) => toRecords(done.map((localKey) => ({ stream: name, localKey }))),
  );
  print(options, { ended }, [
    `${plural(ended.length, 'exception')} of ${name} ended. The ${ended.length === 1 ? 'key is' : 'keys are'} in the inbox; without a worker: slotsync sync ${name}`,
  ]);
}

export async function exceptions(app: App, options: CommonOptions): Promise<void> {
  const { db } = await app.state();
  const all = await listExceptions(db);
  const shown = { json: options.json, timeZone: await app.timeZone() };
  printDocument(exceptionsDocument(all), shown, { exceptions: all });
}
