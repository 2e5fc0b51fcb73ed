import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { selectStreams, type App } from '../app.js';
import { codeOf, UsageError } from '../errors.js';
import { listUnfinishedRuns } from '../state/runs/read-runs.js';
import { startRun } from '../state/runs/start-run.js';
import type { RunRange } from '../state/schema.js';
import type { Stream } from '../streams/stream.js';
import { findUnknownKeys } from '../sync/plan/unknown-keys.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { formatNumber, plural, printJson, printLine } from '../report/format.js';
import { isRunOf, queueRun, readConcurrency, readLimit, requireSources, workRun } from './work-run.js';

interface BackfillOptions extends CommonOptions {
  from?: string;
  to?: string;
  keys?: string;
  keysFile?: string;
  where?: string;
  force?: boolean;
  limit?: string;
  resume?: boolean;
  detach?: boolean;
  concurrency?: string;
}

/** More belong into a condition: they stand in the run's row. */
const MOST_KEYS = 100_000;
const NAMED_KEYS = 5;

export function addBackfill(program: Command): void {
  common(program.command('backfill'))
    .argument('[streams...]', 'streams to look at (default: all)')
    .description('look at a chosen part of the mirror, or all of it, beside the nights and after them')
    .option('--from <value>', 'rows whose cursor is this value or later')
    .option('--to <value>', 'rows whose cursor is before this value')
    .option('--keys <keys>', 'rows of these local keys, with commas between them')
    .option('--keys-file <file>', 'rows of the local keys in a file, one a line')
    .option('--where <sql>', 'rows for which a condition over the source’s columns holds')
    .option('--force', 'send what is unchanged, and what was given up, too')
    .option('--limit <records>', 'write at most so many records')
    .option('--resume', 'go on with the latest unfinished backfill, whatever its part')
    .option('--detach', 'only queue the run; workers do it')
    .option('--concurrency <batches>', 'batches in work at once', '12')
    .addHelpText(
      'after',
      [
        '\nA backfill never retires anything: sync does. Stopped by Ctrl-C, it keeps its position: the same command',
        'goes on with it and ends with it.',
      ].join('\n'),
    )
    .action((names: string[], options: BackfillOptions) =>
      withApp({ needs: ['mirror', 'state', 'api'], configPath: options.config }, (app) =>
        options.resume ? resume(app, names, options) : backfill(app, names, options),
      ),
    );
}

async function backfill(app: App, names: readonly string[], options: BackfillOptions): Promise<number> {
  const concurrency = readConcurrency(options.concurrency);
  const range = await readRange(options);
  const streams = selectStreams(await app.configuration(), names);
  requireFit(streams, range, options);
  const { db } = await app.state();
  await requireSources(app, streams);
  await requireConditions(app, streams, range);
  const unknown = await tellUnknownKeys(app, streams, range, options);
  const extraJson = range.keys ? { unknownKeys: unknown } : {};
  if (range.keys?.length === unknown.length) {
    if (options.json) printJson({ ...extraJson, run: null });
    return EXIT.failed;
  }

  const request = {
    kind: 'backfill',
    startedBy: 'command',
    lane: 'backfill',
    streams: streams.map(({ name }) => name),
    range: Object.keys(range).length === 0 ? undefined : range,
  } as const;
  const code = options.detach
    ? await queueRun(app, request, { json: options.json, extraJson })
    : await workRun(app, {
        begin: async () => {
          const { run, started } = await startRun(db, request);
          return { run, started, isOurs: started || isRunOf(run, request) };
        },
        concurrency,
        json: options.json,
        resumeCommand: 'slotsync backfill --resume',
        extraJson,
      });
  return code === EXIT.done && unknown.length > 0 ? EXIT.failed : code;
}

async function resume(app: App, names: readonly string[], options: BackfillOptions): Promise<number> {
  const concurrency = readConcurrency(options.concurrency);
  const { from, to, keys, keysFile, where, force, limit, detach } = options;
  if (
    names.length > 0 ||
    [from, to, keys, keysFile, where, force, limit, detach].some((given) => given !== undefined)
  ) {
    throw new UsageError('--resume goes on with what was asked for before: name neither streams nor a part');
  }
  const { db } = await app.state();
  const run = (await listUnfinishedRuns(db)).findLast(({ kind }) => kind === 'backfill');
  if (!run) {
    if (options.json) printJson({ run: null });
    else printLine('No backfill is unfinished; there is nothing to resume.');
    return EXIT.done;
  }
  return workRun(app, {
    begin: async () => ({ run, started: false, isOurs: true }),
    concurrency,
    json: options.json,
    resumeCommand: 'slotsync backfill --resume',
  });
}

