import type { App } from '../app/app.js';
import { selectStreams } from '../config/config-file.js';
import { UsageError, messageOf } from '../errors/errors.js';
import { print, printJson, printLine } from '../render/print.js';
import { describeUnknownKeys } from '../documents/runs.js';
import { listUnfinishedRuns } from '../state/runs/read-runs.js';
import { findUnknownKeys } from '../sync/identity/read-keys.js';
import { EXIT } from './command.js';
import { startAndWork, type RunOptions } from './work-run.js';
import type { Mirror } from '../mirror/mirror.js';
import { formatNumber } from '../text/format.js';
import type { RunRange } from '../state/schema.js';
import type { Stream } from '../streams/stream.js';
import { readTextFile } from '../files/text-file.js';

interface BackfillOptions extends RunOptions, RangeOptions {
  resume?: boolean;
}

const RESUME = 'slotsync backfill --resume';

export async function backfill(app: App, names: string[], options: BackfillOptions): Promise<number> {
  if (options.resume) return resumeBackfill(app, names, options);
  const range = await readRange(options);
  const streams = selectStreams(await app.configuration(), names);
  requireFit(streams, range, options);
  const state = await app.state();
  const mirror = await app.mirror();
  await mirror.requireSources(streams);
  await requireConditions(mirror, streams, range);

  const { keys } = range;
  const [stream] = streams;
  const unknownKeys = keys && stream ? await findUnknownKeys({ mirror, state }, stream, keys) : [];
  if (keys && unknownKeys.length > 0 && !options.json)
    printLine(describeUnknownKeys(unknownKeys, keys.length));
  const extraJson = keys ? { unknownKeys } : {};
  if (keys?.length === unknownKeys.length) {
    if (options.json) printJson({ ...extraJson, run: null });
    return EXIT.failed;
  }
  const asked = Object.keys(range).length === 0 ? undefined : range;
  const request = { kind: 'backfill', lane: 'backfill', range: asked } as const;
  const work = { resumeCommand: RESUME, extraJson, canContinue: true };
  const code = await startAndWork(app, streams, request, options, work);
  return code === EXIT.done && unknownKeys.length > 0 ? EXIT.failed : code;
}

async function resumeBackfill(app: App, names: string[], options: BackfillOptions): Promise<number> {
  const { from, to, keys, keysFile, where, force, limit, detach } = options;
  if (
    names.length > 0 ||
    [from, to, keys, keysFile, where, force, limit, detach].some((given) => given !== undefined)
  ) {
    throw new UsageError(
      '--resume continues the latest unfinished backfill, so it takes neither streams nor other options',
    );
  }
  const { db } = await app.state();
  const run = (await listUnfinishedRuns(db)).findLast(({ kind }) => kind === 'backfill');
  if (!run) {
    print(options, { run: null }, ['No backfill is unfinished, so there is nothing to resume.']);
    return EXIT.done;
  }
  const streams = selectStreams(await app.configuration(), run.streams);
  const request = { kind: 'backfill', lane: 'backfill', range: run.range ?? undefined } as const;
  return startAndWork(app, streams, request, options, { resumeCommand: RESUME, canContinue: true });
}

// Options that select the part of the mirror for a backfill. They are checked before the run is created.

interface RangeOptions {
  from?: string;
  to?: string;
  keys?: string;
  keysFile?: string;
  where?: string;
  force?: boolean;
  limit?: number;
}

/** Maximum number of keys, which are stored in the run's row. More keys need `--where`. */
const MAX_KEYS = 100_000;
/** Maximum length of `--where` in characters. The condition is stored in the run's row, and reports show it. */
const MAX_WHERE = 10_000;

async function readRange(options: RangeOptions): Promise<RunRange> {
  const { from, to, where, limit, force } = options;
  const keys = await readKeys(options);
  if (where?.trim() === '') throw new UsageError('--where takes a condition, such as "seats > 100"');
  if (where !== undefined && where.length > MAX_WHERE)
    throw new UsageError(
      `--where takes at most ${formatNumber(MAX_WHERE)} characters; shorten it, or use --keys-file`,
    );
  const range = { keys, from, to, where, limit, force };
  return Object.fromEntries(Object.entries(range).filter(([, value]) => value !== undefined));
}

/** Returns the keys sorted and without duplicates, so that a repeated command is recognized as the same backfill. */
async function readKeys({ keys, keysFile }: RangeOptions): Promise<string[] | undefined> {
  if (keys === undefined && keysFile === undefined) return undefined;
  if (keys !== undefined && keysFile !== undefined)
    throw new UsageError('use --keys or --keys-file, not both');
  const option = keys === undefined ? '--keys-file' : '--keys';
  const named =
    keysFile === undefined
      ? (keys ?? '').split(',').map((key) => key.trim())
      : readKeysFile(keysFile).split(/\r?\n/);
  const found = [...new Set(named.filter((key) => key !== ''))].toSorted();
  if (found.length === 0) throw new UsageError(`${option} names no key`);
  if (found.length > MAX_KEYS) {
    throw new UsageError(
      `${option} names more than ${formatNumber(MAX_KEYS)} keys; put them into a table of the mirror and use --where`,
    );
  }
  if (found.some((key) => key.includes('\0')))
    throw new UsageError(`${option}: a key contains a NUL character`);
  return found;
}

function readKeysFile(file: string): string {
  try {
    return readTextFile(file, { pipes: true });
  } catch (error) {
    throw new UsageError(`--keys-file ${messageOf(error)}`, { cause: error });
  }
}

/** Throws UsageError if the options do not suit the streams, for example `--keys` with several streams. */
function requireFit(streams: readonly Stream[], range: RunRange, { keysFile }: RangeOptions): void {
  if ((range.keys || range.where !== undefined) && streams.length !== 1) {
    const option = keysFile !== undefined ? '--keys-file' : range.keys ? '--keys' : '--where';
    throw new UsageError(`${option} applies to one stream: name the stream`, {
      remedy: `There are: ${streams.map(({ name }) => name).join(', ')}.`,
    });
  }
  if (range.from === undefined && range.to === undefined) return;
  const withoutCursor = streams.find(({ cursor }) => cursor === undefined)?.name;
  if (withoutCursor === undefined) return;
  throw new UsageError(
    `${withoutCursor} has no cursor, so --from and --to do not apply: set streams.${withoutCursor}.cursor, or use --where instead`,
  );
}

/** Throws UsageError if PostgreSQL rejects a condition, such as the SQL after `--where`. */
async function requireConditions(
  mirror: Mirror,
  streams: readonly Stream[],
  { from, to, where }: RunRange,
): Promise<void> {
  for (const stream of streams) {
    for (const [option, value] of Object.entries({ from, to, where })) {
      const fault = await mirror.checkCondition(stream, { [option]: value });
      if (fault !== undefined) throw new UsageError(`--${option}, for ${stream.name}: ${fault}`);
    }
    if (from !== undefined && to !== undefined && !(await mirror.isBefore(stream, from, to)))
      throw new UsageError(`--from is not before --to, for ${stream.name}`);
  }
}
