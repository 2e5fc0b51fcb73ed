// Finds which column fills which field of a type, by their names; and which field a reference to another table is.
import type { CatalogueColumn, CatalogueTable } from '../../mirror/read-catalogue.js';
import type { SurveyedField } from '../run/survey-service.js';
import type { NamedType } from './match-tables.js';
import { compareNames, tokensOf } from './name-tokens.js';

/** A field that can be named in a configuration. */
export type NamedField = SurveyedField & { extId: string };

export interface ProposedField {
  field: NamedField;
  /** A column, or several whose texts are joined by spaces. */
  columns: string[];
  unsure?: string | undefined;
}

/** Columns of one table that may refer to another. */
export interface ReferenceCandidate<T> {
  columns: readonly string[];
  to: T;
  /** Words by which the other table is known. */
  words: readonly (readonly string[])[];
  unsure?: string | undefined;
}

export interface ProposedReference<T> {
  field: NamedField;
  columns: readonly string[];
  to: T;
  unsure?: string | undefined;
}

export interface FieldMatch<T> {
  fields: ProposedField[];
  references: ProposedReference<T>[];
  /** Candidates for which there is no field. */
  unplaced: ReferenceCandidate<T>[];
}

/** From here on, a column is mapped; up to `SURE`, with a comment. */
const LEAST_LIKENESS = 0.5;
const SURE = 0.75;
/** A field that could be any type's needs a column of its very name. */
const LEAST_OF_ANY_TYPE = 0.95;
/** Columns that a person's name is made of, in this order. */
const NAME_PARTS = [
  /^(given|first|fore|christian)_?names?$/i,
  /^(middle)_?names?$/i,
  /^(family|last|sur)_?names?$/i,
];

/** Each column and each field at most once, the most alike first; references before columns that are as alike. */
export function matchFields<T>(
  table: CatalogueTable,
  type: NamedType,
  fields: readonly NamedField[],
  candidates: readonly ReferenceCandidate<T>[],
  /** Columns that fill nothing. */
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

  const result: FieldMatch<T> = { fields: [], references: [], unplaced: [] };
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
    // A column that refers to another table holds a key: as a text it is taken for a field of the same name only.
    if (!candidate && columns.some((column) => referring.has(column)) && likeness < SURE) continue;
    usedFields.add(field.extId);
    for (const column of columns) usedColumns.add(column);
    const unsure = likeness < SURE ? 'the names are only similar' : undefined;
    if (candidate)
      result.references.push({ field, columns, to: candidate.to, unsure: candidate.unsure ?? unsure });
    else result.fields.push({ field, columns, unsure });
  }
  const placed = new Set(result.references.flatMap(({ columns }) => columns.join('\0')));
  result.unplaced = candidates.filter(({ columns }) => !placed.has(columns.join('\0')));
  return result;
}

/** The column that a field is named after, whatever it holds. */
export function columnLike(
  field: NamedField,
  type: NamedType,
  columns: readonly CatalogueColumn[],
): CatalogueColumn | undefined {
  return columns.find(({ name }) =>
    namesOf(field, type).some((words) => compareNames(tokensOf(name), words) >= LEAST_LIKENESS),
  );
}

/** The fields of a type: seen on its objects, named after it, or named after no type. */
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

/** `room.name` belongs to `room`, `person.name` to `person.staff`. */
function belongsTo({ extId }: NamedField, type: NamedType): boolean {
  const [first = ''] = tokensOf(extId);
  return tokensOf(extId).length > 1 && tokensOf(type.extId).includes(first);
}

function leastLikeness(field: NamedField, type: NamedType): number {
  return belongsTo(field, type) || field.types.includes(type.extId) ? LEAST_LIKENESS : LEAST_OF_ANY_TYPE;
}

/** The words of a field without those that only repeat its type, and of its name at the service. */
function namesOf(field: NamedField, type: NamedType): string[][] {
  const words = tokensOf(field.extId);
  const ofType = new Set(tokensOf(type.extId));
  const from = words.findIndex((word) => !ofType.has(word));
  return [words.slice(Math.max(0, from)), ...(field.name === undefined ? [] : [tokensOf(field.name)])];
}

const isName = (names: readonly (readonly string[])[]) =>
  names.some((words) => ['name', 'full name'].includes(words.join(' ')));

/** Given and family name; empty unless there are both, and no column is the whole name. */
function namePartsOf(columns: readonly CatalogueColumn[]): string[] {
  if (columns.some(({ name }) => /^(full_?)?name$/i.test(name))) return [];
  const [given, middle, family] = NAME_PARTS.map(
    (pattern) => columns.find(({ name, isText }) => isText && pattern.test(name))?.name,
  );
  if (given === undefined || family === undefined) return [];
  return [given, middle, family].filter((name) => name !== undefined);
}
