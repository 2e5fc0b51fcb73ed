// Joins rows and objects for `match` in temporary tables of one transaction. Memory use is therefore constant, and the
// state stores nothing.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../text/sql-text.js';
import {
  openState,
  query,
  queryColumn,
  LONG_STATEMENT_SECONDS,
  type Queries,
  type State,
} from './database.js';

/** Classes of rows and objects. Rows and objects that are equal are only counted. */
export const MATCH_CLASSES = [
  'match',
  'ambiguous',
  'only_here',
  'without_id',
  'only_there',
  'differs',
  'row_gone',
  'not_comparable',
] as const;
export type MatchClass = (typeof MATCH_CLASSES)[number];

/** Object at the service. Without a class, no record owns it. `object` is JSON text. */
export interface JoinedObject {
  number: string;
  externalId: string | undefined;
  object: string;
  class?: MatchClass;
  stream?: string;
  key?: string;
  differs?: readonly string[];
  note?: string;
}

/** Row whose object was not found by its external id. */
export interface JoinedRow {
  stream: string;
  key: string;
  /** Value of the fields by which the row is matched. Undefined if they are empty. */
  value?: string | undefined;
  object?: string;
  problem?: string;
}

export interface JoinedLine {
  class: MatchClass;
  stream: string | null;
  key: string | null;
  number: string | null;
  externalId: string | null;
  /** Mapped object of the row, as JSON text. */
  here: string | null;
  /** Object at the service, as JSON text. */
  there: string | null;
  differs: string[] | null;
  note: string | null;
}

/** Maximum number of pairs listed for the same values. Above it, each row and object is listed separately. */
const MOST_PAIRS = 100;
const LINES_AT_ONCE = 1000;

const CREATE = `
  CREATE TEMP TABLE match_met (stream text, key text COLLATE "C") ON COMMIT DROP;
  CREATE TEMP TABLE match_objects (number text, external_id text, object text, class text, stream text, key text,
    differs text[], note text) ON COMMIT DROP;
  CREATE TEMP TABLE match_candidates (stream text, number text, value text) ON COMMIT DROP;
  CREATE TEMP TABLE match_rows (stream text, key text COLLATE "C", value text, object text, problem text) ON COMMIT DROP;
  CREATE TEMP TABLE match_groups (stream text, value text, rows bigint, objects bigint, is_contested boolean)
    ON COMMIT DROP;
  SET LOCAL idle_in_transaction_session_timeout = 0`;

/** Groups rows and objects with the same values. An object that matches rows of two streams is contested. */
const GROUP = `
  ANALYZE match_rows; ANALYZE match_candidates; ANALYZE match_objects;
  INSERT INTO match_groups
    SELECT stream, value, r.rows, o.objects, false
    FROM (SELECT stream, value, count(*) AS rows FROM match_rows WHERE value IS NOT NULL GROUP BY 1, 2) AS r
    JOIN (SELECT stream, value, count(*) AS objects FROM match_candidates GROUP BY 1, 2) AS o USING (stream, value);
  ANALYZE match_groups;
  WITH matched AS (SELECT number, stream, value FROM match_candidates JOIN match_groups USING (stream, value)),
    contested AS (SELECT number FROM matched GROUP BY number HAVING count(*) > 1)
  UPDATE match_groups AS g SET is_contested = true FROM matched AS m
  WHERE m.stream = g.stream AND m.value = g.value AND m.number IN (SELECT number FROM contested);
  ANALYZE match_groups`;

/** SQL conditions on the group `g` of a row or object. They are null if there is no group. */
const IS_MATCH = sql.raw('(g.rows = 1 AND g.objects = 1 AND NOT g.is_contested)');
const IS_PAIRED = sql.raw(`(g.rows * g.objects <= ${MOST_PAIRS})`);

