// Compares names of tables with types of the service, and names of columns with fields, to propose a configuration.
import type { CatalogueColumn, CatalogueTable } from '../../mirror/read-catalogue.js';
import type { SurveyedField, SurveyedType } from '../run/survey-service.js';
import { distance } from 'fastest-levenshtein';

/** A field of the service that has an external id. A configuration needs the id to name the field. */
export type NamedField = SurveyedField & { extId: string };

export interface ProposedField {
  field: NamedField;
  /** A column that fills the field, or several columns to join with spaces. */
  columns: string[];
  unsure?: string | undefined;
}

/** Columns of a table that refer to another table. */
export interface ReferenceCandidate<T> {
  columns: readonly string[];
  to: T;
  /** Names of the other table and its type, as lists of words. */
  words: readonly (readonly string[])[];
  unsure?: string | undefined;
}

export interface ProposedReference<T> {
  field: NamedField;
  columns: readonly string[];
  to: T;
  unsure?: string | undefined;
}

interface FieldMatch<T> {
  fields: ProposedField[];
  /** Columns for fields that any type may have. The proposed configuration has them only as comments. */
  offers: ProposedField[];
  references: ProposedReference<T>[];
  /** References for which no field has a similar name. */
  unplaced: ReferenceCandidate<T>[];
}

/** Minimum likeness, from 0 to 1, of a column's and a field's name. Otherwise the column is not proposed. */
const LEAST_OF_FIELD = 0.5;
/** Names of less likeness are proposed with a comment, and tables are not selected by default. */
const SURE = 0.75;
/** Minimum likeness for a field that any type may have: practically the same name. */
const LEAST_OF_ANY_TYPE = 0.95;
/** Names of columns with the parts of a person's name, in order. */
const NAME_PARTS = [
  /^(given|first|fore|christian)_?names?$/i,
  /^(middle)_?names?$/i,
  /^(family|last|sur)_?names?$/i,
];

/** Assigns columns and references to fields, the most similar names first. Nothing is assigned twice. */
export function matchFields<T>(
  table: CatalogueTable,
  type: NamedType,
  fields: readonly NamedField[],
  candidates: readonly ReferenceCandidate<T>[],
  /** Columns that must not be assigned, for example secrets. */
  without: ReadonlySet<string> = new Set(),
): FieldMatch<T> {
  const context = new Set([...tokensOf(table.name), ...tokensOf(type.extId)]);
  const names = fields.map((field) => ({
    field,
    names: namesOf(field, type),
    least: leastLikeness(field, type),
  }));
  const compare = (words: readonly string[], of: (typeof names)[number]) =>
    of.names.reduce((most, name) => Math.max(most, compareNames(words, name, context)), 0);

  const options = names.flatMap((named) => {
    const { field, least } = named;
    const fromColumns = table.columns
      .filter(({ name, isText }) => isText && !without.has(name))
      .map(({ name }) => ({
        field,
        columns: [name],
        candidate: undefined as ReferenceCandidate<T> | undefined,
        likeness: compare(tokensOf(name), named),
      }));
    const fromReferences = candidates.map((candidate) => ({
      field,
      columns: [...candidate.columns],
      candidate,
      likeness:
        0.01 +
        [...candidate.columns.map(tokensOf), ...candidate.words].reduce(
          (most, words) => Math.max(most, compare(words, named)),
          0,
        ),
    }));
    return [...fromColumns, ...fromReferences].filter(({ likeness }) => likeness >= least);
  });

  const result: FieldMatch<T> = { fields: [], offers: [], references: [], unplaced: [] };
  const usedFields = new Set<string>();
  const usedColumns = new Set<string>();
  const referring = new Set(candidates.flatMap(({ columns }) => columns));
  const person = namePartsOf(table.columns);
  const personName = names.find((named) => person.length > 1 && isName(named.names));
  if (personName) {
    result.fields.push({ field: personName.field, columns: person });
    usedFields.add(personName.field.extId);
    for (const column of person) usedColumns.add(column);
  }
  for (const { field, columns, candidate, likeness } of options.toSorted((a, b) => b.likeness - a.likeness)) {
    if (usedFields.has(field.extId) || columns.some((column) => usedColumns.has(column))) continue;
    // A column that refers to another table contains a key. As a text it only fills a field of nearly the same name.
    if (!candidate && columns.some((column) => referring.has(column)) && likeness < SURE) continue;
    usedFields.add(field.extId);
    for (const column of columns) usedColumns.add(column);
    const unsure = likeness < SURE ? 'the names are only similar' : undefined;
    if (candidate)
      result.references.push({ field, columns, to: candidate.to, unsure: candidate.unsure ?? unsure });
    else if (isOfAnyType(field, type)) result.offers.push({ field, columns });
    else result.fields.push({ field, columns, unsure });
  }
  const placed = new Set(result.references.flatMap(({ columns }) => columns.join('\0')));
  result.unplaced = candidates.filter(({ columns }) => !placed.has(columns.join('\0')));
  return result;
}

