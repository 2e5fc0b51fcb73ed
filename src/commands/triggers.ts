import type { Command } from 'commander';
import { selectStreams, type App } from '../app.js';
import { UsageError } from '../errors.js';
import { FUNCTION_PREFIX, functionName } from '../mirror/trigger-sql.js';
import type { Stream } from '../streams/stream.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { printJson, printLine } from '../report/format.js';

const ACTIONS = ['install', 'remove', 'print'] as const;

export function addTriggers(program: Command): void {
  common(program.command('triggers'))
    .argument('<action>', 'install, remove or print')
    .argument('[streams...]', 'streams (default: all whose source is a table)')
    .description(
      'triggers on the mirror’s tables that put changed keys into the inbox; print shows them as SQL',
    )
    .action((action: string, names: string[], options: CommonOptions) =>
      withApp({ needs: ['mirror', 'state'], configPath: options.config }, (app) =>
        triggers(app, action, names, options),
      ),
    );
}

async function triggers(
  app: App,
  text: string,
  names: readonly string[],
  options: CommonOptions,
): Promise<number> {
  const action = ACTIONS.find((known) => known === text);
  if (!action) throw new UsageError(`triggers install, remove or print, not '${text}'`);
  await app.state(); // refuses a schema without the inbox
  if (action === 'remove') return removeAll(app, names, options);
  const streams = selectStreams(await app.configuration(), names);
  await requireSameDatabase(app);
  const { able, refusals } = await sort(app, streams, names.length > 0);
  return action === 'print'
    ? printAll(app, able, refusals, options)
    : installAll(app, able, refusals, options);
}

/** Streams that can have triggers, and why the others cannot. Throws UsageError when one that was named cannot. */
async function sort(
  app: App,
  streams: readonly Stream[],
  isNamed: boolean,
): Promise<{ able: Stream[]; refusals: string[] }> {
  const opened = await app.triggers();
  const able: Stream[] = [];
  const refusals: string[] = [];
  for (const stream of streams) {
    const refusal = await opened.refusal(stream);
    if (refusal === undefined) able.push(stream);
    else refusals.push(refusal);
  }
  if (refusals.length > 0 && (isNamed || able.length === 0)) {
    throw new UsageError('triggers cannot be installed there', {
      faults: refusals,
      remedy:
        'Give the stream a `cursor`, or tell of its changes by slotsync push or the queue: docs/changes.md.',
    });
  }
  return { able, refusals };
}

/** A trigger writes into the inbox in the transaction of the change: both must be in one database. */
async function requireSameDatabase(app: App): Promise<void> {
  const [here, there] = [
    await (await app.triggers()).databaseIdentity(),
    await (await app.mirror()).databaseIdentity(),
  ];
  if (JSON.stringify(here) === JSON.stringify(there)) return;
  throw new UsageError('triggers need mirror and state in one database, and these are two', {
    remedy: 'Give the streams a `cursor`, or tell of changes by slotsync push or the queue: docs/changes.md.',
  });
}

async function installAll(
  app: App,
  streams: readonly Stream[],
  refusals: readonly string[],
  options: CommonOptions,
): Promise<number> {
  const opened = await app.triggers();
  for (const stream of streams) {
    await opened.install(stream);
    if (!options.json) printLine(`${stream.name}: triggers installed on ${tableOf(stream)}`);
  }
  report({ installed: streams.map(({ name }) => name), refused: refusals }, refusals, options);
  return EXIT.done;
}

async function printAll(
  app: App,
  streams: readonly Stream[],
  refusals: readonly string[],
  options: CommonOptions,
): Promise<number> {
  const opened = await app.triggers();
  const statements: string[] = [];
  for (const stream of streams) statements.push(...(await opened.print(stream)));
  if (options.json) printJson({ statements, refused: refusals });
  else {
    for (const refusal of refusals) printLine(`-- ${refusal}`);
    for (const statement of ['BEGIN', ...statements, 'COMMIT']) printLine(`${statement};`);
  }
  return EXIT.done;
}

/** Also of streams that are in the configuration no more. */
async function removeAll(app: App, names: readonly string[], options: CommonOptions): Promise<number> {
  const opened = await app.triggers();
  const installed = await opened.list();
  const wanted = names.map((name) => ({ name, function: functionName(name) }));
  const all = installed.map((name) => ({ name: name.slice(FUNCTION_PREFIX.length), function: name }));
  const removed: string[] = [];
  for (const one of names.length > 0 ? wanted : all) {
    const isThere = installed.includes(one.function);
    if (isThere) await opened.remove(one.function);
    if (isThere) removed.push(one.name);
    if (!options.json) printLine(isThere ? `${one.name}: triggers removed` : `${one.name}: there were none`);
  }
  if (options.json) printJson({ removed });
  else if (names.length === 0 && removed.length === 0) printLine('There are none.');
  return EXIT.done;
}

function report(json: unknown, lines: readonly string[], options: CommonOptions): void {
  if (options.json) printJson(json);
  else for (const line of lines) printLine(line);
}

function tableOf({ source }: Stream): string {
  return 'table' in source ? source.table.join('.') : 'a query';
}
