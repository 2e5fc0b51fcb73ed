// Finds, loads and checks the configuration file. TypeScript is loaded without a build step. An import of `slotsync` in
// the file resolves to this program, wherever the file is.
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { z } from 'zod';
import { requireOwnFile } from './environment.js';
import { completeDialect, DEFAULT_DIALECT, type CompleteDialect } from '../dialect/complete-dialect.js';
import { findSyntaxError, hashTexts, importFile, type Exported, type Modules } from './load-file.js';
import { readCsvFile } from '../files/csv-file.js';
import { messageOf, UsageError } from '../errors/errors.js';
import { TimeoutError, withDeadline } from '../time/deadline.js';
import { AFTER_SYNC, NIGHTLY } from '../time/schedule.js';
import {
  configKeys,
  configSchema,
  describeFault,
  type SlotsyncConfig,
  type Fault,
  type ParsedConfig,
} from '../streams/config-schema.js';
import { plural, shorten } from '../text/format.js';
import { nearestName } from '../text/nearest-name.js';
import { toRule } from '../streams/external-id-rule.js';
import { fingerprintsOf, type Fingerprints } from '../streams/fingerprints.js';
import { resolveFreezes, type Freeze } from '../streams/freezes.js';
import { resolveLookups } from '../streams/lookups.js';
import { resolveReservations, type ReservationConfig } from '../streams/bookings.js';
import { resolveStreams, type Stream } from '../streams/stream.js';

const NAMES = ['sync.config.ts', 'sync.config.js', 'sync.config.mjs', 'sync.config.json'];

export interface Configuration extends Omit<ParsedConfig, 'streams' | 'reservations' | 'service'> {
  service: Omit<ParsedConfig['service'], 'dialect'> & { dialect: CompleteDialect };
  /** Declared streams in order: a stream comes after the streams that it refers to. */
  streams: readonly Stream[];
  reservations: ReservationConfig | undefined;
  freezes: readonly Freeze[];
  fingerprints: Fingerprints;
  /** Paths of the configuration file, its dialect, all files that these import, and the files of lookups. */
  files: readonly string[];
}

/** Timeout for loading a file, which may await something, for example a secret from elsewhere. */
const LOAD_WITHIN_MS = 30_000;

/** Maximum number of characters shown of a line with a syntax error. */
const LONGEST_LINE = 120;

/** A configuration that a process has loaded. Its files may change meanwhile. */
export interface LoadedConfiguration extends Configuration {
  loadedAt: Date;
  /** Returns true if the files now differ from what was loaded. */
  isChanged: () => Promise<boolean>;
}

/** Section `service` that is used without a configuration. */
export const DEFAULT_SERVICE = {
  ...configSchema.shape.service.parse(undefined),
  dialect: DEFAULT_DIALECT,
};

/** Returns true if the named file exists, or without a name a `sync.config.*` in the working directory. */
export function existsConfiguration(file: string | undefined): boolean {
  return file === undefined ? findConfiguration() !== undefined : existsSync(file);
}

/** Returns the path of the folder's `sync.config.*`, if there is one. Throws UsageError if there are several. */
export function findConfiguration(folder = process.cwd()): string | undefined {
  const [first, ...others] = NAMES.filter((name) => existsSync(path.join(folder, name)));
  if (others.length > 0)
    throw new UsageError(`several configurations are in ${folder}: ${[first, ...others].join(' and ')}`, {
      remedy: 'Remove all but one, or name one with --config or SLOTSYNC_CONFIG.',
    });
  return first === undefined ? undefined : path.join(folder, first);
}

/**
 * Loads `file`, or else `sync.config.*` in the folder. Refuses a folder that other users of the system can write to.
 * Throws one UsageError that lists all faults.
 */
export async function loadConfiguration(
  file: string | undefined,
  folder = process.cwd(),
  loadWithinMs = LOAD_WITHIN_MS,
): Promise<LoadedConfiguration> {
  const found = file === undefined ? findConfiguration(folder) : path.resolve(folder, file);
  if (found === undefined || !existsSync(found)) {
    const sought = found === undefined ? `${NAMES[0]} in ${folder}` : `configuration file ${found}`;
    throw new UsageError(`there is no ${sought}`, {
      remedy: 'Create one with slotsync init, or name an existing one with --config or SLOTSYNC_CONFIG.',
    });
  }
  const name = path.basename(found);
  if (file === undefined) requireOwnFile(found, `SLOTSYNC_CONFIG=${found}`);
  try {
    const isNamed = file !== undefined;
    const { exported, ...loaded } = await withDeadline({ ms: loadWithinMs }, () =>
      readExported(found, isNamed),
    );
    const checked = checkConfiguration(exported, name, { folder: path.dirname(found), ...loaded });
    const texts = await hashTexts(checked.files);
    const isChanged = async () => (await hashTexts(checked.files)) !== texts;
    return { ...checked, loadedAt: new Date(), isChanged };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    const syntax = findSyntaxError(error);
    // Removes Node's list of the program's files that required a missing module.
    const late =
      error instanceof TimeoutError && `it still waits for something after ${loadWithinMs / 1000} s`;
    const reason = (late || syntax?.message || messageOf(error))
      .split(/\s*Require stack:/)[0]
      ?.replace(/\s+/g, ' ')
      .trim();
    throw new UsageError(`${name} cannot be loaded: ${reason}`, {
      faults: syntax ? [shorten(syntax.line, LONGEST_LINE)] : [],
      remedy: 'Correct the file; docs/configuration.md describes it.',
      cause: error,
    });
  }
}