/** Returns a column with a name similar to the field's, even if the column's values are unusable. */
export function columnLike(
  field: NamedField,
  type: NamedType,
  columns: readonly CatalogueColumn[],
): CatalogueColumn | undefined {
  return columns.find(({ name }) =>
    namesOf(field, type).some((words) => compareNames(tokensOf(name), words) >= LEAST_OF_FIELD),
  );
}

/** Returns the fields that a type may have: seen on its objects, named after the type, or named after no type. */
export function fieldsOf(
  type: NamedType,
  fields: readonly NamedField[],
  types: readonly NamedType[],
): NamedField[] {
  return fields.filter(
    (field) =>
      field.types.includes(type.extId) ||
      belongsTo(field, type) ||
      (field.types.length === 0 && !types.some((other) => belongsTo(field, other))),
  );
}

/** Returns true if the type's name contains the field's first word: `room.name` and `room`. */
function belongsTo({ extId }: NamedField, type: NamedType): boolean {
  const [first = ''] = tokensOf(extId);
  return tokensOf(extId).length > 1 && tokensOf(type.extId).includes(first);
}

function leastLikeness(field: NamedField, type: NamedType): number {
  return belongsTo(field, type) || field.types.includes(type.extId) ? LEAST_OF_FIELD : LEAST_OF_ANY_TYPE;
}

/** Returns true if nothing connects the field with the type, as for `comment`. Exception: fields called name. */
export function isOfAnyType(field: NamedField, type: NamedType): boolean {
  return leastLikeness(field, type) === LEAST_OF_ANY_TYPE && !isName(namesOf(field, type));
}

/** Returns the words of a field's external id without those of the type, and the words of its display name. */
function namesOf(field: NamedField, type: NamedType): string[][] {
  const words = tokensOf(field.extId);
  const ofType = new Set(tokensOf(type.extId));
  const from = words.findIndex((word) => !ofType.has(word));
  return [words.slice(Math.max(0, from)), ...(field.name === undefined ? [] : [tokensOf(field.name)])];
}

const isName = (names: readonly (readonly string[])[]) =>
  names.some((words) => ['name', 'full name'].includes(words.join(' ')));

/** Proposes the only text column that is not in `others` for the field with the object's name. */
export function nameFromOnlyText(
  { columns }: CatalogueTable,
  type: NamedType,
  fields: readonly NamedField[],
  others: readonly string[],
): ProposedField | undefined {
  const [only, another] = columns.filter((column) => isTextual(column) && !others.includes(column.name));
  const field = fields.find((one) => isName(namesOf(one, type)));
  if (!field || !only || another) return undefined;
  return { field, columns: [only.name], unsure: 'the only text column beside the key' };
}

/** Returns true if the column's name suggests a secret, for example a password. Such columns are never proposed. */
export const looksSecret = (name: string): boolean =>
  tokensOf(name).some((word) => /passw(or)?d|personnummer|(secret|token)s?$|^(pwd|ssn)$/.test(word));

export const isTextual = ({ type }: Pick<CatalogueColumn, 'type'>): boolean =>
  /^(text|character|character varying|bpchar|citext)$/.test(type);

/** Returns the columns of given and family name. Empty if one is missing, or another column has the whole name. */
function namePartsOf(columns: readonly CatalogueColumn[]): string[] {
  if (columns.some(({ name }) => /^(full_?)?name$/i.test(name))) return [];
  const [given, middle, family] = NAME_PARTS.map(
    (pattern) => columns.find(({ name, isText }) => isText && pattern.test(name))?.name,
  );
  if (given === undefined || family === undefined) return [];
  return [given, middle, family].filter((name) => name !== undefined);
}

