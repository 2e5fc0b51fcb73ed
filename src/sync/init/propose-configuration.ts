// Proposes a first configuration by comparing the mirror's tables with the service's types: streams, keys, fields and
// references. Doubts are stated in comments. Writes nothing.
import type {
  Catalogue,
  CatalogueColumn,
  CatalogueTable,
  RelationName,
} from '../../mirror/read-catalogue.js';
import type { ServiceSurvey } from '../run/survey-service.js';
import { quoteIdentifier } from '../../text/sql-text.js';
import { nearestName } from '../../text/nearest-name.js';
import {
  declaredKey,
  guessKeys,
  type ProposedKey,
  proposeExternalId,
  shareMade,
  type ProposedExternalId,
} from './propose-key.js';
import {
  findJoin,
  findReferences,
  readable,
  type ProposedJoin,
  type KeyedTable,
  type UnusableReference,
} from './find-references.js';
import {
  columnLike,
  fieldsOf,
  isOfAnyType,
  looksSecret,
  matchFields,
  matchTables,
  nameFromOnlyText,
  pairTables,
  type NamedField,
  type ProposedField,
  type ProposedReference,
  doubtOf,
  type NamedType,
  type TableOfType,
  tokensOf,
  compareNames,
} from './match-names.js';

export interface ProposedStream {
  name: string;
  table: CatalogueTable;
  type: NamedType;
  /** Doubt whether the table belongs to the type. */
  unsure: string | undefined;
  key: ProposedKey;
  externalId: ProposedExternalId;
  fields: ProposedField[];
  /** Columns with the name of a field that any type may have. */
  offers: ProposedField[];
  references: (ProposedReference<KeyedTable> & { stream: string })[];
  cursor: string | undefined;
  /** A second table whose columns fill further fields. */
  join: ProposedJoin | undefined;
  /** Columns that may mark current rows, with an SQL condition for current rows if the column's type allows one. */
  currency: { column: string; condition: string | undefined }[];
  /** Columns that refer to another stream, but for which no reference can be proposed. */
  unplaced: UnusableReference[];
  /** Columns that the stream needs. Undefined if it needs all columns of the table. */
  columns: string[] | undefined;
  /** Columns that fill no field. */
  unusedColumns: string[];
  /** Columns that are left out because they seem to contain secrets. */
  secrets: string[];
  /** Fields of the type without a value. `column`: a column of a similar name that cannot fill the field. */
  emptyFields: { field: NamedField; column: CatalogueColumn | undefined }[];
}

/** Returns true if the proposal is incomplete, because no template for external ids was found. */
export const isDraft = ({ externalId }: ProposedStream): boolean => externalId.template === undefined;

export interface ProposedConfiguration {
  /** Proposed streams. Streams that others refer to come first. */
  streams: ProposedStream[];
  /** Tables chosen by a person for which no stream can be proposed, with the reason. */
  leftOut: { table: RelationName; why: string }[];
  /** Types of the service for which no table was found. */
  typesWithoutTable: NamedType[];
  /** Fields that any type may have, and for which no table has a column. */
  fieldsWithoutColumn: NamedField[];
}

/**
 * Chooses a table for each type of the service. If several are possible, looks for the type's existing external ids in
 * the tables. `chosen`: tables chosen by a person, possibly with a type.
 */
export async function chooseTables(
  catalogue: Catalogue,
  tables: readonly CatalogueTable[],
  types: readonly NamedType[],
  chosen: ReadonlyMap<CatalogueTable, NamedType | undefined> = new Map(),
): Promise<TableOfType[]> {
  const pairs = pairTables(tables, types, chosen);
  for (const pair of pairs) {
    const isAlone = pairs.every(
      (other) => other === pair || (other.table !== pair.table && other.type !== pair.type),
    );
    if (!isAlone) pair.made = await readable(shareMade(catalogue, pair.table, pair.type));
  }
  return matchTables(pairs, chosen);
}

/**
 * Proposes streams for the chosen tables, and for tables to which they refer. `matched`: all tables that match a type.
 * `tables`: all tables of the mirror. Views that cannot be read are left out. Throws other errors of the mirror.
 */