/** Reads the exports of the configuration file and of its dialect. `isNamed`: the operator named the file. */
async function readExported(file: string, isNamed: boolean): Promise<Exported & { dialect?: Exported }> {
  const read = await importFile(file);
  const named = (read.exported as Partial<SlotsyncConfig> | undefined | null)?.service?.dialect;
  if (typeof named !== 'string') return read;
  const dialect = path.resolve(path.dirname(file), named);
  if (!existsSync(dialect)) throw new Error(`service.dialect: there is no file ${dialect}`);
  if (!isNamed) requireOwnFile(dialect, `SLOTSYNC_CONFIG=${file}`);
  return { ...read, dialect: await importFile(dialect) };
}

/**
 * Checks what a configuration file exports. `name` appears in messages. Files of lookups are read from `folder`.
 * `modules` are the file and its imports, `dialect` is the export of the file's dialect. Throws UsageError with every
 * value of a wrong type. If all types are right, throws UsageError with every fault of what the values mean.
 */
export function checkConfiguration(
  exported: unknown,
  name = 'the configuration',
  {
    folder = process.cwd(),
    modules = { files: [], hash: '' },
    dialect: replaced,
  }: { folder?: string; modules?: Modules; dialect?: Exported } = {},
): Configuration {
  if (!isObject(exported))
    throw new UsageError(`${name} exports no configuration`, {
      remedy: 'Write `export default defineConfig({ … })`, or in JSON an object with `streams`.',
    });
  // `reportInput` makes zod's faults distinguish a missing value from a wrong value.
  const parsed = configSchema.safeParse(exported, { reportInput: true });
  if (!parsed.success) throw refuseFaults(name, parsed.error.issues.flatMap(toFaults));
  const { data } = parsed;
  const faults = findScheduleFaults(data);
  const files = [...modules.files, ...(replaced?.modules.files ?? [])];
  const readFile = (file: string, columns: readonly [string, string]) => {
    files.push(path.resolve(folder, file));
    return readCodes(folder, file, columns);
  };
  const lookups = resolveLookups(data.lookups, readFile, faults);
  const rule = toRule(data.service.externalIds);
  const streams = resolveStreams(withFreshness(data), faults, {
    lookups,
    rule,
    modules: modules.hash,
    dialect: replaced?.modules.hash,
  });
  const reservations =
    data.reservations && resolveReservations(data.reservations, streams, { lookups, rule }, faults);
  const names = streams.map(({ name }) => name);
  const freezes = resolveFreezes(data, names, faults);
  const dialect = replaced
    ? completeDialect(replaced.exported, replaced.modules.files[0], faults)
    : DEFAULT_DIALECT;
  if (!replaced && data.service.dialect !== undefined)
    faults.push({ path: 'service.dialect', message: 'only a configuration file can name a dialect' });
  for (const { name: stream, owns } of dialect.write.patches ? streams : [])
    if (owns === 'object')
      faults.push({
        path: `streams.${stream}.owns`,
        message:
          "'object' replaces objects, but by `write.patches` of the dialect the service keeps fields that are not sent",
      });
  if (faults.length > 0) throw refuseFaults(name, faults);
  const service = { ...data.service, dialect };
  const fingerprints = fingerprintsOf(streams);
  return { ...data, service, streams, reservations, freezes, fingerprints, files };
}

const isObject = (value: unknown) =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Promise);

const refuseFaults = (name: string, faults: readonly Fault[]) =>
  new UsageError(`${name} has ${plural(faults.length, 'fault')}`, { faults: faults.map(describeFault) });

/** Returns the codes in a file of a lookup. Throws the file's fault without the path of the folder. */
function readCodes(folder: string, file: string, [key, value]: readonly [string, string]) {
  try {
    return readCsvFile(path.resolve(folder, file), [key, value]).map(({ line, values }) => ({
      line,
      code: values[key] ?? '',
      value: values[value] ?? '',
    }));
  } catch (error) {
    throw new Error(messageOf(error).replace(path.resolve(folder, file), file), { cause: error });
  }
}

/** Adds the configuration's `freshness` to streams that declare no `freshness`. */
const withFreshness = ({ streams, freshness }: ParsedConfig): ParsedConfig['streams'] =>
  Object.fromEntries(Object.entries(streams).map(([name, stream]) => [name, { freshness, ...stream }]));