async function readRange(options: BackfillOptions): Promise<RunRange> {
  const { from, to, where, force } = options;
  const keys = await readKeys(options);
  const limit = readLimit(options.limit);
  if (where?.trim() === '') throw new UsageError('--where takes a condition, such as "seats > 100"');
  return {
    ...(keys === undefined ? {} : { keys }),
    ...(from === undefined ? {} : { from }),
    ...(to === undefined ? {} : { to }),
    ...(where === undefined ? {} : { where }),
    ...(limit === undefined ? {} : { limit }),
    ...(force ? { force } : {}),
  };
}

/** Each key once, in order, so that the same keys are the same part. */
async function readKeys({ keys, keysFile }: BackfillOptions): Promise<string[] | undefined> {
  if (keys === undefined && keysFile === undefined) return undefined;
  if (keys !== undefined && keysFile !== undefined)
    throw new UsageError('either --keys or --keys-file, not both');
  const option = keys === undefined ? '--keys-file' : '--keys';
  const named =
    keysFile === undefined
      ? (keys ?? '').split(',').map((key) => key.trim())
      : (await readText(keysFile)).split(/\r?\n/);
  const found = [...new Set(named.filter((key) => key !== ''))].toSorted();
  if (found.length === 0) throw new UsageError(`${option} names no key`);
  if (found.length > MOST_KEYS) {
    throw new UsageError(
      `${option} names more than ${formatNumber(MOST_KEYS)} keys; use --where, with a table of them`,
    );
  }
  if (found.some((key) => key.includes('\0'))) throw new UsageError(`${option}: a key holds a NUL character`);
  return found;
}

async function readText(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    throw new UsageError(`--keys-file ${file} cannot be read (${codeOf(error)})`, { cause: error });
  }
}

function requireFit(streams: readonly Stream[], range: RunRange, options: BackfillOptions): void {
  const forOne = options.keysFile !== undefined ? '--keys-file' : range.keys ? '--keys' : '--where';
  if ((range.keys || range.where !== undefined) && streams.length !== 1) {
    throw new UsageError(`${forOne} is about one stream: name it`, {
      remedy: `There are: ${streams.map(({ name }) => name).join(', ')}.`,
    });
  }
  if (range.from === undefined && range.to === undefined) return;
  for (const { name, cursor } of streams) {
    if (cursor !== undefined) continue;
    throw new UsageError(`${name} has no cursor: name one in streams.${name}.cursor, or use --where`);
  }
}

async function requireConditions(app: App, streams: readonly Stream[], range: RunRange): Promise<void> {
  const { from, to, where } = range;
  const mirror = await app.mirror();
  const parts = [
    ['--from', { from }],
    ['--to', { to }],
    ['--where', { where }],
  ] as const;
  for (const stream of streams) {
    for (const [option, part] of parts) {
      const wrong = await mirror.checkCondition(stream, part);
      if (wrong !== undefined) throw new UsageError(`${option}, for ${stream.name}: ${wrong}`);
    }
  }
}

/** Says which keys neither mirror nor state knows, and returns them. */
async function tellUnknownKeys(
  app: App,
  [stream]: readonly Stream[],
  { keys }: RunRange,
  { json }: BackfillOptions,
): Promise<string[]> {
  if (!keys || !stream) return [];
  const unknown = await findUnknownKeys(
    { mirror: await app.mirror(), state: await app.state() },
    stream,
    keys,
  );
  if (unknown.length > 0 && !json) {
    const named = unknown.slice(0, NAMED_KEYS).join(', ');
    const more = unknown.length > NAMED_KEYS ? ', …' : '';
    const verb = unknown.length === 1 ? 'has' : 'have';
    printLine(
      `${formatNumber(unknown.length)} of ${plural(keys.length, 'key')} ${verb} neither row nor record: ${named}${more}`,
    );
  }
  return unknown;
}
