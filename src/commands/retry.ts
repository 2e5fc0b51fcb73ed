import type { App } from '../app/app.js';
import { selectStream } from '../config/config-file.js';
import { UsageError } from '../errors/errors.js';
import { plural, lines } from '../text/format.js';
import { print } from '../render/print.js';
import { actAs, toRecords } from '../state/actions.js';
import { listOtherFormerStreams } from '../state/records/read/owners.js';
import { retireFormer, retryRecords, type RetriedRecord } from '../state/records/retry-records.js';
import { type CommonOptions, type ReasonOption, EXIT } from './command.js';
import { namesOfConfigured, requireKnownCode, requireKnownStream } from './require-known.js';

interface RetryOptions extends CommonOptions, ReasonOption {
  all?: boolean;
  code?: string;
  status?: 'dead' | 'failed';
  retireFormer?: boolean;
}

export async function retry(
  app: App,
  stream: string | undefined,
  keys: string[],
  options: RetryOptions,
): Promise<number> {
  refuseTogether(stream, keys, options);
  if (options.retireFormer) return retryAndRetire(app, stream, keys, options);
  const { code, status } = options;
  const state = await app.state();
  await requireKnownStream(app, state, stream);
  await requireKnownCode(state, code);
  const { db } = state;
  const chosen = { stream, keys, code, status };
  const actor = await app.actor(options.reason);
  const retried = await actAs(db, actor, 'retry', (tx) => retryRecords(tx, chosen), toRecords);
  const missing = missingOf(keys, retried);
  const isNone = retried.length === 0 && (code !== undefined || status !== undefined);
  print(options, { retried, missing }, [
    ...missing.map(
      (key) => `${stream} '${key}' is neither given up nor failed, or is an exception; it was not changed.`,
    ),
    isNone
      ? `${describeChoice(options, stream)}; nothing was changed. To list the failures: slotsync failures`
      : `${plural(retried.length, 'record')} will be sent by the next run: slotsync sync`,
    ...(await describeUnsent(app, retried)),
  ]);
  return missing.length > 0 || isNone ? EXIT.failed : EXIT.done;
}

/** Throws UsageError if the options select no records, or select them in two ways. */
function refuseTogether(stream: string | undefined, keys: readonly string[], options: RetryOptions): void {
  const { all, code, status, retireFormer } = options;
  if (stream === undefined && !all) {
    throw new UsageError('name a stream, a stream and keys, or --all', {
      remedy: 'slotsync failures lists the records.',
    });
  }
  if (stream !== undefined && all) throw new UsageError('either a stream or --all, not both');
  const narrows = code !== undefined ? '--code' : status !== undefined ? '--status' : undefined;
  if (narrows === undefined) return;
  if (keys.length > 0) {
    throw new UsageError(`either keys or ${narrows}, not both`, {
      remedy: `For every record of a cause, leave out the keys: slotsync retry ${stream} ${narrows} …`,
    });
  }
  if (retireFormer) {
    throw new UsageError(`--retire-former selects its own records: leave out ${narrows}`);
  }
}

/** Returns warnings about streams that are no longer configured, because no run sends their records. */
async function describeUnsent(app: App, retried: readonly RetriedRecord[]): Promise<string[]> {
  const configured = await namesOfConfigured(app);
  const left = [...new Set(retried.map(({ stream }) => stream))].filter(
    (one) => configured?.includes(one) === false,
  );
  return left.map(
    (one) => `${one} is not in the configuration. Its records are sent when the stream is added again.`,
  );
}

function describeChoice({ code, status }: RetryOptions, stream: string | undefined): string {
  const of = stream === undefined ? '' : ` of ${stream}`;
  const withCode = code === undefined ? '' : ` with the code ${code}`;
  return `No record${of} is ${status === 'dead' ? 'given up' : (status ?? 'given up or failed')}${withCode}`;
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
    throw new UsageError(`stream ${stream} has retire: 'keep', so its objects are never deactivated`, {
      remedy: "Deactivate the object at the service, or set retire: 'deactivate' for the stream.",
    });
  }
  const { db } = await app.state();
  const actor = await app.actor(options.reason);
  const wanted = { stream, keys, streams };
  const retired = await actAs(db, actor, 'retry', (tx) => retireFormer(tx, wanted), toRecords);
  const left = stream === undefined ? await listOtherFormerStreams(db, streams) : [];
  const missing = missingOf(keys, retired);
  const objects = retired.flatMap(({ externalIds }) => externalIds);
  print(options, { retired, missing, left }, [
    ...missing.map(
      (key) =>
        `${stream} '${key}' has no former object, is being written, or is an exception; it was not changed.`,
    ),
    ...lines(
      left.length > 0 &&
        `Not deactivated, because their streams do not have retire: 'deactivate': ${left.join(', ')}.`,
    ),
    `${plural(objects.length, 'former object')} will be deactivated by the next run, within the limits: slotsync sync`,
  ]);
  return missing.length > 0 ? EXIT.failed : EXIT.done;
}

function missingOf(keys: readonly string[], found: readonly { localKey: string }[]): string[] {
  const known = new Set(found.map(({ localKey }) => localKey));
  return keys.filter((key) => !known.has(key));
}
