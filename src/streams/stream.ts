// Resolves the declarations of the configuration to streams. Collects all faults, so that one check reports them all.
import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type {
  Fault,
  FieldRuleConfig,
  KeyReference,
  ParsedConfig,
  StreamDeclaration,
  StreamOperation,
} from './config-schema.js';
import { isIdentifiedByKey, mayCollide, parseTemplate, type ExternalIdTemplate } from './external-id.js';
import type { ExternalIdRule } from './external-id-rule.js';
import { DEFAULT_RULE, type FieldRule, type FieldRules } from './field-rules.js';
import { fingerprintOf } from './fingerprints.js';
import { toValues } from './field-values.js';
import { listContent, useLookups, type FieldSource, type Lookup, type UsedLookups } from './lookups.js';
import { parseSource, type Source } from './source.js';

export type { Source };

interface Reference {
  fieldId: string;
  stream: string;
  /** Columns of this stream that hold the local key of the referenced record. */
  key: readonly string[];
}

/** Properties that a stream and the bookings have in common. */
export interface DeclaredSource {
  source: Source;
  key: readonly string[];
  externalId: ExternalIdTemplate;
  fields: ReadonlyMap<string, FieldSource>;
  lookups: UsedLookups;
  /** Maximum size of a row as text, in megabytes. Values of a larger row are not read. */
  rowLimitMegabytes: number;
}

type SourceKey = 'from' | 'key' | 'rowSecurity' | 'externalId' | 'fields' | 'rowLimitMegabytes';
type SourceDeclaration = Omit<Pick<StreamDeclaration, SourceKey>, 'fields'> & {
  fields: Readonly<Record<string, FieldSource>>;
};

/** A kind of record that is synced, resolved from its declaration. */
export interface Stream
  extends DeclaredSource, Omit<StreamDeclaration, SourceKey | 'references' | 'write' | 'retire'> {
  name: string;
  retire: 'keep' | 'deactivate';
  /** Values by field that a deactivation also writes. */
  retireFields: ReadonlyMap<string, readonly string[]>;
  references: readonly Reference[];
  /** External ids of the types that the stream's objects may have: `type` and the subtypes. */
  objectTypes: ReadonlySet<string>;
  /** Ids of the fields that the mapping fills, including references. */
  owned: ReadonlySet<string>;
  /** Rules of owned fields. Fields with the default rule, which always write the mapped value, are left out. */
  rules: FieldRules;
  /** Sending order: a stream is sent after all streams of lower level. */
  level: number;
  /**
   * True if only the key determines the external id, and no other stream may have that id. Then a claim on a record is
   * also a claim on its object.
   */
  ownsIds: boolean;
  /** Hash of the mapping. Seeds the row hashes, so that a changed mapping makes every row count as changed. */
  fingerprint: bigint;
  /** Hash of everything that affects what is planned and sent, including options that change no object. */
  declaration: string;
}

/** A resolved stream without the properties that depend on the other streams. */
type Unleveled = Omit<Stream, 'level' | 'ownsIds' | 'declaration'>;

/** Parts of a configuration, besides its streams, that the resolution of a stream depends on. */
interface Surroundings {
  lookups?: ReadonlyMap<string, Lookup>;
  rule?: ExternalIdRule | undefined;
  /** Hash of the configuration file and of its imports. A function of the row may use all of them. */
  modules?: string;
  /** Hash of the dialect file and of its imports. */
  dialect?: string | undefined;
}

/** Returns true if objects are read before they are written. `patches`: the service keeps fields that are not sent. */
export const readsFirst = ({ owns, rules }: Stream, { patches }: { patches: boolean }): boolean =>
  owns === 'fields' && (!patches || rules.size > 0);

