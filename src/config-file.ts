// Finds, loads and checks the configuration file. TypeScript is loaded without a build step; an import of `slotsync`
// in the file is this program, wherever the file is.
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { closest, distance } from 'fastest-levenshtein';
import type { z } from 'zod';
import { messageOf, UsageError } from './errors.js';
import { findPatternFault } from './cron-schedule.js';
import {
  configKeys,
  configSchema,
  streamSchema,
  type ParsedConfig,
  type StreamDeclaration,
} from './streams/config-schema.js';
import { describeFault, type Fault } from './streams/config-schema.js';
import { resolveReservations, type ReservationConfig } from './streams/bookings.js';
import { resolveStreams, type Stream } from './streams/stream.js';

const NAMES = ['sync.config.ts', 'sync.config.js', 'sync.config.mjs', 'sync.config.json'];

export interface Configuration extends Omit<ParsedConfig, 'streams' | 'reservations'> {
  /** Parents first. */
  streams: readonly Stream[];
  reservations: ReservationConfig | undefined;
}

/** The first `sync.config.*` of the folder, if there is one. */
export function findConfiguration(folder = process.cwd()): string | undefined {
  return NAMES.map((name) => path.join(folder, name)).find(existsSync);
}

/** Loads `file`, or the first `sync.config.*` of the folder. Throws UsageError with every fault. */
export async function loadConfiguration(
  file: string | undefined,
  folder = process.cwd(),
): Promise<Configuration> {
  const found = file === undefined ? findConfiguration(folder) : path.resolve(folder, file);
  if (found === undefined || !existsSync(found)) {
    const sought = found === undefined ? `${NAMES[0]} in ${folder}` : `configuration file ${found}`;
    throw new UsageError(`there is no ${sought}`, {
      remedy: 'Write one (docs/configuration.md), or name it with --config or SLOTSYNC_CONFIG.',
    });
  }
  let exported: unknown;
  try {
    exported = await readExported(found);
  } catch (error) {
    const reason = messageOf(error).replace(/\s+/g, ' ').trim();
    throw new UsageError(`${path.basename(found)} cannot be loaded: ${reason}`, { cause: error });
  }
  return checkConfiguration(exported, path.basename(found));
}

async function readExported(file: string): Promise<unknown> {
  if (file.endsWith('.json')) return JSON.parse(readFileSync(file, 'utf8'));
  const { createJiti } = await import('jiti');
  const self = import.meta.url.endsWith('.ts') ? './index.ts' : './index.js';
  const alias = { slotsync: fileURLToPath(new URL(self, import.meta.url)) };
  // A cache on disk would be in the temporary folder, where other users of the machine could leave code to be run.
  const jiti = createJiti(import.meta.url, {
    alias,
    fsCache: false,
    moduleCache: false,
    interopDefault: false,
  });
  return (await jiti.import<{ default?: unknown }>(file)).default;
}

/** Checks what a configuration file exported; `name` stands in the message. Throws UsageError with every fault. */
export function checkConfiguration(exported: unknown, name = 'the configuration'): Configuration {
  if (exported === undefined || exported === null) {
    throw new UsageError(`${name} exports no configuration`, {
      remedy: 'It needs `export default defineConfig({ … })`.',
    });
  }
  // The input distinguishes what is missing from what is wrong.
  const parsed = configSchema.safeParse(exported, { reportInput: true });
  const faults: Fault[] = parsed.success ? [] : parsed.error.issues.flatMap(toFaults);
  const { readable, unreadable } = parsed.success
    ? { readable: parsed.data.streams, unreadable: new Set<string>() }
    : parseStreams(exported);
  const streams = resolveStreams(readable, faults, unreadable);
  faults.push(...checkSchedule(exported));
  const reservations =
    parsed.data?.reservations && resolveReservations(parsed.data.reservations, streams, faults);
  if (!parsed.success || faults.length > 0) {
    throw new UsageError(`${name} has ${faults.length === 1 ? 'a fault' : `${faults.length} faults`}`, {
      faults: faults.map(describeFault),
    });
  }
  return { ...parsed.data, streams, reservations };
}

/** The schedule as cron-schedule.ts takes it; undefined without one. */
export function scheduleOf({ schedule }: Pick<ParsedConfig, 'schedule'>) {
  if (!schedule) return undefined;
  const { nightly: pattern, timezone, catchUp } = schedule;
  return { pattern, timezone, catchUp };
}

function checkSchedule(exported: unknown): Fault[] {
  const nightly = (exported as { schedule?: { nightly?: unknown } | null }).schedule?.nightly;
  const fault = typeof nightly === 'string' && nightly !== '' ? findPatternFault(nightly) : undefined;
  return fault === undefined ? [] : [{ path: 'schedule.nightly', message: fault }];
}

/** The streams that can be read although the configuration as a whole cannot, so that their faults are reported too. */
function parseStreams(exported: unknown) {
  const streams: unknown = (exported as { streams?: unknown }).streams;
  const readable: Record<string, StreamDeclaration> = {};
  const unreadable = new Set<string>();
  for (const [name, declaration] of Object.entries(streams ?? {})) {
    const parsed = streamSchema.safeParse(declaration);
    if (parsed.success) readable[name] = parsed.data;
    else unreadable.add(name);
  }
  return { readable, unreadable };
}

function toFaults(issue: z.core.$ZodIssue): Fault[] {
  const at = issue.path.join('.');
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      path: at === '' ? key : `${at}.${key}`,
      message: `unknown${suggest(key)}`,
    }));
  }
  const isOfKey = issue.code === 'invalid_key';
  const isMissing = issue.input === undefined && ['invalid_type', 'invalid_union'].includes(issue.code);
  const message = (isOfKey && issue.issues[0]?.message) || issue.message;
  return [{ path: at, message: isMissing ? `is missing: ${message}` : message }];
}

function suggest(key: string): string {
  const near = closest(key, configKeys());
  const apart = distance(key, near);
  return apart > 0 && apart <= Math.min(3, key.length / 2)
    ? `; did you mean '${near}'?`
    : '; remove it, or check the spelling';
}

/** The streams named on the command line, or all. Throws UsageError for a name that is not configured. */
export function selectStreams({ streams }: Configuration, names: readonly string[]): readonly Stream[] {
  const known = new Set(streams.map(({ name }) => name));
  const unknown = names.filter((name) => !known.has(name));
  if (unknown.length > 0) {
    throw new UsageError(`no stream ${unknown.map((name) => `'${name}'`).join(', ')} in the configuration`, {
      remedy: `There are: ${[...known].join(', ')}.`,
    });
  }
  return names.length === 0 ? streams : streams.filter(({ name }) => names.includes(name));
}

/** The one stream of this name. Throws UsageError when it is not configured. */
export function selectStream(configuration: Configuration, name: string): Stream {
  return selectStreams(configuration, [name])[0] as Stream;
}
