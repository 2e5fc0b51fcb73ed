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
  /** Another table that is as much like the type. */
  rival?: CatalogueTable | undefined;
}

/** From here on, names are taken to mean the same. */
const LEAST_LIKENESS = 0.6;
/** Up to here, a table is proposed with a comment, and not ticked. */
const SURE = 0.75;
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
  const inOrder = pairs.toSorted((a, b) => rank(b) - rank(a) || (b.table.rows ?? 0) - (a.table.rows ?? 0));
  for (const pair of inOrder) {
    if (pair.likeness < LEAST_LIKENESS) continue;
    if (pair.table.isChild && !preferred.includes(pair.table)) continue;
    const taken = matched.find(({ table, type }) => table === pair.table || type === pair.type);
    if (!taken) matched.push(pair);
    else if (taken.table !== pair.table && rank(taken) === rank(pair)) taken.rival ??= pair.table;
  }
  return matched;
}

/** Why a table may not hold the records of its type; undefined: nothing speaks against it. */
export function doubtOf({ table, type, likeness, rival }: TableOfType): string | undefined {
  if (likeness < SURE) return `${table.name} and ${type.extId} are only similar`;
  return rival && `${rival.schema}.${rival.name} is as much like ${type.extId}`;
}

/** How alike a table and a type are by name: the type's external id, the last part of it, or its name at the service. */
export function compareTable({ name, schema }: CatalogueTable, { extId, name: title }: NamedType): number {
  const words = tokensOf(name);
  const context = new Set(tokensOf(schema));
  const names = [extId, extId.split('.').at(-1) ?? extId, title ?? extId];
  return names.reduce((most, one) => Math.max(most, compareNames(words, tokensOf(one), context)), 0);
}
