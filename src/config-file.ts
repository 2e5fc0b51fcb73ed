// Finds, loads and checks the configuration file. A TypeScript file is loaded as it is; `slotsync`
// inside it means this very program, wherever the file lies.
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { closest, distance } from 'fastest-levenshtein';
import { createJiti } from 'jiti';
import type { z } from 'zod';
import { messageOf, UsageError } from './errors.js';
import { findPatternFault, type Schedule } from './cron-schedule.js';
import {
  configKeys,
  configSchema,
  streamSchema,
  type ParsedConfig,
  type StreamDeclaration,
} from './streams/config-schema.js';
import { describeFault, type Fault } from './streams/config-faults.js';
import { resolveReservations, type ReservationConfig } from './streams/bookings.js';
import { resolveStreams, type Stream } from './streams/stream.js';

const NAMES = ['sync.config.ts', 'sync.config.js', 'sync.config.mjs', 'sync.config.json'];

export interface Configuration extends Omit<ParsedConfig, 'streams' | 'reservations'> {
  /** Parents first. */
  streams: readonly Stream[];
  reservations: ReservationConfig | undefined;
}

/** Loads `file`, or the first `sync.config.*` of the folder. Throws UsageError with every fault. */
export async function loadConfiguration(
  file: string | undefined,
  folder = process.cwd(),
): Promise<Configuration> {
  const found =
    file === undefined
      ? NAMES.map((name) => path.join(folder, name)).find(existsSync)
      : path.resolve(folder, file);
  if (found === undefined || !existsSync(found)) {
    throw new UsageError(
      found === undefined
        ? `there is no ${NAMES[0]} in ${folder}`
        : `there is no configuration file ${found}`,
      { remedy: 'Write one (docs/configuration.md), or name it with --config or SLOTSYNC_CONFIG.' },
    );
  }
  let exported: unknown;
  try {
    const self = fileURLToPath(
      new URL(import.meta.url.endsWith('.ts') ? './index.ts' : './index.js', import.meta.url),
    );
    const alias = { slotsync: self };
    const jiti = createJiti(import.meta.url, { alias, moduleCache: false, interopDefault: false });
    const loaded: unknown = await jiti.import(found);
    exported = found.endsWith('.json') ? loaded : (loaded as { default?: unknown }).default;
  } catch (error) {
    const reason = messageOf(error).replace(/\s+/g, ' ').trim();
    throw new UsageError(`${path.basename(found)} cannot be loaded: ${reason}`, { cause: error });
  }
  return checkConfiguration(exported, path.basename(found));
}

/** Checks what a configuration file exported; `name` stands in the message. Throws UsageError with every fault. */
export function checkConfiguration(exported: unknown, name = 'the configuration'): Configuration {
  if (exported === undefined || exported === null) {
    throw new UsageError(`${name} exports no configuration`, {
      remedy: 'It needs `export default defineConfig({ … })`.',
    });
  }
  // The input tells what is missing from what is wrong.
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

/** The schedule as the clock takes it; undefined without one. */
export function scheduleOf({
  schedule,
}: Pick<ParsedConfig, 'schedule'>): (Schedule & { catchUp: boolean }) | undefined {
  if (!schedule) return undefined;
  const { nightly: pattern, timezone, catchUp } = schedule;
  return { pattern, timezone, catchUp };
}

function checkSchedule(exported: unknown): Fault[] {
  const nightly = (exported as { schedule?: { nightly?: unknown } | null }).schedule?.nightly;
  const fault = typeof nightly === 'string' && nightly !== '' ? findPatternFault(nightly) : undefined;
  return fault === undefined ? [] : [{ path: 'schedule.nightly', message: fault }];
}

/** The streams that can be read although the configuration as a whole cannot, so that their faults are told as well. */
function parseStreams(exported: unknown): {
  readable: Record<string, StreamDeclaration>;
  unreadable: Set<string>;
} {
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
  if (issue.code === 'invalid_key') {
    return [{ path: at, message: issue.issues[0]?.message ?? issue.message }];
  }
  if (issue.input === undefined && (issue.code === 'invalid_type' || issue.code === 'invalid_union')) {
    return [{ path: at, message: `is missing: ${issue.message}` }];
  }
  return [{ path: at, message: issue.message }];
}

function suggest(key: string): string {
  const near = closest(key, configKeys());
  const apart = distance(key, near);
  return apart > 0 && apart <= Math.min(3, key.length / 2)
    ? `; did you mean '${near}'?`
    : '; remove it, or check the spelling';
}