/** A type of the service that has an external id. A configuration needs the id to name the type. */
export type NamedType = SurveyedType & { extId: string };

export interface TableOfType {
  table: CatalogueTable;
  type: NamedType;
  likeness: number;
  /** Share of the type's existing external ids that can be made from the table. Only set if tables compete. */
  made?: number | undefined;
  /** True if another table refers to the table by a foreign key. */
  isReferenced?: boolean;
  /** Another table that matches the type equally well. */
  rival?: CatalogueTable | undefined;
}

/** Minimum likeness, from 0 to 1, of a table's and a type's name. */
const LEAST_OF_TABLE = 0.6;
/** Adjusts the likeness: tables come before similar views, and tables that others refer to come first. */
const VIEW_HANDICAP = 0.01;
const REFERENCED_BONUS = 0.1;
/** If at least this share of the existing external ids can be made from a table, its name does not matter. */
const LEAST_MADE = 0.5;

/** Combines each table with each type of a similar name. If a type was stated for a table, names do not matter. */
export function pairTables(
  tables: readonly CatalogueTable[],
  types: readonly NamedType[],
  chosen: ReadonlyMap<CatalogueTable, NamedType | undefined>,
): TableOfType[] {
  const isReferenced = (table: CatalogueTable) =>
    tables.some(
      (other) =>
        other !== table &&
        other.foreignKeys.some(({ of }) => of.schema === table.schema && of.name === table.name),
    );
  return tables.flatMap((table) => {
    const stated = chosen.get(table);
    if (stated) return [{ table, type: stated, likeness: 1 }];
    if (table.isChild && !chosen.has(table)) return [];
    return types
      .map((type) => ({
        table,
        type,
        likeness: compareTable(table, type),
        isReferenced: isReferenced(table),
      }))
      .filter(({ likeness }) => likeness >= LEAST_OF_TABLE);
  });
}

/**
 * Assigns a table to each type, each at most once. Tables that a person has chosen come first, followed by the best
 * matches of external ids, names and references. If equal, the table with more rows wins.
 */
export function matchTables(
  pairs: readonly TableOfType[],
  chosen: ReadonlyMap<CatalogueTable, NamedType | undefined>,
): TableOfType[] {
  const rank = (pair: TableOfType) =>
    (chosen.has(pair.table) ? 10 : 0) +
    (isMade(pair) ? 1 + (pair.made ?? 0) : 0) +
    pair.likeness +
    (pair.isReferenced ? REFERENCED_BONUS : 0) -
    (pair.table.kind === 'view' ? VIEW_HANDICAP : 0);
  const matched = pairs.filter(({ table, type }) => chosen.get(table) === type);
  const others = pairs.filter((pair) => !matched.includes(pair));
  const inOrder = others.toSorted((a, b) => rank(b) - rank(a) || (b.table.rows ?? 0) - (a.table.rows ?? 0));
  for (const pair of inOrder) {
    const taken = matched.find(({ table, type }) => table === pair.table || type === pair.type);
    if (!taken) matched.push(pair);
    else if (taken.table !== pair.table && rank(taken) === rank(pair)) taken.rival ??= pair.table;
  }
  return matched;
}

const isMade = ({ made = 0 }: TableOfType) => made >= LEAST_MADE;

/** Returns why a proposed table may be the wrong one for its type. Undefined without doubt. */
export function doubtOf(pair: TableOfType): string | undefined {
  const { table, type, likeness, rival } = pair;
  if (!isMade(pair) && likeness < SURE) return `${table.name} and ${type.extId} are only similar`;
  return rival && `${rival.schema}.${rival.name} is as much like ${type.extId}`;
}

/** Returns how similar the names of a table and a type are, from 0 to 1. Compares the type's id and display name. */
function compareTable({ name, schema }: CatalogueTable, { extId, name: title }: NamedType): number {
  const words = tokensOf(name);
  const context = new Set(tokensOf(schema));
  return [extId, extId.split('.').at(-1) ?? extId, title ?? extId]
    .map(tokensOf)
    .reduce((most, one) => Math.max(most, compareNames(words, one, context), compareJoined(words, one)), 0);
}

