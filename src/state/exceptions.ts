// Exceptions: records that are left as they are, because somebody administers their objects by hand. A row is the decision of an
// operator about one key. It stands until its time, or until an operator ends it. The time is the database's.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../text/sql-text.js';
import { anyOf, query, type Queries, type RowOf } from './database.js';
import { recountGates } from './gates/held.js';
import { addChanges } from './inbox/add-changes.js';
import { recordName, type RecordKey } from './records/outcome-types.js';
import { wakeSharers } from './records/wake-waiting.js';
import type { exceptions } from './schema.js';

export type Exception = RowOf<typeof exceptions>;

/** An exception `e` stands. */
const STANDS = sql.raw('(e.until IS NULL OR e.until > now())');

const ALL = sql.raw('e.stream, e.local_key AS "localKey", e.since, e.until, e.reason, e.by');

/** SQL condition: an exception of a key stands. `stream` and `key`: expressions. */
export const isExcepted = (stream: SQL, key: SQL): SQL =>
  sql`EXISTS (SELECT FROM slotsync.exceptions AS e WHERE e.stream = ${stream} AND e.local_key = ${key} AND ${STANDS})`;

/** SQL condition: an exception of a record `r` stands. */
export const IS_EXCEPTED = isExcepted(sql`r.stream`, sql`r.local_key`);

/** SQL condition: somebody has made an exception of a record of a batch `b` since the claim with this token. */
export const hasClaimedExcepted = (token: string): SQL => sql`EXISTS (
  SELECT FROM slotsync.exceptions AS e JOIN slotsync.records AS c ON c.stream = e.stream AND c.local_key = e.local_key
  WHERE e.stream = b.stream AND e.local_key = ANY (b.keys) AND ${STANDS} AND c.claimed_by = ${token})`;

/** A list, as JSON, of the keys of a stream whose exceptions stand. `stream`: an expression. */
export const exceptedKeys = (stream: SQL): SQL =>
  sql`coalesce((SELECT jsonb_agg(e.local_key) FROM slotsync.exceptions AS e WHERE e.stream = ${stream} AND ${STANDS}), '[]')`;

/** The exceptions that stand, by stream and key: of a stream, or of some of its keys. */
export async function listExceptions(
  db: Queries,
  { stream, keys }: { stream?: string; keys?: readonly string[] } = {},
): Promise<Exception[]> {
  return query<Exception>(db)`
    SELECT ${ALL} FROM slotsync.exceptions AS e
    WHERE ${STANDS} AND ${stream === undefined ? sql`true` : sql`e.stream = ${stream}`}
      AND ${keys ? sql`e.local_key = ${anyOf(keys)}` : sql`true`}
    ORDER BY e.stream, e.local_key`;
}

/** The exceptions, of these records, that stand: by `recordName`. */
export async function findExceptions(
  db: Queries,
  records: readonly RecordKey[],
): Promise<Map<string, Exception>> {
  if (records.length === 0) return new Map();
  const streams = arrayLiteral(records.map(({ stream }) => stream));
  const keys = arrayLiteral(records.map(({ localKey }) => localKey));
  const rows = await query<Exception>(db)`
    SELECT ${ALL} FROM slotsync.exceptions AS e
    WHERE ${STANDS} AND (e.stream, e.local_key) IN (SELECT * FROM unnest(${streams}::text[], ${keys}::text[]))`;
  return new Map(rows.map((row) => [recordName(row), row]));
}

/** Counts the exceptions in force by stream, of one stream or of all streams. */
export const countExceptions = (db: Queries, stream?: string): Promise<{ stream: string; count: number }[]> =>
  query<{ stream: string; count: number }>(db)`
    SELECT e.stream, count(*)::int AS count FROM slotsync.exceptions AS e
    WHERE ${STANDS} AND e.stream = coalesce(${stream ?? null}::text, e.stream) GROUP BY e.stream`;

/**
 * Lets records be left as they are from now on. One that stands keeps its beginning, and gets the time and the reason. What gates
 * keep back of these keys, and what was said of their objects, goes.
 */
export async function exceptRecords(
  tx: Queries,
  given: Pick<Exception, 'stream' | 'until' | 'reason' | 'by'> & { keys: readonly string[] },
): Promise<void> {
  const { stream, keys, until, reason, by } = given;
  await query(tx)`
    INSERT INTO slotsync.exceptions AS e (stream, local_key, until, reason, by)
    SELECT ${stream}, key, ${until?.toISOString() ?? null}::text::timestamptz, ${reason}, ${by}
    FROM unnest(${arrayLiteral(keys)}::text[]) AS key
    ON CONFLICT (stream, local_key) DO UPDATE SET until = excluded.until, reason = excluded.reason, by = excluded.by,
      since = CASE WHEN ${STANDS} THEN e.since ELSE now() END`;
  const isOfKeys = sql`stream = ${stream} AND local_key = ${anyOf(keys)}`;
  await query(tx)`DELETE FROM slotsync.drift WHERE ${isOfKeys}`;
  const held = await query(tx)`DELETE FROM slotsync.held WHERE ${isOfKeys}`;
  if (held.count > 0) await recountGates(tx, stream);
}

/** Deletes exceptions whose time is over, as a query that returns their keys: what changed meanwhile is sent by the inbox. */
export const ENDING_EXPIRED = sql.raw(
  'DELETE FROM slotsync.exceptions WHERE until <= now() RETURNING stream, local_key',
);

/** Ends exceptions: their keys, and those that wait for their objects, go into the inbox. Returns the keys that had one. */
export async function endExceptions(tx: Queries, stream: string, keys: readonly string[]): Promise<string[]> {
  const ended = await query<{ localKey: string; externalId: string | null; stands: boolean }>(tx)`
    WITH ended AS (
      DELETE FROM slotsync.exceptions AS e WHERE e.stream = ${stream} AND e.local_key = ${anyOf(keys)}
      RETURNING e.local_key, ${STANDS} AS stands
    )
    SELECT e.local_key AS "localKey", e.stands, r.external_id AS "externalId" FROM ended AS e
    LEFT JOIN slotsync.records AS r ON r.stream = ${stream} AND r.local_key = e.local_key ORDER BY e.local_key`;
  const stood = ended.flatMap(({ localKey, stands }) => (stands ? localKey : []));
  await addChanges(tx, stream, stood);
  await wakeSharers(
    tx,
    ended.flatMap(({ externalId }) => externalId ?? []),
  );
  return stood;
}
