import { createInterface } from 'node:readline';
import type { App } from '../app/app.js';
import { selectStream } from '../config/config-file.js';
import { UsageError } from '../errors/errors.js';
import { listFrozen } from '../state/freezes.js';
import { formatMinute, plural } from '../text/format.js';
import { print } from '../render/print.js';
import { isTooLong, MAX_ID_BYTES, shortenKey, splitKey } from '../streams/local-key.js';
import type { Stream } from '../streams/stream.js';
import { pushKeys } from '../sync/operator/push-keys.js';
import { type CommonOptions, EXIT } from './command.js';

export async function push(app: App, name: string, given: string[], options: CommonOptions): Promise<number> {
  const stream = selectStream(await app.configuration(), name);
  const read = given.includes('-') ? await readLines() : [];
  const keys = [...given.filter((key) => key !== '-'), ...read];
  if (keys.length === 0) {
    print(options, { stream: name, pushed: [], unknown: [] }, [
      'Standard input has no keys, so nothing was added to the inbox.',
    ]);
    return EXIT.done;
  }
  requireKeys(stream, keys);
  const deps = { mirror: await app.mirror(), state: await app.state() };
  const { pushed, unknown } = await pushKeys(deps, stream, [...new Set(keys)]);
  const [frozen] = await listFrozen(deps.state.db, [name]);
  print(options, { stream: name, pushed, unknown }, [
    ...unknown.map((key) => `no row and no record with key '${key}' in ${name}`),
    `${plural(pushed.length, 'key')} of ${name} added to the inbox; a worker processes them${frozen ? ` when the freeze has ended: ${formatMinute(frozen.endsAt, await app.timeZone())}` : ''}.`,
  ]);
  return unknown.length > 0 ? EXIT.failed : EXIT.done;
}

/** Throws UsageError for keys that the stream cannot have. */
function requireKeys({ name, key }: Stream, keys: readonly string[]): void {
  const long = keys.filter(isTooLong);
  if (long.length > 0)
    throw new UsageError(
      `${plural(long.length, 'key')} of ${name} longer than ${MAX_ID_BYTES} bytes: ${long
        .slice(0, 5)
        .map((text) => `'${shortenKey(text)}'`)
        .join(', ')}`,
      {
        remedy:
          'PostgreSQL cannot index such a key: shorten the value in the source, or use another column in `key`.',
      },
    );
  const wrong = keys.filter((text) => text === '' || splitKey(text, key.length) === undefined);
  if (wrong.length === 0) return;
  const faults = wrong.slice(0, 5).map((text) => `'${text}'`);
  const example = key.map((column) => `<${column}>`).join('|');
  throw new UsageError(
    `no ${wrong.length === 1 ? 'key' : 'keys'} of ${name}: ${faults.join(', ')}${wrong.length > 5 ? ', …' : ''}`,
    {
      remedy:
        key.length === 1
          ? `A key is the text of column ${key[0]}, and not empty.`
          : `A key has ${key.length} parts, joined by |: '${example}'. A | or \\ inside a part is written \\| or \\\\.`,
    },
  );
}

/** Reads keys from standard input. Throws UsageError for a NUL character, which occurs in UTF-16 but in no key. */
async function readLines(): Promise<string[]> {
  const keys: string[] = [];
  let at = 0;
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    at++;
    if (line.includes('\0'))
      throw new UsageError(`standard input: line ${at} has a NUL character, which no key has`, {
        remedy: 'Nothing was added to the inbox. Write one key a line, as text in UTF-8.',
      });
    const key = keys.length === 0 ? line.replace(/^\uFEFF/, '') : line; // a byte order mark is no part of a key
    if (key.trim() !== '') keys.push(key);
  }
  return keys;
}