export async function proposeConfiguration(
  catalogue: Catalogue,
  { types, fields }: ServiceSurvey,
  matched: readonly TableOfType[],
  chosen: ReadonlySet<CatalogueTable>,
  tables: readonly CatalogueTable[],
): Promise<ProposedConfiguration> {
  const namedTypes = types.flatMap((type) => (isNamed(type) ? [type] : []));
  const namedFields = fields.flatMap((field) => (isNamed(field) ? [field] : []));
  const leftOut: ProposedConfiguration['leftOut'] = [];
  const keyed = new Map<CatalogueTable, KeyedTable & { proposed: ProposedKey; match: TableOfType }>();
  for (const match of matched) {
    const { table, type } = match;
    const proposed = await proposeKey(catalogue, table);
    if (proposed) keyed.set(table, { table, key: proposed.columns, type: type.extId, proposed, match });
    else if (chosen.has(table)) leftOut.push({ table, why: 'no column identifies a row' });
  }
  for (const table of chosen)
    if (!matched.some((match) => match.table === table))
      leftOut.push({
        table,
        why: `no type of the service is like it; state its type: --tables ${table.name}=<type>`,
      });

  const unfilled = new Set(
    namedFields.filter((field) => namedTypes.every((type) => isOfAnyType(field, type))),
  );
  const names = createNames();
  const streams = new Map<CatalogueTable, ProposedStream>();
  const waiting = [...chosen].filter((table) => keyed.has(table));
  for (let table = waiting.shift(); table !== undefined; table = waiting.shift()) {
    const own = keyed.get(table);
    if (own === undefined || streams.has(table)) continue;
    const { proposed: key, match } = own;
    const { type } = match;
    const externalId = await readable(proposeExternalId(catalogue, table, type, key.columns));
    if (externalId === undefined) {
      leftOut.push({
        table,
        why: 'no external id can be made of its key; a query as source can rename the column',
      });
      keyed.delete(table);
      continue;
    }
    const ofType = fieldsOf(type, namedFields, namedTypes);
    const parents = [...keyed.values()];
    const { secrets, ...filled } = await fillFields(catalogue, own, type, ofType, parents, tables);
    const { fields, offers, references } = filled;
    for (const { to } of references) waiting.push(to.table);
    for (const { field } of [...offers, ...references]) unfilled.delete(field);
    const used = new Set([...fields, ...offers, ...references].flatMap(({ columns }) => columns));
    const cursor = findCursor(table);
    const inTemplate = [...(externalId.template ?? '').matchAll(/\{([^{}]+)\}/g)].map(([, name]) => name);
    const needed = table.columns
      .map(({ name }) => name)
      .filter((name) => used.has(name) || name === cursor || [...key.columns, ...inTemplate].includes(name));
    const all = table.columns.map(({ name }) => name).filter((name) => !secrets.includes(name));
    const columns = externalId.template === undefined ? all : needed;
    streams.set(table, {
      name: names(table, type),
      table,
      type,
      unsure: doubtOf(match),
      key,
      externalId,
      ...filled,
      references: references.map((reference) => ({ ...reference, stream: '' })),
      cursor,
      currency: table.columns
        .filter(isCurrency)
        .map((column) => ({ column: column.name, condition: conditionOf(column) })),
      columns: columns.length === table.columns.length ? undefined : columns,
      unusedColumns: table.columns
        .map(({ name }) => name)
        .filter((name) => !needed.includes(name) && !secrets.includes(name)),
      secrets: secrets.filter((name) => !needed.includes(name)),
    });
  }
  const sorted = parentsFirst([...streams.values()], streams);
  const used = new Set(sorted.map(({ type }) => type.extId));
  const typesWithoutTable = namedTypes.filter(({ extId }) => !used.has(extId));
  return { streams: sorted, leftOut, typesWithoutTable, fieldsWithoutColumn: [...unfilled] };
}

/** Finds columns and references that fill the fields of a type. Returns also the fields that nothing fills. */
async function fillFields(
  catalogue: Catalogue,
  own: KeyedTable,
  type: NamedType,
  ofType: readonly NamedField[],
  parents: readonly KeyedTable[],
  tables: readonly CatalogueTable[],
) {
  const { table, key } = own;
  const plain = matchFields(table, type, ofType, []);
  const isWanted = (column: string) => plain.fields.some(({ columns }) => columns.includes(column));
  const { candidates, otherwise } = await findReferences(catalogue, own, parents, isWanted);
  const toItself = otherwise.filter(({ stream }) => stream === table.name).flatMap(({ columns }) => columns);
  const secrets = secretsOf(table).filter((name) => !key.includes(name));
  const without = new Set([...toItself, ...secrets]);
  const { fields, offers, references, unplaced } = matchFields(table, type, ofType, candidates, without);

  const filled = [...fields, ...references].map(({ field }) => field);
  const missing = ofType.filter((field) => !isOfAnyType(field, type) && !filled.includes(field));
  const fill = (other: CatalogueTable) =>
    matchFields(other, type, missing, [], new Set(secretsOf(other))).fields;
  const join = await findJoin(catalogue, own, tables, fill);
  let empty = missing.filter((field) => !join?.fields.some((one) => one.field === field));
  const taken = [...candidates, ...otherwise, ...offers].flatMap(({ columns }) => columns);
  const name = nameFromOnlyText(table, type, empty, [...key, ...taken, ...secrets]);
  if (name && !fields.some(({ columns }) => columns[0] === name.columns[0])) {
    fields.push(name);
    empty = empty.filter((field) => field !== name.field);
  }
  const used = [...fields, ...offers, ...references].flatMap(({ columns }) => columns);
  const left = table.columns.filter(
    ({ name, isText }) => toItself.includes(name) || (!isText && !used.includes(name)),
  );
  return {
    fields: inOrderOf(table, fields),
    offers,
    references,
    join,
    secrets,
    unplaced: [
      ...otherwise,
      ...unplaced.map(({ columns, to }) => ({ columns, stream: to.table.name, why: 'no field is like it' })),
    ],
    emptyFields: empty.map((field) => ({ field, column: columnLike(field, type, left) })),
  };
}

