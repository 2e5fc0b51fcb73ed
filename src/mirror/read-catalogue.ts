// The catalogue of the mirror: tables and views that may be read, with their columns, keys, foreign keys and sizes. And a
// look at the values of a column, to see what it refers to. Everything is one statement in a read-only session.
import { arrayLiteral, quoteIdentifier, quoteLiteral } from '../text/sql-text.js';
import { read } from './mirror-errors.js';
import type { ReadOnlySessions } from './read-only-sessions.js';

export interface RelationName {
  schema: string;
  name: string;
}

export interface CatalogueColumn {
  name: string;
  /** As PostgreSQL names it; an array's ends with `[]`. */
  type: string;
  /** Whether a field can be filled from it as it is. */
  isText: boolean;
}

export interface ForeignKey {
  columns: string[];
  of: RelationName;
  /** The columns there, in the same order. */
  targets: string[];
}

export interface CatalogueTable extends RelationName {
  kind: 'table' | 'view';
  /** As PostgreSQL estimates it; undefined for what it does not estimate. */
  rows: number | undefined;
  columns: CatalogueColumn[];
  primaryKey: string[] | undefined;
  /** Columns of unique indexes that are not null, the smallest first. */
  uniqueKeys: string[][];
  foreignKeys: ForeignKey[];
  /** Its rows are also those of a table that it inherits from. */
  isChild?: boolean;
}

/** A look at some values, by which nothing is decided: those that policies show are enough. */
const A_LOOK = { rowSecurity: 'filtered' } as const;
/** Rows that are looked at to see what a column holds. */
const SAMPLED_ROWS = 10_000;
const SAMPLED_VALUES = 200;

/** Enumerations, and values that print as one text: `field-values.ts` sends them as they are. */
const IS_TEXT = `(element.typcategory IN ('B', 'D', 'E', 'I', 'N', 'S', 'T')
  OR element.typname IN ('uuid', 'citext')) AND element.typname <> 'unknown'`;

const SELECT_TABLES = `
  SELECT space.nspname AS schema, relation.relname AS name,
    CASE WHEN relation.relkind IN ('v', 'm') THEN 'view' ELSE 'table' END AS kind,
    EXISTS (SELECT FROM pg_inherits WHERE inhrelid = relation.oid) AS "isChild",
    CASE WHEN relation.relkind = 'v' OR relation.reltuples < 0 THEN NULL ELSE relation.reltuples::float8 END AS rows,
    (SELECT coalesce(json_agg(json_build_object('name', attname, 'type', format_type(atttypid, NULL), 'isText', ${IS_TEXT})
        ORDER BY attnum), '[]')
      FROM pg_attribute JOIN pg_type AS own ON own.oid = atttypid
      JOIN pg_type AS element ON element.oid = CASE WHEN own.typcategory = 'A' THEN own.typelem ELSE own.oid END
      WHERE attrelid = relation.oid AND attnum > 0 AND NOT attisdropped) AS columns,
    (SELECT json_agg(json_build_object('isPrimary', indisprimary, 'columns', (
        SELECT json_agg(attname ORDER BY place) FROM unnest(indkey) WITH ORDINALITY AS part (number, place)
        JOIN pg_attribute ON attrelid = indrelid AND attnum = part.number)) ORDER BY indisprimary DESC, indnkeyatts, indexrelid)
      FROM pg_index
      WHERE indrelid = relation.oid AND indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL
        AND indnatts = indnkeyatts AND NOT EXISTS (
          SELECT FROM unnest(indkey) AS number JOIN pg_attribute ON attrelid = indrelid AND attnum = number
          WHERE NOT attnotnull)) AS keys,
    (SELECT json_agg(json_build_object(
        'of', json_build_object('schema', there_space.nspname, 'name', there.relname),
        'columns', (SELECT json_agg(attname ORDER BY place) FROM unnest(conkey) WITH ORDINALITY AS part (number, place)
          JOIN pg_attribute ON attrelid = conrelid AND attnum = part.number),
        'targets', (SELECT json_agg(attname ORDER BY place) FROM unnest(confkey) WITH ORDINALITY AS part (number, place)
          JOIN pg_attribute ON attrelid = confrelid AND attnum = part.number)) ORDER BY conname)
      FROM pg_constraint JOIN pg_class AS there ON there.oid = confrelid
      JOIN pg_namespace AS there_space ON there_space.oid = there.relnamespace
      WHERE conrelid = relation.oid AND contype = 'f') AS "foreignKeys"
  FROM pg_class AS relation JOIN pg_namespace AS space ON space.oid = relation.relnamespace
  WHERE relation.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT relation.relispartition
    AND space.nspname NOT IN ('information_schema', 'slotsync') AND space.nspname NOT LIKE 'pg\\_%'
    AND space.nspname NOT LIKE 'slotsync\\_%' AND relation.relpersistence <> 't'
    AND has_schema_privilege(space.oid, 'USAGE') AND has_table_privilege(relation.oid, 'SELECT')
  ORDER BY space.nspname, relation.relname`;

