// Writes TypeScript files: `init` proposes a `sync.config.ts`, in which comments beginning with "unsure" mark doubtful
// parts, and `discover --types` lists the names of the service's types and fields.
import { isDraft, type ProposedConfiguration, type ProposedStream } from './propose-configuration.js';
import { looksSecret, type NamedField } from './match-names.js';
import { plural } from '../../text/format.js';
import type { RelationName } from '../../mirror/read-catalogue.js';
import { quoteIdentifier } from '../../text/sql-text.js';
import { visibleInLine } from '../../text/visible-text.js';
import type { ServiceSurvey } from '../run/survey-service.js';

interface FileFacts {
  /** Name of the service, for a comment in the file. */
  service: string;
  database: string;
  /** Import path of the file with the service's names. Undefined if that file was not written. */
  types: string | undefined;
}

export function renderConfiguration(
  { streams, leftOut, typesWithoutTable, fieldsWithoutColumn }: ProposedConfiguration,
  { service, database, types }: FileFacts,
): string {
  return [
    comment(`Written by slotsync init from database ${database}`),
    comment(`and ${service}.`),
    '// Read each line that says "unsure", then: slotsync check, and slotsync plan.',
    "import { defineConfig } from 'slotsync';",
    ...(types === undefined ? [] : [`import type { Service } from ${quote(types)};`]),
    '',
    `export default defineConfig${types === undefined ? '' : '<Service>'}({`,
    '  streams: {',
    ...streams.flatMap(renderStream).map((line) => indent(line, 4)),
    ...leftOut.map(({ table, why }) => indent(comment(`${toSource(table)}: ${why}`), 4)),
    ...typesWithoutTable.map((type) => indent(comment(`type ${nameOf(type)}: no table is chosen for it`), 4)),
    ...withoutColumn(fieldsWithoutColumn).map((line) => indent(line, 4)),
    '  },',
    '});',
    '',
  ].join('\n');
}

function renderStream(stream: ProposedStream): string[] {
  const { name, table, type, key, externalId, cursor } = stream;
  const size = table.rows === undefined ? '' : `, about ${plural(table.rows, 'row')}`;
  const lines = [
    `${name}: {`,
    ...[
      ...unsure(stream.unsure),
      ...renderSource(stream, `// ${table.kind}${size}`),
      ...renderCurrency(stream),
      ...renderJoin(stream),
      ...unsure(
        looksSecret([...key.columns, externalId.template ?? ''].join(' '))
          ? 'the key or the external id looks like a secret: both stand in the state, and commands print them'
          : undefined,
      ),
      ...unsure(key.unsure),
      `key: ${toKey(key.columns)},`,
      `type: ${quote(type.extId)},${type.name === undefined || type.name === type.extId ? '' : ` ${comment(type.name)}`}`,
      ...unsure(externalId.unsure),
      `externalId: ${quote(externalId.template ?? '')},`,
      ...renderFields(stream),
      ...renderReferences(stream),
      ...(cursor === undefined ? [] : [`cursor: ${quote(cursor)},`]),
      ...(stream.unusedColumns.length === 0
        ? []
        : [comment(`columns that fill nothing: ${stream.unusedColumns.join(', ')}`)]),
      ...(stream.secrets.length === 0
        ? []
        : [comment(`left out, because they look like secrets: ${stream.secrets.join(', ')}`)]),
      LIMITS,
    ].map((line) => indent(line, 2)),
    '},',
  ];
  if (!isDraft(stream)) return lines;
  return [
    comment(`draft: complete the externalId of ${name}, then remove the comment marks`),
    ...lines.map((line) => `// ${line}`),
  ];
}

/** Limits that the file proposes for each stream. The default has no limit for updates. */
const LIMITS = 'limits: { retire: { count: 10, percent: 10 }, update: { count: 10, percent: 20 } },';

/** Renders a stream's source: the table, and its columns if not all are needed. Other columns then cause no sync. */
function renderSource({ table, columns }: ProposedStream, size: string): string[] {
  const name = quote(toSource(table));
  if (columns === undefined) return [`from: ${name}, ${size}`];
  return ['from: {', `  table: ${name}, ${size}`, `  columns: [${columns.map(quote).join(', ')}],`, '},'];
}