function isNamed<T extends { extId: string | undefined }>(one: T): one is T & { extId: string } {
  return one.extId !== undefined;
}

async function proposeKey(catalogue: Catalogue, table: CatalogueTable): Promise<ProposedKey | undefined> {
  const declared = declaredKey(table);
  if (declared) return declared;
  const guesses = guessKeys(table);
  for (const column of guesses) {
    if (await readable(catalogue.isUnique(table, column)))
      return {
        columns: [column],
        unsure: `the ${table.kind} declares no key; ${column} is unique in its first rows`,
      };
  }
  const [first] = guesses;
  return first === undefined
    ? undefined
    : {
        columns: [first],
        unsure: `the ${table.kind} declares no key, and no column is unique in its first rows`,
      };
}

/** Returns a function that makes unique stream names of letters, digits and `_`. */
function createNames(): (table: CatalogueTable, type: NamedType) => string {
  const used = new Set<string>();
  return (table, type) => {
    const [base = 'stream'] = [table.name, type.extId]
      .map((name) => name.replaceAll(/[^a-z0-9]+/gi, '_').replaceAll(/^[^a-z]+|_+$/gi, ''))
      .filter((name) => name !== '');
    let name = base;
    for (let count = 2; used.has(name.toLowerCase()); count++) name = `${base}_${count}`;
    used.add(name.toLowerCase());
    return name;
  };
}

/** Returns a column that contains the time of the last change, by which rows can be polled. */
function findCursor({ columns }: CatalogueTable): string | undefined {
  return columns.find(
    ({ name, type }) =>
      type.startsWith('timestamp') &&
      !type.endsWith('[]') &&
      tokensOf(name).some((word) => /^(updated?|modified|changed?|mtime)$/.test(word)),
  )?.name;
}

/** Returns true for columns such as `left_on` or `valid_to`, which show that a row is no longer current. */
function isCurrency({ name }: CatalogueColumn): boolean {
  return /\b(left|deleted|removed|archived|retired|active|inactive|obsolete|(valid|effective|employed) (from|to|until|through|since))\b/.test(
    tokensOf(name).join(' '),
  );
}

const secretsOf = ({ columns }: CatalogueTable) => columns.map(({ name }) => name).filter(looksSecret);

/** Returns an SQL condition that selects current rows. A null in the column means that the row is current. */
function conditionOf({ name, type }: CatalogueColumn): string | undefined {
  const column = quoteIdentifier(name);
  const words = tokensOf(name);
  if (type === 'boolean') return `${column} IS NOT ${words.includes('active') ? 'FALSE' : 'TRUE'}`;
  if (!/^(date|timestamp)\b(?!.*\[\])/.test(type)) return undefined;
  const isBegin = words.some((word) => ['from', 'since', 'active'].includes(word));
  return `(${column} IS NULL OR ${column} ${isBegin ? '<=' : '>'} now())`;
}

function inOrderOf({ columns }: CatalogueTable, fields: ProposedField[]): ProposedField[] {
  const place = ({ columns: [first] }: ProposedField) => columns.findIndex(({ name }) => name === first);
  return fields.toSorted((a, b) => place(a) - place(b));
}

/** Sorts streams so that each refers only to earlier streams. Removes references in a cycle, or to a draft. */
function parentsFirst(
  streams: readonly ProposedStream[],
  byTable: ReadonlyMap<CatalogueTable, ProposedStream>,
): ProposedStream[] {
  const sorted: ProposedStream[] = [];
  const place = (stream: ProposedStream, path: readonly ProposedStream[]): void => {
    if (sorted.includes(stream)) return;
    const references: ProposedStream['references'] = [];
    for (const reference of stream.references) {
      const parent = byTable.get(reference.to.table);
      const leaveOut = (why: string) =>
        stream.unplaced.push({ columns: reference.columns, stream: reference.to.table.name, why });
      if (parent === undefined || path.includes(parent)) {
        leaveOut('as a reference it would make a cycle');
        continue;
      }
      if (parent !== stream) place(parent, [...path, stream]);
      if (isDraft(parent) && !isDraft(stream)) {
        leaveOut(`stream ${parent.name} is a draft`);
        continue;
      }
      references.push({ ...reference, stream: parent.name });
    }
    stream.references = references;
    sorted.push(stream);
  };
  for (const stream of streams) place(stream, []);
  return sorted;
}

/** Minimum likeness, from 0 to 1, of the names of two tables. */
const LEAST_LIKENESS = 0.5;

/** Returns the existing table that a wrong name probably means. Compares words, and then letters. */
export function nearestTable(name: string, tables: readonly RelationName[]): RelationName | undefined {
  const words = tokensOf(name);
  const ranked = tables.map((table) => ({ table, likeness: compareNames(words, tokensOf(table.name)) }));
  const [first] = ranked.toSorted((a, b) => b.likeness - a.likeness);
  if (first && first.likeness >= LEAST_LIKENESS) return first.table;
  const names = tables.map((table) => table.name);
  const near = nearestName(name.split('.').at(-1) ?? name, names);
  return near === undefined ? undefined : tables[names.indexOf(near)];
}