const ROW_CLASS = sql`CASE WHEN r.problem IS NOT NULL THEN 'not_comparable' WHEN g.stream IS NULL THEN 'only_here'
  WHEN ${IS_MATCH} THEN 'match' ELSE 'ambiguous' END`;

/** SQL: each object without an owner, with its group. If it has groups of two streams, the first is used. */
const OBJECTS_IN_GROUPS = sql`match_objects AS o LEFT JOIN (
    SELECT DISTINCT ON (c.number) c.number AS in_number, g.* FROM match_candidates AS c JOIN match_groups AS g USING (stream, value)
    ORDER BY c.number, g.stream) AS g ON o.class IS NULL AND g.in_number = o.number`;

const OBJECT_CLASS = sql`CASE WHEN o.class IS NOT NULL THEN o.class
  WHEN g.stream IS NOT NULL THEN CASE WHEN ${IS_MATCH} THEN 'match' ELSE 'ambiguous' END
  WHEN o.external_id IS NULL THEN 'without_id' ELSE 'only_there' END`;

const LINES = sql`
  SELECT CASE WHEN ${IS_MATCH} THEN 'match' ELSE 'ambiguous' END AS class,
    g.stream, g.value, r.key, o.number, o.external_id, r.object AS here, o.object AS there, NULL::text[] AS differs,
    CASE WHEN g.is_contested THEN 'rows of two streams match this object' END AS note
  FROM match_groups AS g JOIN match_rows AS r USING (stream, value) JOIN match_candidates AS c USING (stream, value)
    JOIN match_objects AS o ON o.number = c.number
  WHERE ${IS_PAIRED}
  UNION ALL
  SELECT ${ROW_CLASS}, r.stream, r.value, r.key, NULL, NULL, r.object, NULL, NULL, r.problem
  FROM match_rows AS r LEFT JOIN match_groups AS g ON g.stream = r.stream AND g.value = r.value
  WHERE g.stream IS NULL OR NOT ${IS_PAIRED}
  UNION ALL
  SELECT ${OBJECT_CLASS}, coalesce(o.stream, g.stream), g.value, o.key, o.number, o.external_id, NULL, o.object, o.differs,
    o.note
  FROM ${OBJECTS_IN_GROUPS} WHERE g.stream IS NULL OR NOT ${IS_PAIRED}`;

export type MatchTables = ReturnType<typeof createTables>;

/** Runs `work` with empty temporary tables in a separate session. Throws `state_…`, or the error of `work`. */
export async function withMatchTables<T>(
  { url }: Pick<State, 'url'>,
  work: (tables: MatchTables) => Promise<T>,
): Promise<T> {
  const session = openState({ url, connections: 1, duty: 'match', statementSeconds: LONG_STATEMENT_SECONDS });
  try {
    return await session.db.transaction(async (tx) => {
      await runEach(tx, CREATE);
      return work(createTables(tx));
    });
  } finally {
    await session.close();
  }
}

