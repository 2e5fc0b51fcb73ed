// Finds which table holds the records of which type, by their names.
import type { CatalogueTable } from '../../mirror/read-catalogue.js';
import type { SurveyedType } from '../run/survey-service.js';
import { compareNames, tokensOf } from './name-tokens.js';

/** A type that can be named in a configuration. */
export type NamedType = SurveyedType & { extId: string };

export interface TableOfType {
  table: CatalogueTable;
  type: NamedType;
  likeness: number;
}

/** From here on, names are taken to mean the same. */
const LEAST_LIKENESS = 0.6;
/** A view beside a table of the same likeness is not taken. */
const VIEW_HANDICAP = 0.01;

/** Each table and each type at most once, the most alike first; `preferred` tables before the others. */
export function matchTables(
  tables: readonly CatalogueTable[],
  types: readonly NamedType[],
  preferred: readonly CatalogueTable[] = [],
): TableOfType[] {
  const pairs = tables.flatMap((table) =>
    types.map((type) => ({ table, type, likeness: compareTable(table, type) })),
  );
  const rank = ({ table, likeness }: TableOfType) =>
    likeness + (preferred.includes(table) ? 1 : 0) - (table.kind === 'view' ? VIEW_HANDICAP : 0);
  const matched: TableOfType[] = [];
  for (const pair of pairs.toSorted((a, b) => rank(b) - rank(a))) {
    if (pair.likeness < LEAST_LIKENESS) continue;
    if (matched.some(({ table, type }) => table === pair.table || type === pair.type)) continue;
    matched.push(pair);
  }
  return matched;
}

/** How alike a table and a type are by name: the type's external id, the last part of it, or its name at the service. */
export function compareTable({ name, schema }: CatalogueTable, { extId, name: title }: NamedType): number {
  const words = tokensOf(name);
  const context = new Set(tokensOf(schema));
  const names = [extId, extId.split('.').at(-1) ?? extId, title ?? extId];
  return Math.max(...names.map((one) => compareNames(words, tokensOf(one), context)));
}