/** Renders comments about columns that may mark current rows, with a condition that selects these rows. */
function renderCurrency({ currency }: ProposedStream): string[] {
  if (currency.length === 0) return [];
  const columns = currency.map(({ column }) => column).join(', ');
  const conditions = currency.flatMap(({ condition }) => condition ?? []);
  return [
    ...unsure(`${columns} may say which rows are current; a query as source can leave others out`),
    ...(conditions.length === 0 ? [] : [comment(`where: ${conditions.join(' AND ')}`)]),
  ];
}

/** Renders a comment with an alternative source, which joins another table to fill more fields. */
function renderJoin({ table, columns, join }: ProposedStream): string[] {
  if (!join) return [];
  const isTaken = (name: string) => table.columns.some((column) => column.name === name);
  const rename = (name: string) => (isTaken(name) ? `${join.table.name}_${name}` : name);
  const theirs = join.fields.flatMap(({ columns: names }) => names);
  const selected = [
    ...(columns?.map((name) => `own.${quoteIdentifier(name)}`) ?? ['own.*']),
    ...theirs.map((name) => `other.${quoteIdentifier(name)} AS ${quoteIdentifier(rename(name))}`),
  ];
  const [there, key] = join.on.map(quoteIdentifier);
  const relation = (one: RelationName) => [one.schema, one.name].map(quoteIdentifier).join('.');
  const sql = `SELECT ${selected.join(', ')} FROM ${relation(table)} AS own LEFT JOIN ${relation(join.table)} AS other ON other.${there} = own.${key}`;
  return [
    ...unsure(
      `${join.table.name} shares the key, and has columns for more fields; source and fields would be`,
    ),
    comment(`from: { query: ${quote(sql)} },`),
    ...join.fields.map(({ field, columns: names }) =>
      comment(`${toProperty(field.extId)}: ${toValue(names.map(rename))},`),
    ),
  ];
}

/** Renders a comment with all fields for which no column has a similar name. */
const withoutColumn = (fields: readonly NamedField[]) =>
  fields.length === 0 ? [] : [comment(`no column is like ${fields.map(nameOf).join(', ')}`)];

function renderFields({ fields, offers, emptyFields }: ProposedStream): string[] {
  if (fields.length + offers.length + emptyFields.length === 0) return ['fields: {},'];
  return [
    'fields: {',
    ...fields.flatMap(({ field, columns, unsure: reason }) => [
      ...unsure(reason).map((line) => indent(line, 2)),
      indent(`${toProperty(field.extId)}: ${toValue(columns)},`, 2),
    ]),
    ...[
      ...offers.flatMap(({ field, columns }) => [
        ...unsure(`any type may have ${nameOf(field)}, as far as the service shows`),
        comment(`${toProperty(field.extId)}: ${toValue(columns)},`),
      ]),
      ...emptyFields.flatMap(({ field, column }) =>
        column === undefined
          ? []
          : unsure(
              `${nameOf(field)} is like column ${column.name}, ${column.isText ? 'which refers to another row' : `which is ${column.type}: a function can make text of it, (row) => …`}`,
            ),
      ),
      ...withoutColumn(emptyFields.filter(({ column }) => column === undefined).map(({ field }) => field)),
    ].map((line) => indent(line, 2)),
    '},',
  ];
}

function renderReferences({ references, unplaced }: ProposedStream): string[] {
  const missing = unplaced.map(({ columns, stream, why }) =>
    comment(`unsure: ${columns.join(', ')} refers to ${stream}; ${why}`),
  );
  if (references.length === 0) return missing;
  return [
    'references: {',
    ...references.flatMap(({ field, stream, columns, unsure: reason }) => [
      ...unsure(reason).map((line) => indent(line, 2)),
      indent(`${toProperty(field.extId)}: { stream: ${quote(stream)}, key: ${toKey(columns)} },`, 2),
    ]),
    '},',
    ...missing,
  ];
}