/** Resolves all declarations, sorted by level. Adds each fault to `faults` instead of throwing. */
export function resolveStreams(
  streams: ParsedConfig['streams'],
  faults: Fault[],
  { lookups = new Map(), modules = '', dialect, rule }: Surroundings = {},
): Stream[] {
  const declarations = Object.entries(streams);
  const parents = declarations.map(
    ([name, { references }]) => [name, Object.values(references).map(({ stream }) => stream)] as const,
  );
  const levels = levelStreams(new Map(parents), faults);
  const known = new Map(declarations.map(([name, { key }]) => [name, toList(key)]));
  const templates = new Map(declarations.map(([name, { externalId }]) => [name, externalId]));
  const resolved = declarations.map(([name, declaration]) =>
    resolveStream(name, declaration, { known, templates, lookups, modules, rule }, faults),
  );
  refuseRulesThatDiffer(resolved, faults);
  return resolved
    .map((stream) => {
      const level = levels.get(stream.name) ?? 0;
      const declaration = fingerprintOf([
        level,
        streams[stream.name],
        String(stream.fingerprint),
        resolved
          .filter((other) => concerns(stream, other))
          .map(({ name, source, key, externalId, objectTypes }) => [
            name,
            source,
            key,
            externalId,
            [...objectTypes],
          ]),
        ...(dialect === undefined ? [] : [dialect]),
      ]);
      return { ...stream, level, declaration, ownsIds: ownsIds(stream, resolved) };
    })
    .sort((a, b) => a.level - b.level);
}

export const sends = ({ operations }: Pick<Stream, 'operations'>, operation: StreamOperation): boolean =>
  operations?.includes(operation) ?? true;

/** Groups streams that have an object type in common, directly or through further streams. */
export function groupByTypes(all: Iterable<Stream>): { types: Set<string>; streams: Stream[] }[] {
  const streams = [...all];
  const groups: Set<string>[] = [];
  for (const { objectTypes } of streams) {
    const [group = new Set<string>(), ...others] = groups.filter((types) =>
      [...objectTypes].some((type) => types.has(type)),
    );
    for (const other of others) groups.splice(groups.indexOf(other), 1);
    if (!groups.includes(group)) groups.push(group);
    for (const type of [objectTypes, ...others].flatMap((types) => [...types])) group.add(type);
  }
  return groups.map((types) => ({ types, streams: streams.filter(({ type }) => types.has(type)) }));
}

type Identified = Pick<Stream, 'name' | 'key' | 'externalId'>;

function ownsIds({ name, key, externalId }: Identified, all: readonly Identified[]): boolean {
  return (
    isIdentifiedByKey(key, externalId) &&
    all.every((other) => other.name === name || !mayCollide(externalId, other.externalId))
  );
}

/** Returns true if a stream's objects depend on the declaration of `other`, by a reference or a shared external id. */
function concerns({ name, externalId, references }: Unleveled, other: Unleveled): boolean {
  return (
    other.name !== name &&
    (references.some(({ stream }) => stream === other.name) || mayCollide(externalId, other.externalId))
  );
}

interface DeclaredStreams {
  /** Key columns by stream. */
  known: ReadonlyMap<string, readonly string[]>;
}

interface Declared extends Required<Omit<Surroundings, 'dialect'>>, DeclaredStreams {
  templates: ReadonlyMap<string, string>;
}

function resolveStream(
  name: string,
  declaration: StreamDeclaration,
  streams: Declared,
  faults: Fault[],
): Unleveled {
  const at = `streams.${name}`;
  const { from, key, rowSecurity, externalId, rowLimitMegabytes, references, retire, ...declared } =
    declaration;
  const { fields, rules } = splitRules(declaration, at, faults);
  const given = { from, key, rowSecurity, externalId, fields, rowLimitMegabytes };
  const source = resolveDeclared(given, at, streams, faults);
  const owned = new Set([...Object.keys(fields), ...Object.keys(references)]);
  for (const [place, fieldId] of (declared.match ?? []).entries())
    if (!owned.has(fieldId)) {
      const message = `'${fieldId}' is not among the stream's fields and references: ${[...owned].join(', ')}`;
      faults.push({ path: `${at}.match[${place}]`, message });
    }
  const retires = retire !== 'keep';
  if (retires && !sends(declared, 'retire')) {
    const message = "leaves 'retire' out, and retire: 'deactivate' asks for it; remove one of the two";
    faults.push({ path: `${at}.operations`, message });
  }
  if (!retires && declared.operations?.every((operation) => operation === 'retire')) {
    const message = "has only 'retire', which retire: 'deactivate' asks for; add that, or another operation";
    faults.push({ path: `${at}.operations`, message });
  }
  const set = typeof retire === 'string' ? {} : retire.fields;
  return {
    ...declared,
    name,
    ...source,
    retire: typeof retire === 'string' ? retire : 'deactivate',
    retireFields: new Map(Object.entries(set).map(([fieldId, value]) => [fieldId, toValues(value)])),
    references: Object.entries(references).map(([fieldId, reference]) => {
      const path = `${at}.references.${fieldId}`;
      if (Object.hasOwn(fields, fieldId))
        faults.push({ path, message: `'${fieldId}' is also among the fields; keep one of the two` });
      if (reference.stream === name && String(reference.key) === String(key)) {
        const message = `the stream's own key: every row would refer to itself; name the columns that hold the key of the other row`;
        faults.push({ path: `${path}.key`, message });
      }
      return { fieldId, ...resolveReference(reference, path, streams, faults) };
    }),
    objectTypes: new Set([declaration.type, ...declaration.subtypes]),
    owned,
    rules,
    fingerprint: fingerprint({ ...declaration, fields }, rules, source.lookups, streams),
  };
}

