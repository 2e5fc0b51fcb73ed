import type { App } from '../app.js';
import { selectStream } from '../config-file.js';
import { UsageError } from '../errors.js';
import { retryCommand } from '../report/failures.js';
import { plural } from '../report/format.js';
import { lines, print } from '../report/print.js';
import { listOtherFormerStreams, retireFormer } from '../state/records/former-objects.js';
import { listTwiceChanged, retryRecords } from '../state/records/retry-records.js';
import type { CommonOptions } from './command.js';
import { EXIT } from './exit-code.js';
import { requireKnownStream } from './require-known-stream.js';

type RetryOptions = CommonOptions & { all?: boolean; retireFormer?: boolean };

export async function retry(
  app: App,
  stream: string | undefined,
  keys: string[],
  options: RetryOptions,
): Promise<number> {
  if (stream === undefined && !options.all) {
    throw new UsageError('name a stream and its keys, or --all', {
      remedy: 'slotsync failures lists the records.',
    });
  }
  if (stream !== undefined && options.all) throw new UsageError('either a stream or --all, not both');
  if (options.retireFormer) return retryAndRetire(app, stream, keys, options);
  const state = await app.state();
  await requireKnownStream(app, state, stream);
  const { db } = state;
  const retried = await retryRecords(db, { stream, keys });
  const twice = await listTwiceChanged(db, { stream, keys });
  const missing = missingOf(keys, [...retried, ...twice]);
  print(options, { retried, missing, twice }, [
    ...missing.map((key) => `${stream} '${key}' is neither dead nor failed; it was not changed.`),
    ...twice.map(
      (record) =>
        `${record.stream} '${record.localKey}' was not changed: its external id changed twice, and its former object ` +
        `${record.formerExternalId} would be forgotten. To retire it: ${retryCommand(record, '--retire-former')}`,
    ),
    `${plural(retried.length, 'record')} will be sent by the next run: slotsync sync`,
  ]);
  return missing.length + twice.length > 0 ? EXIT.failed : EXIT.done;
}

async function retryAndRetire(
  app: App,
  stream: string | undefined,
  keys: string[],
  options: RetryOptions,
): Promise<number> {
  const configuration = await app.configuration();
  const chosen = stream === undefined ? configuration.streams : [selectStream(configuration, stream)];
  const streams = chosen.filter(({ retire }) => retire === 'deactivate').map(({ name }) => name);
  if (stream !== undefined && streams.length === 0) {
    throw new UsageError(`stream ${stream} has retire: 'keep', so its objects are never retired`, {
      remedy: "Deactivate the object at the service, or set retire: 'deactivate' for the stream.",
    });
  }
  const { db } = await app.state();
  const retired = await retireFormer(db, { stream, keys, streams });
  const left = stream === undefined ? await listOtherFormerStreams(db, streams) : [];
  const missing = missingOf(keys, retired);
  const objects = retired.flatMap(({ externalIds }) => externalIds);
  print(options, { retired, missing, left }, [
    ...missing.map(
      (key) => `${stream} '${key}' has no former object, or is being written; it was not changed.`,
    ),
    ...lines(
      left.length > 0 &&
        `Not retired, because their streams do not have retire: 'deactivate': ${left.join(', ')}.`,
    ),
    `${plural(objects.length, 'former object')} will be retired by the next run, within its limits: slotsync sync`,
  ]);
  return missing.length > 0 ? EXIT.failed : EXIT.done;
}

function missingOf(keys: readonly string[], found: readonly { localKey: string }[]): string[] {
  const known = new Set(found.map(({ localKey }) => localKey));
  return keys.filter((key) => !known.has(key));
}