function createTables(tx: Queries) {
  return {
    /** Empties all tables before the data is read again. */
    clear: () => runEach(tx, 'TRUNCATE match_met, match_objects, match_candidates, match_rows, match_groups'),

    /** Adds rows whose object was found by its external id, whether or not it differs. */
    addMet: (met: readonly { stream: string; key: string }[]) =>
      insert(tx, 'match_met', 'stream text, key text', met),

    addObjects: (objects: readonly JoinedObject[]) =>
      insert(
        tx,
        'match_objects',
        'number text, "externalId" text, object text, class text, stream text, key text, differs text[], note text',
        objects,
      ),

    /** Adds values by which rows of a stream match objects without an owner. */
    addCandidates: (candidates: readonly { stream: string; number: string; value: string }[]) =>
      insert(tx, 'match_candidates', 'stream text, number text, value text', candidates),

    /** Creates the index for `withoutMet`. Must be called after all objects were added. */
    indexMet: () => runEach(tx, 'CREATE INDEX ON match_met (stream, key); ANALYZE match_met'),

    /** Returns the keys whose object was not found by its external id. */
    withoutMet: (stream: string, keys: readonly string[]) =>
      queryColumn<string>(tx)`
        SELECT key FROM unnest(${arrayLiteral(keys)}::text[]) AS key
        WHERE NOT EXISTS (SELECT FROM match_met AS m WHERE m.stream = ${stream} AND m.key = key.key COLLATE "C")`,

    addRows: (rows: readonly JoinedRow[]) =>
      insert(tx, 'match_rows', 'stream text, key text, value text, object text, problem text', rows),

    /** Groups rows and objects. Must be called after all were added, before lines or counts are read. */
    join: () => runEach(tx, GROUP),

    /** Counts rows and objects by class. `stream` is null for objects without an owner. */
    count: () =>
      query<{ stream: string | null; class: MatchClass; rows: number; objects: number }>(tx)`
        SELECT stream, class, count(*) FILTER (WHERE is_row)::float8 AS rows,
          count(*) FILTER (WHERE NOT is_row)::float8 AS objects
        FROM (
          SELECT r.stream, ${ROW_CLASS} AS class, true AS is_row
          FROM match_rows AS r LEFT JOIN match_groups AS g ON g.stream = r.stream AND g.value = r.value
          UNION ALL
          SELECT coalesce(o.stream, g.stream), ${OBJECT_CLASS}, false FROM ${OBJECTS_IN_GROUPS}) AS classified
        GROUP BY 1, 2`,

    countFields: () =>
      query<{ stream: string; field: string; objects: number }>(tx)`
        SELECT stream, field, count(*)::float8 AS objects FROM match_objects, unnest(differs) AS field
        WHERE class = 'differs' GROUP BY 1, 2 ORDER BY 3 DESC, 2`,

    /** Counts the objects to be linked that have no external id. */
    countUnnamed: () =>
      query<{ stream: string; objects: number }>(tx)`
        SELECT g.stream, count(*)::float8 AS objects
        FROM match_groups AS g JOIN match_candidates AS c USING (stream, value) JOIN match_objects AS o ON o.number = c.number
        WHERE ${IS_MATCH} AND o.external_id IS NULL GROUP BY 1`,

    /** Yields the lines by class and stream, or only the first `samples` of each. Equal values are adjacent. */
    async *readLines(samples?: number): AsyncGenerator<JoinedLine[]> {
      const order = sql`array_position(${arrayLiteral(MATCH_CLASSES)}::text[], class), stream, value, key COLLATE "C", number`;
      const chosen: SQL =
        samples === undefined
          ? sql`(${LINES}) AS l`
          : sql`(SELECT *, row_number() OVER (PARTITION BY class, stream ORDER BY value, key COLLATE "C", number) AS place
              FROM (${LINES}) AS l) AS l WHERE place <= ${samples}`;
      await query(tx)`
        DECLARE match_lines NO SCROLL CURSOR FOR
        SELECT class, stream, key, number, external_id AS "externalId", here, there, differs, note
        FROM ${chosen} ORDER BY ${order}`;
      for (;;) {
        const lines = await query<JoinedLine>(tx)`FETCH ${sql.raw(String(LINES_AT_ONCE))} FROM match_lines`;
        if (lines.length === 0) break;
        yield [...lines];
      }
      await query(tx)`CLOSE match_lines`;
    },
  };
}

/** Inserts a list into a table. `columns` are its columns in their order, with the names in the list and types. */
async function insert(tx: Queries, table: string, columns: string, list: readonly object[]): Promise<void> {
  await query(tx)`
    INSERT INTO ${sql.raw(table)}
    SELECT * FROM jsonb_to_recordset(${JSON.stringify(list)}::jsonb) AS l(${sql.raw(columns)})`;
}

async function runEach(tx: Queries, statements: string): Promise<void> {
  for (const statement of statements.split(';')) await query(tx)`${sql.raw(statement)}`;
}