/** Separates the rules of fields and references from the sources of their values. */
function splitRules(
  { fields, references, write, owns }: StreamDeclaration,
  at: string,
  faults: Fault[],
): { fields: Record<string, FieldSource>; rules: FieldRules } {
  const rules = new Map<string, FieldRule>();
  const note = (field: string, path: string, rule: FieldRuleConfig) => {
    if (rule.add && (rule.write ?? 'always') !== 'always')
      faults.push({ path, message: '`add` and `write` exclude each other; keep one of the two' });
    const { add = DEFAULT_RULE.add, ifNull = DEFAULT_RULE.ifNull } = rule;
    const resolved = {
      write: add ? DEFAULT_RULE.write : (rule.write ?? write ?? DEFAULT_RULE.write),
      add,
      ifNull,
    };
    if (isDeepStrictEqual(resolved, DEFAULT_RULE)) return;
    rules.set(field, resolved);
    if (owns === 'object')
      faults.push({
        path,
        message:
          "is written without reading the object, so the service's value is not known; use owns: 'fields'",
      });
  };
  const sources = Object.entries(fields).map(([field, declared]): [string, FieldSource] => {
    const isRuled = typeof declared === 'object' && 'from' in declared;
    note(field, `${at}.fields.${field}`, isRuled ? declared : {});
    return [field, isRuled ? declared.from : declared];
  });
  for (const [field, reference] of Object.entries(references))
    note(field, `${at}.references.${field}`, reference);
  return { fields: Object.fromEntries(sources), rules };
}

/**
 * Refuses different rules of two streams for one field of a common type: the service cannot tell their objects apart.
 */
function refuseRulesThatDiffer(streams: readonly Unleveled[], faults: Fault[]): void {
  for (const { name, objectTypes, rules } of streams)
    for (const [field, rule] of rules) {
      const other = streams.find(
        (one) =>
          one.name !== name &&
          one.owned.has(field) &&
          [...one.objectTypes].some((type) => objectTypes.has(type)) &&
          !isDeepStrictEqual(one.rules.get(field), rule),
      );
      if (other)
        faults.push({
          path: `streams.${name}`,
          message: `stream ${other.name} has the same type and writes '${field}' by another rule; write the same \`write\`, \`add\` and \`ifNull\` in both`,
        });
    }
}

function toList(value: string | string[]): string[] {
  return typeof value === 'string' ? [value] : value;
}

/** Resolves the source, key, external id and fields of a declaration. `path`: its place in the configuration. */
export function resolveDeclared(
  { from, key, rowSecurity, externalId, fields, rowLimitMegabytes }: SourceDeclaration,
  path: string,
  { lookups, rule }: Pick<Declared, 'lookups' | 'rule'>,
  faults: Fault[],
): DeclaredSource {
  const orFault = <T>(parsed: T | string, of: SourceKey, otherwise: T): T => {
    if (typeof parsed !== 'string') return parsed;
    faults.push({ path: `${path}.${of}`, message: parsed });
    return otherwise;
  };
  return {
    source: {
      ...orFault(parseSource(from), 'from', { table: [] }),
      rowSecurity,
    },
    key: toList(key),
    externalId: orFault(parseTemplate(externalId, rule), 'externalId', { parts: [], rule }),
    fields: new Map(Object.entries(fields)),
    lookups: useLookups(fields, lookups, path, faults),
    rowLimitMegabytes,
  };
}