/** Returns faults of schedule keys that make no sense together, or that need another key. */
function findScheduleFaults({ schedule, verify, streams, freshness }: ParsedConfig): Fault[] {
  const fault = (path: string, message: string | false) => (message === false ? [] : [{ path, message }]);
  const nightly = Object.values(streams).filter((stream) => stream.schedule === undefined);
  const isNightly = schedule?.nightly !== undefined;
  const asked = [freshness, ...nightly.map((stream) => stream.freshness)];
  const isAsked = asked.some((known) => known !== undefined);
  return [
    ...fault(
      'verify.after',
      verify?.after === AFTER_SYNC &&
        !isNightly &&
        "'sync' means after each nightly sync, but `schedule.nightly` is not set",
    ),
    ...fault(
      'schedule.nightly',
      schedule !== undefined &&
        (isNightly
          ? nightly.length === 0 &&
            'applies to no stream, because every stream has its own `schedule`; remove `nightly`, or one of those'
          : nightly.length > 0 && "is missing: a cron expression such as '0 2 * * *'"),
    ),
    ...fault(
      'schedule.waitForLoadMinutes',
      (schedule?.waitForLoadMinutes ?? 0) > 0 &&
        !isAsked &&
        'needs `freshness`, which tells when the mirror was loaded',
    ),
  ];
}

export type ConfiguredSchedule = ReturnType<typeof schedulesOf>[number];

/**
 * Returns the schedules of syncs with their streams, for cron-schedule.ts: the nightly schedule, and one schedule for
 * each pattern of streams with times of their own.
 */
export function schedulesOf({ schedule, streams }: Pick<Configuration, 'schedule' | 'streams'>) {
  const { nightly, timezone = 'UTC', catchUp = true, waitForLoadMinutes = 0 } = schedule ?? {};
  const patterns = new Set(streams.map((stream) => stream.schedule ?? nightly));
  return [...patterns]
    .toSorted((a = '', b = '') => (a < b ? -1 : 1))
    .flatMap((pattern) => {
      if (pattern === undefined) return [];
      const waitMinutes = pattern === nightly ? waitForLoadMinutes : 0;
      const ofPattern = streams.filter((stream) => (stream.schedule ?? nightly) === pattern);
      const name = ofPattern.some((stream) => stream.schedule === undefined) ? NIGHTLY : pattern;
      return [{ name, pattern, timezone, catchUp, waitMinutes, streams: ofPattern.map((of) => of.name) }];
    });
}

export const nightlyOf = (configuration: Pick<Configuration, 'schedule' | 'streams'>) =>
  schedulesOf(configuration).find(({ name }) => name === NIGHTLY);

/** Returns when workers verify, if they do: a cron pattern, or `sync`, which means after each nightly sync. */
export function verifyScheduleOf({ schedule, verify }: Pick<ParsedConfig, 'schedule' | 'verify'>) {
  return verify && { pattern: verify.after, timezone: schedule?.timezone ?? 'UTC' };
}

function toFaults(issue: z.core.$ZodIssue): Fault[] {
  const place = issue.path.join('.');
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      path: place === '' ? key : `${place}.${key}`,
      message: `unknown${suggest(key)}`,
    }));
  }
  const isOfKey = issue.code === 'invalid_key';
  const isMissing = issue.input === undefined && ['invalid_type', 'invalid_union'].includes(issue.code);
  const message = (isOfKey && issue.issues[0]?.message) || issue.message;
  return [{ path: place, message: isMissing ? `is missing: ${message}` : message }];
}

function suggest(key: string): string {
  const near = nearestName(
    key,
    configKeys().filter((name) => name !== key),
  );
  return near === undefined ? '; remove it, or check the spelling' : `; did you mean '${near}'?`;
}

/** Returns the named streams, or all without names. Throws UsageError if a name is not configured. */
export function selectStreams({ streams }: Configuration, names: readonly string[]): readonly Stream[] {
  const known = new Set(streams.map(({ name }) => name));
  const unknown = names.filter((name) => !known.has(name));
  if (unknown.length > 0) {
    const meant = unknown.map((name) => nearestName(name, [...known])).filter((name) => name !== undefined);
    const near = meant.length === 0 ? '' : `Did you mean ${meant.join(', ')}? `;
    throw new UsageError(`no stream ${unknown.map((name) => `'${name}'`).join(', ')} in the configuration`, {
      remedy: `${near}There are: ${[...known].join(', ')}.`,
    });
  }
  return names.length === 0 ? streams : streams.filter(({ name }) => names.includes(name));
}

/** Returns the stream with this name. Throws UsageError if it is not configured. */
export function selectStream(configuration: Configuration, name: string): Stream {
  return selectStreams(configuration, [name])[0] as Stream;
}
