import type { App } from '../app.js';
import { UsageError } from '../errors.js';
import { plural } from '../report/format.js';
import { print } from '../report/print.js';
import { retryRecords } from '../state/records/retry-records.js';
import type { CommonOptions } from './command.js';
import { EXIT } from './exit-code.js';

export async function retry(
  app: App,
  stream: string | undefined,
  keys: string[],
  options: CommonOptions & { all?: boolean },
): Promise<number> {
  if (stream === undefined && !options.all) {
    throw new UsageError('name a stream and its keys, or --all', {
      remedy: 'slotsync failures lists the records.',
    });
  }
  if (stream !== undefined && options.all) throw new UsageError('either a stream or --all, not both');
  const { db } = await app.state();
  const retried = await retryRecords(db, { stream, keys });
  const found = new Set(retried.map(({ localKey }) => localKey));
  const missing = keys.filter((key) => !found.has(key));
  print(options, { retried, missing }, [
    ...missing.map((key) => `${stream} '${key}' is neither dead nor failed; it was not changed.`),
    `${plural(retried.length, 'record')} will be sent by the next run: slotsync sync`,
  ]);
  return missing.length > 0 ? EXIT.failed : EXIT.done;
}