interface TableRow extends RelationName {
  kind: 'table' | 'view';
  isChild: boolean;
  rows: number | null;
  columns: CatalogueColumn[];
  keys: { isPrimary: boolean; columns: string[] }[] | null;
  foreignKeys: ForeignKey[] | null;
}

export type Catalogue = ReturnType<typeof createCatalogueReader>;

/** Readings of the catalogue. Errors are SlotsyncError `mirror_…`. */
export function createCatalogueReader(sessions: ReadOnlySessions) {
  const sampleOf = ({ schema, name }: RelationName) =>
    `(SELECT * FROM ${quoteIdentifier(schema)}.${quoteIdentifier(name)} LIMIT ${SAMPLED_ROWS}) AS sampled`;

  return {
    /** Every table and view that may be read, but not those of this program. */
    async readTables(): Promise<CatalogueTable[]> {
      const rows = await read(() => sessions.ofCatalogue<TableRow>(SELECT_TABLES));
      return rows.map(({ keys, foreignKeys, rows: estimate, ...table }) => ({
        ...table,
        rows: estimate ?? undefined,
        primaryKey: keys?.find(({ isPrimary }) => isPrimary)?.columns,
        uniqueKeys: (keys ?? []).filter(({ isPrimary }) => !isPrimary).map(({ columns }) => columns),
        foreignKeys: foreignKeys ?? [],
      }));
    },

    /** Different values of a column, or of the lists in it, as text: at most 200 from the first 10 000 rows. */
    async sampleValues(table: RelationName, { name, type }: CatalogueColumn): Promise<string[]> {
      const column = quoteIdentifier(name);
      const value = type.endsWith('[]') ? `unnest(${column})::text` : `${column}::text`;
      const rows = await read(() =>
        sessions.query<{ value: string }>(
          `SELECT DISTINCT value FROM (SELECT ${value} AS value FROM ${sampleOf(table)}) AS texts
            WHERE value IS NOT NULL LIMIT ${SAMPLED_VALUES}`,
          A_LOOK,
        ),
      );
      return rows.map(({ value }) => value);
    },

    /** The texts that are in the columns, joined by the separator. Reads the whole table. */
    async findKnown(
      { schema, name }: RelationName,
      columns: readonly string[],
      separator: string,
      texts: readonly string[],
    ): Promise<string[]> {
      const parts = columns.map((column) => `${quoteIdentifier(column)}::text`);
      const text = parts.join(` || ${quoteLiteral(separator)} || `);
      const rows = await read(() =>
        sessions.query<{ known: string }>(
          `SELECT DISTINCT ${text} AS known FROM ${quoteIdentifier(schema)}.${quoteIdentifier(name)}
            WHERE ${text} = ANY (${quoteLiteral(arrayLiteral(texts))}::text[])`,
          A_LOOK,
        ),
      );
      return rows.map(({ known }) => known);
    },

    /** Whether a column has another value in each of the first 10 000 rows, and none is null. */
    async isUnique(table: RelationName, column: string): Promise<boolean> {
      const name = quoteIdentifier(column);
      const [row] = await read(() =>
        sessions.query<{ isUnique: boolean }>(
          `SELECT count(*) = count(DISTINCT ${name}::text) AS "isUnique" FROM ${sampleOf(table)}`,
          A_LOOK,
        ),
      );
      return row?.isUnique ?? false;
    },
  };
}