/** Parts of table names that say nothing about the rows. */
const AFFIXES = /^(tbl?|t|tab|table|vw?|view|info|data|list|master|record|entity|obj|all)$/;
/** If a table's name has no word boundaries, the type's name must be at least this share of it. */
const LEAST_SHARE = 0.6;

/** Compares names without word boundaries. `meetingroominfo` begins with `Meeting room`, so both are similar. */
function compareJoined(words: readonly string[], type: readonly string[]): number {
  const [long, short] = [words.join(''), type.join('')];
  if (short.length < LEAST_STEM || !(long.startsWith(short) || long.endsWith(short))) return 0;
  if (long === short) return 1;
  const rest = long.startsWith(short) ? long.slice(short.length) : long.slice(0, -short.length);
  const share = short.length / long.length;
  const isSimilar = AFFIXES.test(rest) || share >= LEAST_SHARE;
  return isSimilar ? LEAST_OF_TABLE + (SURE - LEAST_OF_TABLE) * share : 0;
}

// Names are compared by words in the singular, since people and databases write `wheelchairAccess`, `course_codes` or
// `Number of places`. Words from the table's own name count less.

/** Words that count less in a comparison of names. */
const FILLERS = new Set(
  'of the a an and in on at is has by for to with from number num nr no fk pk ref'.split(' '),
);
const FILLER_WEIGHT = 0.25;
/** Minimum length of a word that another word may begin with, such as access and accessible. Both count as similar. */
const LEAST_STEM = 4;
const STEM_LIKENESS = 0.85;
const LEAST_LIKENESS = 0.8;

/** Words that all mean an identifier, and so are similar to each other. */
const IDENTIFIERS = new Set(['id', 'code', 'key', 'number', 'nr', 'no', 'identifier']);
const IDENTIFIER_LIKENESS = 0.7;

/** Returns the words of a name, in lower case and in the singular. */
export function tokensOf(name: string): string[] {
  return name
    .normalize('NFKC')
    .replaceAll(/([\p{Ll}\d])(\p{Lu})/gu, '$1 $2')
    .replaceAll(/(\p{Lu})(\p{Lu}\p{Ll})/gu, '$1 $2')
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word !== '')
    .map((word) => singular(word.toLowerCase()));
}

function singular(word: string): string {
  if (word.length > 4 && word.endsWith('ies')) return `${word.slice(0, -3)}y`;
  if (/(ss|sh|ch|x|z)es$/.test(word)) return word.slice(0, -2);
  return word.length > 3 && /[^sui]s$/.test(word) ? word.slice(0, -1) : word;
}

/** Returns how similar two words are, from 0 to 1. Returns 0 if they differ by more than a typing error. */
function likeness(a: string, b: string): number {
  if (a === b) return 1;
  if (IDENTIFIERS.has(a) && IDENTIFIERS.has(b)) return IDENTIFIER_LIKENESS;
  const [short, long] = a.length < b.length ? [a, b] : [b, a];
  if (short.length >= LEAST_STEM && long.startsWith(short)) return STEM_LIKENESS;
  if (short.length < LEAST_STEM) return 0;
  const likeness = 1 - distance(a, b) / long.length;
  return likeness >= LEAST_LIKENESS ? likeness : 0;
}

/** Returns how similar two names are, from 0 to 1. Words in `context`, such as the table's name, count less. */
export function compareNames(
  one: readonly string[],
  other: readonly string[],
  context: ReadonlySet<string> = new Set(),
): number {
  const weightOf = (word: string) => (FILLERS.has(word) || context.has(word) ? FILLER_WEIGHT : 1);
  const sum = (words: readonly string[], of: (word: string) => number) =>
    words.reduce((total, word) => total + weightOf(word) * of(word), 0);
  const met = (words: readonly string[], others: readonly string[]) =>
    sum(words, (word) => others.reduce((most, candidate) => Math.max(most, likeness(word, candidate)), 0));
  const all = sum(one, () => 1) + sum(other, () => 1);
  return all === 0 ? 0 : (met(one, other) + met(other, one)) / all;
}
