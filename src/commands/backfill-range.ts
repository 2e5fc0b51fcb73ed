// The part of the mirror a backfill is for: read from its options, and checked before a run exists.
import { messageOf, UsageError } from '../errors/errors.js';
import type { Mirror } from '../mirror/mirror.js';
import { formatNumber } from '../text/format.js';
import type { RunRange } from '../state/schema.js';
import type { Stream } from '../streams/stream.js';
import { readTextFile } from '../files/text-file.js';
import { readLimit } from './work-run.js';

export interface RangeOptions {
  from?: string;
  to?: string;
  keys?: string;
  keysFile?: string;
  where?: string;
  force?: boolean;
  limit?: string;
}

/** The keys are stored in the run's row; more of them need a condition. */
const MAX_KEYS = 100_000;
/** So is the condition, which every report shows. */
const MAX_WHERE = 10_000;

/** Throws UsageError for options that are no range. */
export async function readRange(options: RangeOptions): Promise<RunRange> {
  const { from, to, where, force } = options;
  const keys = await readKeys(options);
  const limit = readLimit(options.limit);
  if (where?.trim() === '') throw new UsageError('--where takes a condition, such as "seats > 100"');
  if (where !== undefined && where.length > MAX_WHERE)
    throw new UsageError(
      `--where takes at most ${formatNumber(MAX_WHERE)} characters; use --keys-file, or a table of the mirror in it`,
    );
  const range = { keys, from, to, where, limit, force };
  return Object.fromEntries(Object.entries(range).filter(([, value]) => value !== undefined));
}

/** Each key once, in order, so that the same keys are the same part. */
async function readKeys({ keys, keysFile }: RangeOptions): Promise<string[] | undefined> {
  if (keys === undefined && keysFile === undefined) return undefined;
  if (keys !== undefined && keysFile !== undefined)
    throw new UsageError('either --keys or --keys-file, not both');
  const option = keys === undefined ? '--keys-file' : '--keys';
  const named =
    keysFile === undefined
      ? (keys ?? '').split(',').map((key) => key.trim())
      : readKeysFile(keysFile).split(/\r?\n/);
  const found = [...new Set(named.filter((key) => key !== ''))].toSorted();
  if (found.length === 0) throw new UsageError(`${option} names no key`);
  if (found.length > MAX_KEYS) {
    throw new UsageError(
      `${option} names more than ${formatNumber(MAX_KEYS)} keys; use --where, with a table of them`,
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

/** Throws UsageError when the range cannot be one of these streams. */
export function requireFit(streams: readonly Stream[], range: RunRange, { keysFile }: RangeOptions): void {
  if ((range.keys || range.where !== undefined) && streams.length !== 1) {
    const option = keysFile !== undefined ? '--keys-file' : range.keys ? '--keys' : '--where';
    throw new UsageError(`${option} is about one stream: name it`, {
      remedy: `There are: ${streams.map(({ name }) => name).join(', ')}.`,
    });
  }
  if (range.from === undefined && range.to === undefined) return;
  const withoutCursor = streams.find(({ cursor }) => cursor === undefined)?.name;
  if (withoutCursor === undefined) return;
  throw new UsageError(
    `${withoutCursor} has no cursor: name one in streams.${withoutCursor}.cursor, or use --where`,
  );
}

/** Throws UsageError when PostgreSQL refuses a condition. */
export async function requireConditions(
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
