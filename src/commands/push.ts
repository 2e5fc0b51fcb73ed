import { createInterface } from 'node:readline';
import type { Command } from 'commander';
import { selectStreams, type App } from '../app.js';
import { UsageError } from '../errors.js';
import { addChanges } from '../state/inbox/add-changes.js';
import { findUnknownKeys } from '../sync/plan/unknown-keys.js';
import { splitKey } from '../streams/local-key.js';
import type { Stream } from '../streams/stream.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { plural, printJson, printLine } from '../report/format.js';

/** Keys looked up and written in one statement. */
const AT_ONCE = 1000;

export function addPush(program: Command): void {
  common(program.command('push'))
    .argument('<stream>', 'the stream of the keys')
    .argument(
      '<keys...>',
      'local keys whose rows changed or are gone; - reads them from standard input, one a line',
    )
    .description('put keys into the inbox: a worker looks at them at once')
    .action((name: string, keys: string[], options: CommonOptions) =>
      withApp({ needs: ['mirror', 'state'], configPath: options.config }, (app) =>
        push(app, name, keys, options),
      ),
    );
}

async function push(
  app: App,
  name: string,
  given: readonly string[],
  options: CommonOptions,
): Promise<number> {
  const [stream] = selectStreams(await app.configuration(), [name]);
  if (!stream) throw new UsageError(`no stream '${name}' in the configuration`);
  const keys = given.includes('-') ? [...given.filter((key) => key !== '-'), ...(await readLines())] : given;
  requireParts(stream, keys);
  const { pushed, unknown } = await pushKeys(app, stream, [...new Set(keys)]);
  if (options.json) printJson({ stream: stream.name, pushed, unknown });
  else {
    for (const key of unknown) printLine(`no row and no record with key ${key} in ${stream.name}`);
    printLine(
      `${plural(pushed.length, 'key')} of ${stream.name} in the inbox; slotsync worker looks at them.`,
    );
  }
  return unknown.length > 0 ? EXIT.failed : EXIT.done;
}

async function pushKeys(
  app: App,
  stream: Stream,
  keys: readonly string[],
): Promise<{ pushed: string[]; unknown: string[] }> {
  const [mirror, state] = [await app.mirror(), await app.state()];
  const pushed: string[] = [];
  const unknown: string[] = [];
  for (let at = 0; at < keys.length; at += AT_ONCE) {
    const block = keys.slice(at, at + AT_ONCE);
    const strange = new Set(await findUnknownKeys({ mirror, state }, stream, block));
    const known = block.filter((key) => !strange.has(key));
    await addChanges(state.db, stream.name, known);
    pushed.push(...known);
    unknown.push(...strange);
  }
  return { pushed, unknown };
}

/** Throws UsageError for keys that cannot be of the stream. */
function requireParts({ name, key }: Stream, keys: readonly string[]): void {
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

async function readLines(): Promise<string[]> {
  const keys: string[] = [];
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    if (line.trim() !== '') keys.push(line);
  }
  return keys;
}
