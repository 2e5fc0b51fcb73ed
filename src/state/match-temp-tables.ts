// `match` joins rows and objects in temporary tables of one transaction, which end with it. So memory is flat, however many
// there are of both, and nothing stays in the state.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../text/sql-text.js';
import { LONG_STATEMENT_SECONDS, openState, query, type Queries, type State } from './database.js';

/** The classes of a row, an object, or both. Rows and objects that are equal are only counted. */
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

/** An object with what is known of it already; without a class it is nobody's. Objects as JSON texts. */
export interface JoinedObject {
  number: string;
  externalId: string | undefined;
  object: string;
  class?: MatchClass;
  stream?: string;
  key?: string;
  /** Fields that differ. */
  differs?: readonly string[];
  note?: string;
}

/** A row whose object was not met. */
export interface JoinedRow {
  stream: string;
  key: string;
  /** The value of the fields by which it is matched; undefined: it has none. */
  value?: string | undefined;
  /** JSON. */
  object?: string;
  /** Why it has none. */
  problem?: string;
}

/** A finding as it is read back. */
export interface JoinedLine {
  class: MatchClass;
  stream: string | null;
  key: string | null;
  number: string | null;
  /** The external id of the object. */
  externalId: string | null;
  /** JSON of what the row becomes. */
  here: string | null;
  /** JSON of the object. */
  there: string | null;
  differs: string[] | null;
  note: string | null;
}

export interface MatchCounts {
  stream: string | null;
  class: MatchClass;
  rows: number;
  objects: number;
}

/** Pairs of rows and objects with the same values that are listed as pairs; of more, each stands alone. */
const MOST_PAIRS = 100;
/** Lines read back at once. */
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

/** Rows and objects with the same values. An object that rows of two streams match is contested. */
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

/** Conditions on the group (named g) that a row or an object is in; without one they are null. */
const IS_MATCH = sql.raw('(g.rows = 1 AND g.objects = 1 AND NOT g.is_contested)');
const IS_PAIRED = sql.raw(`(g.rows * g.objects <= ${MOST_PAIRS})`);

const ROW_CLASS = sql`CASE WHEN r.problem IS NOT NULL THEN 'not_comparable' WHEN g.stream IS NULL THEN 'only_here'
  WHEN ${IS_MATCH} THEN 'match' ELSE 'ambiguous' END`;

/** For each object that is nobody's the groups it is in, as one: of two streams the first. */
const OBJECTS_IN_GROUPS = sql`match_objects AS o LEFT JOIN (
    SELECT DISTINCT ON (c.number) c.number AS in_number, g.* FROM match_candidates AS c JOIN match_groups AS g USING (stream, value)
    ORDER BY c.number, g.stream) AS g ON o.class IS NULL AND g.in_number = o.number`;

const OBJECT_CLASS = sql`CASE WHEN o.class IS NOT NULL THEN o.class
  WHEN g.stream IS NOT NULL THEN CASE WHEN ${IS_MATCH} THEN 'match' ELSE 'ambiguous' END
  WHEN o.external_id IS NULL THEN 'without_id' ELSE 'only_there' END`;

const LINES = sql`
  SELECT ${sql.raw("CASE WHEN g.rows = 1 AND g.objects = 1 AND NOT g.is_contested THEN 'match' ELSE 'ambiguous' END")} AS class,
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

/** Runs `work` with empty tables, in a session of their own. Throws what it throws, and SlotsyncError `state_…`. */
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
    /** As they were at first: what is read is read again. */
    clear: () => runEach(tx, 'TRUNCATE match_met, match_objects, match_candidates, match_rows, match_groups'),

    /** Rows whose object was met, whatever became of the comparison. */
    addMet: (met: readonly { stream: string; key: string }[]) =>
      insert(tx, 'match_met', 'stream text, key text', met),

    addObjects: (objects: readonly JoinedObject[]) =>
      insert(
        tx,
        'match_objects',
        'number text, "externalId" text, object text, class text, stream text, key text, differs text[], note text',
        objects,
      ),

    /** Values by which rows of a stream match objects that are nobody's. */
    addCandidates: (candidates: readonly { stream: string; number: string; value: string }[]) =>
      insert(tx, 'match_candidates', 'stream text, number text, value text', candidates),

    /** Call it when every object was added: the rows are looked up among those that were met. */
    indexMet: () => runEach(tx, 'CREATE INDEX ON match_met (stream, key); ANALYZE match_met'),

    /** The keys among these whose object was not met. */
    async withoutMet(stream: string, keys: readonly string[]): Promise<string[]> {
      const unmet = await query<{ key: string }>(tx)`
        SELECT key FROM unnest(${arrayLiteral(keys)}::text[]) AS key
        WHERE NOT EXISTS (SELECT FROM match_met AS m WHERE m.stream = ${stream} AND m.key = key.key COLLATE "C")`;
      return unmet.map(({ key }) => key);
    },

    addRows: (rows: readonly JoinedRow[]) =>
      insert(tx, 'match_rows', 'stream text, key text, value text, object text, problem text', rows),

    /** Call it when every row and object was added: then lines and counts can be read. */
    join: () => runEach(tx, GROUP),

    /** Rows and objects by class; `stream` is null for objects that are nobody's. */
    async count(): Promise<MatchCounts[]> {
      return query<MatchCounts>(tx)`
        SELECT stream, class, count(*) FILTER (WHERE is_row)::float8 AS rows,
          count(*) FILTER (WHERE NOT is_row)::float8 AS objects
        FROM (
          SELECT r.stream, ${ROW_CLASS} AS class, true AS is_row
          FROM match_rows AS r LEFT JOIN match_groups AS g ON g.stream = r.stream AND g.value = r.value
          UNION ALL
          SELECT coalesce(o.stream, g.stream), ${OBJECT_CLASS}, false FROM ${OBJECTS_IN_GROUPS}) AS classified
        GROUP BY 1, 2`;
    },

    /** How many objects differ in each field. */
    countFields: () =>
      query<{ stream: string; field: string; objects: number }>(tx)`
        SELECT stream, field, count(*)::float8 AS objects FROM match_objects, unnest(differs) AS field
        WHERE class = 'differs' GROUP BY 1, 2 ORDER BY 3 DESC, 2`,

    /** Objects that would be linked and have no external id. */
    countUnnamed: () =>
      query<{ stream: string; objects: number }>(tx)`
        SELECT g.stream, count(*)::float8 AS objects
        FROM match_groups AS g JOIN match_candidates AS c USING (stream, value) JOIN match_objects AS o ON o.number = c.number
        WHERE ${IS_MATCH} AND o.external_id IS NULL GROUP BY 1`,

    /** All lines by class and stream, or the first of each. Ambiguous ones with the same values stand together. */
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

/** Adds a list to a table. `columns`: those of the table in their order, each with its name in the list and its type. */
async function insert(tx: Queries, table: string, columns: string, list: readonly object[]): Promise<void> {
  await query(tx)`
    INSERT INTO ${sql.raw(table)}
    SELECT * FROM jsonb_to_recordset(${JSON.stringify(list)}::jsonb) AS l(${sql.raw(columns)})`;
}

/** Statements without parameters, one after the other. */
async function runEach(tx: Queries, statements: string): Promise<void> {
  for (const statement of statements.split(';')) await query(tx)`${sql.raw(statement)}`;
}
