// Lookups translate codes of the mirror into values of the service. Pure: callers read lookup tables from the mirror.
import { createHash } from 'node:crypto';
import { messageOf, type SlotsyncError } from '../errors/errors.js';
import { suggestName } from '../text/nearest-name.js';
import type {
  Fault,
  FieldFunction,
  LookupField,
  LookupFile,
  LookupSource,
  ParsedConfig,
} from './config-schema.js';
import { parseSource, type Source } from './source.js';

/** Source of a field's value: a column, a function of the row, or a column whose codes a lookup translates. */
export type FieldSource = string | FieldFunction | Required<LookupField>;

/** Values by code. A null sends no value. */
export type LookupContent = ReadonlyMap<string, string | null>;

export interface LookupTable {
  source: Source;
  key: string;
  value: string;
}

/** A lookup of the configuration. The content of a table is read later, by each plan. */
export type Lookup = { content: LookupContent } | { table: LookupTable };

export interface UsedLookups {
  contents: ReadonlyMap<string, LookupContent>;
  /** Lookups whose content is read from the mirror when a run is planned. */
  tables: ReadonlyMap<string, LookupTable>;
  /** Error of a lookup table that could not be read. If set, no row can be mapped. */
  fault?: SlotsyncError | undefined;
  /** Fingerprint of the stream, excluding the contents of its lookup tables. */
  unread?: bigint | undefined;
}

/** Maximum number of codes in a lookup table, because all codes are held in memory. */
export const MOST_CODES = 100_000;

/**
 * Reads a CSV file beside the configuration file. Returns its codes in file order, each with its line number. Throws an
 * error whose message is the fault.
 */
export type ReadLookupFile = (
  file: string,
  columns: readonly [key: string, value: string],
) => { line: number; code: string; value: string }[];

export function resolveLookups(
  declared: ParsedConfig['lookups'],
  readFile: ReadLookupFile,
  faults: Fault[],
): Map<string, Lookup> {
  const lookups = new Map<string, Lookup>();
  for (const [name, lookup] of Object.entries(declared)) {
    const path = `lookups.${name}`;
    if (isTable(lookup)) {
      const { from, key, value, rowSecurity } = lookup;
      const source = parseSource(from);
      if (typeof source === 'string') faults.push({ path: `${path}.from`, message: source });
      else lookups.set(name, { table: { source: { ...source, rowSecurity }, key, value } });
    }
    const content = isTable(lookup)
      ? new Map<string, string>()
      : isFile(lookup)
        ? readContent(lookup, path, readFile, faults)
        : new Map(Object.entries(lookup));
    if (!lookups.has(name)) lookups.set(name, { content });
  }
  return lookups;
}

type Declared = ParsedConfig['lookups'][string];

/** The schema allows no codes named `from` or `file`. */
const isTable = (lookup: Declared): lookup is LookupSource => Object.hasOwn(lookup, 'from');
const isFile = (lookup: Declared): lookup is LookupFile => Object.hasOwn(lookup, 'file');

function readContent(
  { file, key, value: valueColumn }: LookupFile,
  path: string,
  readFile: ReadLookupFile,
  faults: Fault[],
): LookupContent {
  const content = new Map<string, string | null>();
  const lines = new Map<string, number>();
  const add = (message: string) => faults.push({ path: `${path}.file`, message });
  try {
    for (const { line, code, value } of readFile(file, [key, valueColumn])) {
      const before = lines.get(code);
      if (before !== undefined)
        add(`${file}: lines ${before} and ${line} both have the code '${code}'; keep one of them`);
      lines.set(code, line);
      content.set(code, value === '' ? null : value);
    }
  } catch (error) {
    add(messageOf(error));
  }
  return content;
}

/** Returns the lookups that these fields use. An unknown name is added to `faults`. */
export function useLookups(
  fields: Readonly<Record<string, FieldSource>>,
  lookups: ReadonlyMap<string, Lookup>,
  path: string,
  faults: Fault[],
): UsedLookups {
  const contents = new Map<string, LookupContent>();
  const tables = new Map<string, LookupTable>();
  for (const [fieldId, from] of Object.entries(fields)) {
    if (typeof from !== 'object') continue;
    const lookup = lookups.get(from.lookup);
    if (!lookup) {
      const near = suggestName(from.lookup, [...lookups.keys()]) ?? 'none is declared';
      faults.push({
        path: `${path}.fields.${fieldId}.lookup`,
        message: `no lookup '${from.lookup}'; ${near}`,
      });
    } else if ('table' in lookup) tables.set(from.lookup, lookup.table);
    else contents.set(from.lookup, lookup.content);
  }
  return { contents, tables };
}

/** Returns the values of a code. Throws a plain Error, which does not name the code, for an unknown code. */
export function translate(
  { contents, fault }: UsedLookups,
  { column, lookup, otherwise }: Required<LookupField>,
  code: string,
): string[] {
  const content = contents.get(lookup);
  if (!content) throw new Error(`lookup '${lookup}' could not be read${fault ? `: ${fault.message}` : ''}`);
  const value = content.get(code);
  if (value === null) return [];
  if (value !== undefined) return [value];
  if (otherwise === 'keep') return [code];
  if (otherwise === null) return [];
  throw new Error(`column ${column} holds a code that lookup '${lookup}' does not have`);
}

/** Returns the declaration with the contents of its lookup tables, which become part of its fingerprint. */
export function fillLookups<T extends { lookups: UsedLookups; fingerprint?: bigint }>(
  declared: T,
  read: ReadonlyMap<string, LookupContent>,
): T {
  const { contents, tables, unread = declared.fingerprint } = declared.lookups;
  const ofTables = [...tables.keys()].map((name) => [name, read.get(name) ?? new Map()] as const);
  const lookups = { tables, contents: new Map([...contents, ...ofTables]), unread };
  if (unread === undefined) return { ...declared, lookups };
  const text = JSON.stringify([String(unread), ofTables.map(listContent)]);
  const fingerprint = createHash('sha256').update(text).digest().readBigInt64BE();
  return { ...declared, lookups, fingerprint };
}

/** Returns a lookup's name and content, sorted by code so that equal contents have equal fingerprints. */
export function listContent([name, content]: readonly [string, LookupContent]) {
  return [name, [...content].sort(([a], [b]) => (a < b ? -1 : 1))] as const;
}
