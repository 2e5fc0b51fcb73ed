// Finds, loads and checks the configuration file. A TypeScript file is loaded as it is; `slotsync`
// inside it means this very program, wherever the file lies.
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { closest, distance } from 'fastest-levenshtein';
import { createJiti } from 'jiti';
import type { z } from 'zod';
import { messageOf, UsageError } from './errors.js';
import { configSchema, type ParsedConfig } from './streams/config.js';
import { describeFault, type Fault } from './streams/faults.js';
import { resolveStreams, type Stream } from './streams/streams.js';

const NAMES = ['sync.config.ts', 'sync.config.js', 'sync.config.mjs', 'sync.config.json'];

export interface Configuration extends Omit<ParsedConfig, 'streams'> {
  /** Parents first. */
  streams: readonly Stream[];
}

/** Loads `file`, or the first `sync.config.*` of the folder. Throws UsageError with every fault. */
export async function loadConfiguration(file: string | undefined, folder = process.cwd()): Promise<Configuration> {
  const found = file === undefined ? NAMES.map((name) => path.join(folder, name)).find(existsSync) : path.resolve(folder, file);
  if (found === undefined || !existsSync(found)) {
    throw new UsageError(
      found === undefined ? `there is no ${NAMES[0]} in ${folder}` : `there is no configuration file ${found}`,
      { remedy: 'Write one (docs/configuration.md), or name it with --config or SLOTSYNC_CONFIG.' },
    );
  }
  let exported: unknown;
  try {
    const self = fileURLToPath(new URL(import.meta.url.endsWith('.ts') ? './index.ts' : './index.js', import.meta.url));
    const jiti = createJiti(import.meta.url, { alias: { slotsync: self }, moduleCache: false });
    exported = await jiti.import(found, { default: true });
  } catch (error) {
    throw new UsageError(`${path.basename(found)} cannot be loaded: ${messageOf(error)}`, { cause: error });
  }
  return checkConfiguration(exported, path.basename(found));
}

/** Checks what a configuration file exported; `name` stands in the message. Throws UsageError with every fault. */
export function checkConfiguration(exported: unknown, name = 'the configuration'): Configuration {
  const parsed = configSchema.safeParse(exported);
  const faults: Fault[] = parsed.success ? [] : parsed.error.issues.flatMap(toFaults);
  const streams = parsed.success ? resolveStreams(parsed.data, faults) : [];
  if (!parsed.success || faults.length > 0) {
    throw new UsageError(`${name} has ${faults.length === 1 ? 'a fault' : `${faults.length} faults`}`, {
      faults: faults.map(describeFault),
    });
  }
  return { ...parsed.data, streams };
}

function toFaults(issue: z.core.$ZodIssue): Fault[] {
  const at = issue.path.join('.');
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({ path: at === '' ? key : `${at}.${key}`, message: `unknown${suggest(key)}` }));
  }
  if (issue.code === 'invalid_type' && issue.input === undefined && !issue.message.includes(',')) {
    return [{ path: at, message: `is missing: ${issue.message}` }];
  }
  return [{ path: at, message: issue.message }];
}

const WORDS = [
  ...['schedule', 'streams', 'reservations', 'service', 'nightly', 'timezone', 'from', 'key', 'type', 'externalId'],
  ...['fields', 'references', 'cursor', 'retire', 'owns', 'batchSize', 'limits', 'waitDays', 'stream', 'query'],
  ...['prefix', 'requestTimeoutMs', 'tokenSeconds', 'pageSize', 'begin', 'end', 'objects', 'cancelled', 'window'],
];

function suggest(key: string): string {
  const near = closest(key, WORDS);
  return distance(key, near) <= 3 && near !== key ? `; did you mean '${near}'?` : '; remove it, or check the spelling';
}
