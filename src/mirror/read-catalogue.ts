// Reads the catalogue of the mirror: readable tables and views with columns, keys, foreign keys and sizes. It also
// samples the values of columns, to find out which table a column refers to.
import { arrayLiteral, quoteIdentifier, quoteLiteral } from '../text/sql-text.js';
import { read } from './mirror-errors.js';
import type { ReadOnlySessions } from './read-only-sessions.js';

export interface RelationName {
  schema: string;
  name: string;
}

export interface CatalogueColumn {
  name: string;
  /** Type name as PostgreSQL prints it. The name of an array type ends with `[]`. */
  type: string;
  /** True if a field can be filled from the column without a conversion. */
  isText: boolean;
}

export interface ForeignKey {
  columns: string[];
  of: RelationName;
  /** Columns of the referenced table, in the same order as `columns`. */
  targets: string[];
}

export interface CatalogueTable extends RelationName {
  kind: 'table' | 'view';
  /** Number of rows as PostgreSQL estimates it, or undefined if PostgreSQL has no estimate, as for a view. */
  rows: number | undefined;
  columns: CatalogueColumn[];
  primaryKey: string[] | undefined;
  /** Columns of each unique index that has no nullable column. Indexes with the fewest columns come first. */
  uniqueKeys: string[][];
  foreignKeys: ForeignKey[];
  /** True if the table inherits from another table. A query of the other table also returns the rows of this table. */
  isChild?: boolean;
}

/** Option for sampling values: row security may hide rows, because no decision depends on a sample. */
const A_LOOK = { rowSecurity: 'filtered' } as const;
const SAMPLED_ROWS = 10_000;
const SAMPLED_VALUES = 200;

/** SQL condition for types whose values `field-values.ts` sends as one text unchanged, including enumerations. */
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

/** Creates the queries of the catalogue. They throw SlotsyncError `mirror_…`. */
export function createCatalogueReader(sessions: ReadOnlySessions) {
  const sampleOf = ({ schema, name }: RelationName) =>
    `(SELECT * FROM ${quoteIdentifier(schema)}.${quoteIdentifier(name)} LIMIT ${SAMPLED_ROWS}) AS sampled`;

  return {
    /** Returns every readable table and view, except the tables of slotsync. */
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

    /** Returns up to 200 distinct values, or array elements, of a column as text, from the first 10 000 rows. */
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

    /** Returns those `texts` that a row has in the columns, joined by the separator. Reads the whole table. */
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

    /** Returns true if the first 10 000 rows have distinct values in the column, without a null. */
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
