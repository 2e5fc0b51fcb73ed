// From the declarations of the configuration file to streams ready for work: templates parsed,
// references checked, levels known. All faults are collected; nothing stops at the first.
import { createHash } from 'node:crypto';
import type { ParsedConfig, StreamDeclaration, FieldFunction } from './config-schema.js';
import { parseTemplate, type ExternalIdTemplate } from './external-id.js';
import type { Fault } from './config-faults.js';
import { levelStreams } from './dependency-order.js';

/** Where rows come from: a relation by its (literal) name parts, or a query. */
export type Source = { table: readonly string[] } | { query: string };

export interface Reference {
  fieldId: string;
  stream: string;
  /** Columns of this stream that hold the other's local key. */
  key: readonly string[];
}

/** One kind of record we sync. */
export interface Stream {
  name: string;
  source: Source;
  key: readonly string[];
  type: string;
  externalId: ExternalIdTemplate;
  fields: ReadonlyMap<string, string | FieldFunction>;
  references: readonly Reference[];
  /** Field ids the mapping speaks for, references included. */
  owned: ReadonlySet<string>;
  cursor: string | undefined;
  retire: 'keep' | 'deactivate';
  owns: 'fields' | 'object';
  batchSize: number;
  graceDays: number;
  unlessReserved: boolean;
  limits: StreamDeclaration['limits'];
  waitDays: number;
  /** 0 refers to nothing; a stream is sent after all of lower level. */
  level: number;
  /** Changes when the declaration does, so that a new mapping looks at every row again. Seeds the row hash. */
  fingerprint: bigint;
}

type Declarations = ParsedConfig['streams'];

/**
 * Resolves all declarations; what is wrong is added to `faults`. Ordered parents first. `unreadable` names streams
 * that are declared too, but so that nothing can be said of them: they may be referred to.
 */
export function resolveStreams(
  streams: Declarations,
  faults: Fault[],
  unreadable: ReadonlySet<string> = new Set(),
): Stream[] {
  const declarations = Object.entries(streams);
  const parents = declarations.map(
    ([name, { references }]) => [name, Object.values(references).map(({ stream }) => stream)] as const,
  );
  const levels = levelStreams(new Map(parents), faults);
  return declarations
    .map(([name, declaration]) =>
      resolveStream(name, declaration, { streams, unreadable }, levels.get(name) ?? 0, faults),
    )
    .sort((a, b) => a.level - b.level);
}

function resolveStream(
  name: string,
  declaration: StreamDeclaration,
  { streams, unreadable }: { streams: Declarations; unreadable: ReadonlySet<string> },
  level: number,
  faults: Fault[],
): Stream {
  const at = `streams.${name}`;
  const source = typeof declaration.from === 'string' ? parseTable(declaration.from) : declaration.from;
  if (typeof source === 'string') faults.push({ path: `${at}.from`, message: source });
  const template = parseTemplate(declaration.externalId);
  if (typeof template === 'string') faults.push({ path: `${at}.externalId`, message: template });

  const references = Object.entries(declaration.references).map(([fieldId, reference]) => {
    const path = `${at}.references.${fieldId}`;
    const target = Object.hasOwn(streams, reference.stream) ? streams[reference.stream] : undefined;
    const key = toList(reference.key);
    if (!target && !unreadable.has(reference.stream)) {
      const known = [...Object.keys(streams), ...unreadable].join(', ');
      faults.push({
        path: `${path}.stream`,
        message: `no stream '${reference.stream}'; there are: ${known}`,
      });
    } else if (target && toList(target.key).length !== key.length) {
      const wanted = toList(target.key).join(', ');
      faults.push({
        path: `${path}.key`,
        message: `name one column for each key column of ${reference.stream} (${wanted})`,
      });
    }
    if (Object.hasOwn(declaration.fields, fieldId)) {
      faults.push({ path, message: `'${fieldId}' is also among the fields; keep one of the two` });
    }
    return { fieldId, stream: reference.stream, key };
  });

  return {
    name,
    source: typeof source === 'string' ? { table: [] } : source,
    key: toList(declaration.key),
    type: declaration.type,
    externalId: typeof template === 'string' ? [] : template,
    fields: new Map(Object.entries(declaration.fields)),
    references,
    owned: new Set([...Object.keys(declaration.fields), ...Object.keys(declaration.references)]),
    cursor: declaration.cursor,
    retire: declaration.retire,
    owns: declaration.owns,
    batchSize: declaration.batchSize,
    graceDays: declaration.graceDays,
    unlessReserved: declaration.unlessReserved,
    limits: declaration.limits,
    waitDays: declaration.waitDays,
    level,
    fingerprint: fingerprint(declaration),
  };
}

export function toList(value: string | string[]): string[] {
  return typeof value === 'string' ? [value] : value;
}

/** Parses `schema.table`, parts optionally in double quotes; returns a text when it cannot. */
export function parseTable(name: string): Source | string {
  const parts = [...name.matchAll(/\s*(?:"((?:[^"]|"")+)"|([^".\s]+))\s*(\.|$)/gy)];
  const last = parts.at(-1);
  if (!last || last.index + last[0].length !== name.length || last[3] === '.' || parts.length > 3) {
    return `'${name}' is not a table name; write schema.table, and quote a part that holds a dot or a space: schema."my table"`;
  }
  return { table: parts.map(([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain ?? '') };
}

/** 64 bits over everything that decides how a row becomes an object; functions by their source text. */
function fingerprint({ key, type, externalId, fields, references }: StreamDeclaration): bigint {
  const text = JSON.stringify([key, type, externalId, fields, references], (_, value: unknown) =>
    typeof value === 'function' ? value.toString() : value,
  );
  return createHash('sha256').update(text).digest().readBigInt64BE();
}