/** Checks that a reference names a declared stream, with one column for each of its key columns. */
export function resolveReference(
  { stream, key }: KeyReference,
  path: string,
  { known }: DeclaredStreams,
  faults: Fault[],
): { stream: string; key: string[] } {
  const target = known.get(stream);
  if (!target) {
    const names = [...known.keys()].join(', ');
    faults.push({ path: `${path}.stream`, message: `no stream '${stream}'; there are: ${names}` });
  } else if (target.length !== toList(key).length) {
    const message = `name one column for each key column of ${stream} (${target.join(', ')})`;
    faults.push({ path: `${path}.key`, message });
  }
  return { stream, key: toList(key) };
}

/**
 * Returns a 64-bit hash of everything that determines how a row becomes an object. Functions count by their source text
 * and the modules that they may use. Referenced streams count by their template, so that a stream can be renamed.
 */
function fingerprint(
  {
    key,
    type,
    externalId,
    fields,
    references,
    graceDays,
  }: Omit<StreamDeclaration, 'fields'> & Pick<SourceDeclaration, 'fields'>,
  rules: FieldRules,
  { contents, tables }: UsedLookups,
  { modules, templates, rule }: Pick<Declared, 'modules' | 'templates' | 'rule'>,
): bigint {
  const isComputed = Object.values(fields).some((from) => typeof from === 'function');
  const surroundings = [
    ...(isComputed && modules !== '' ? [modules] : []),
    ...(contents.size + tables.size > 0 ? [[...contents].map(listContent), [...tables]] : []),
    ...(rule ? [rule] : []),
    // With changed rules, every row must count as changed, so that the next sync stores the values the rules need.
    ...(rules.size > 0 ? [[...rules]] : []),
    // A new grace column must make every row count as changed, because the state stores its value for every row.
    ...(typeof graceDays === 'object' ? [{ endsOn: graceDays.column }] : []),
  ];
  const referred = Object.entries(references).map(([field, { stream, key: of }]) => [
    field,
    of,
    templates.get(stream) ?? stream,
  ]);
  const text = JSON.stringify(
    [key, type, externalId, fields, referred, ...surroundings],
    (_, value: unknown) => (typeof value === 'function' ? value.toString() : value),
  );
  return createHash('sha256').update(text).digest().readBigInt64BE();
}

// Levels put parents before children. state/runs/send-again.ts orders records that refer to their own stream.

/**
 * Returns the level of each stream: 0 without references to others, else one above its highest parent. A cycle of
 * several streams is added to `faults`.
 */
export function levelStreams(
  references: ReadonlyMap<string, readonly string[]>,
  faults: Fault[],
): Map<string, number> {
  const levels = new Map<string, number>();

  function levelOf(stream: string, path: readonly string[]): number {
    const known = levels.get(stream);
    if (known !== undefined) return known;
    const start = path.indexOf(stream);
    if (start >= 0) {
      const cycle = [...path.slice(start), stream];
      const message = `the streams refer to each other in a circle: ${cycle.join(' → ')}; leave one of these references out`;
      if (!faults.some((fault) => fault.message === message))
        faults.push({ path: `streams.${stream}.references`, message });
      return 0;
    }
    const parents = (references.get(stream) ?? []).filter(
      (parent) => parent !== stream && references.has(parent),
    );
    const level = parents.reduce((most, one) => Math.max(most, levelOf(one, [...path, stream]) + 1), 0);
    levels.set(stream, level);
    return level;
  }

  for (const stream of references.keys()) levelOf(stream, []);
  return levels;
}

/** Returns the names of the streams that have their own `freshness`. */
export const namesOfAsking = (streams: Iterable<Pick<Stream, 'name' | 'freshness'>>): string[] =>
  [...streams].flatMap(({ name, freshness }) => (freshness === undefined ? [] : [name]));

/**
 * Returns true if both streams have the same query for the age of the mirror's data, so that one answer serves both.
 */
export function readsSameLoad(one: Stream, other: Stream): boolean {
  const asked = one.freshness?.query;
  return (
    one === other ||
    (asked !== undefined &&
      asked === other.freshness?.query &&
      one.source.rowSecurity === other.source.rowSecurity)
  );
}