/** Returns a table's name for the configuration. Schema or name are quoted if they contain dots, quotes or spaces. */
export function toSource({ schema, name }: { schema: string; name: string }): string {
  return [schema, name]
    .map((part) => (/^[^".\s]+$/.test(part) ? part : `"${part.replaceAll('"', '""')}"`))
    .join('.');
}

/** Renders the value of a field: a column name, or a function that joins several columns. */
function toValue(columns: readonly string[]): string {
  const [column = ''] = columns;
  if (columns.length === 1) return quote(column);
  const values = columns.map((name) => (isIdentifier(name) ? `row.${name}` : `row[${quote(name)}]`));
  return `(row) => [${values.join(', ')}].filter(Boolean).join(' ') || null`;
}

function toKey(columns: readonly string[]): string {
  const [column = ''] = columns;
  return columns.length === 1 ? quote(column) : `[${columns.map(quote).join(', ')}]`;
}

const isIdentifier = (name: string) => /^[a-z_$][\w$]*$/i.test(name);
/** Renders a property name. `__proto__` needs brackets, since without them it would set the object's prototype. */
const toProperty = (name: string) =>
  name === '__proto__' ? `[${quote(name)}]` : isIdentifier(name) ? name : quote(name);
const nameOf = ({ extId, name }: { extId: string; name: string | undefined }) =>
  name === undefined || name === extId ? quote(extId) : `${quote(extId)} (${name})`;
const unsure = (reason: string | undefined) => (reason === undefined ? [] : [comment(`unsure: ${reason}`)]);
const comment = (text: string) => `// ${visibleInLine(text)}`;
const indent = (line: string, by: number) => `${' '.repeat(by)}${line}`;

/** Returns the number of fields and references as a text. */
const countsOf = (fields: number, references: number) =>
  `${plural(fields, 'field')}, ${plural(references, 'reference')}`;

export function describeProposal({ streams, leftOut, typesWithoutTable }: ProposedConfiguration): string[] {
  const fields = streams.reduce((sum, one) => sum + one.fields.length, 0);
  const references = streams.reduce((sum, one) => sum + one.references.length, 0);
  return [
    `${plural(streams.length, 'stream')}, ${countsOf(fields, references)}`,
    ...streams.map(
      (stream) =>
        `  ${stream.name}: ${toSource(stream.table)} → ${stream.type.extId}, ${isDraft(stream) ? 'a draft without externalId' : countsOf(stream.fields.length, stream.references.length)}`,
    ),
    ...leftOut.map(({ table, why }) => `  left out: ${toSource(table)}: ${why}`),
    ...(typesWithoutTable.length === 0
      ? []
      : [
          `  types without a table: ${typesWithoutTable.map(({ extId }) => extId).join(', ')}; to name one: --tables <table>=${typesWithoutTable[0]?.extId}`,
        ]),
  ];
}

/** First line of a file that slotsync generated. Only a file with this line may be overwritten. */
export const TYPES_MARKER = '// Written by slotsync discover --types.';

/** Renders a file with the service's type and field names, for typed configurations. */
export function renderServiceTypes({ types, fields }: ServiceSurvey, service: string): string {
  const union = (definitions: ServiceSurvey['types'] | ServiceSurvey['fields']) => {
    const named = definitions.flatMap(({ extId, name }) => (extId === undefined ? [] : [{ extId, name }]));
    if (named.length === 0) return ' never;';
    const members = named.toSorted((a, b) => (a.extId < b.extId ? -1 : 1));
    return members
      .map(({ extId, name }, at) => {
        const end = at === members.length - 1 ? ';' : '';
        return `\n    | ${quote(extId)}${end}${name === undefined ? '' : ` // ${visibleInLine(name)}`}`;
      })
      .join('');
  };
  return [
    TYPES_MARKER,
    `// ${visibleInLine(service)}`,
    '',
    'export interface Service {',
    `  type:${union(types)}`,
    `  field:${union(fields)}`,
    '}',
    '',
  ].join('\n');
}

export function quote(text: string): string {
  const escaped = JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'");
  return `'${escaped.replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029')}'`;
}
