// Exceptions: records that slotsync leaves unchanged, because somebody maintains their objects by hand. An exception
// lasts until its end time (database clock) or until an operator ends it.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../text/sql-text.js';
import { anyOf, query, queryCount, type Queries, type RowOf } from './database.js';
import { recountGates } from './gates/held.js';
import { addChanges } from './inbox/add-changes.js';
import { recordName, type RecordKey } from './records/outcome-types.js';
import { wakeSharers } from './records/wake-waiting.js';
import { columnList, exceptions } from './schema.js';

export type Exception = RowOf<typeof exceptions>;

/** SQL: exception `e` is in force. */
const STANDS = sql.raw('(e.until IS NULL OR e.until > now())');

/** SQL: an exception of the key is in force. `stream` and `key` are SQL expressions. */
export const isExcepted = (stream: SQL, key: SQL): SQL =>
  sql`EXISTS (SELECT FROM slotsync.exceptions AS e WHERE e.stream = ${stream} AND e.local_key = ${key} AND ${STANDS})`;

export const IS_EXCEPTED = isExcepted(sql`r.stream`, sql`r.local_key`);

/** SQL: a record of batch `b` was excepted after it was claimed with this token. */
export const hasClaimedExcepted = (token: string): SQL => sql`EXISTS (
  SELECT FROM slotsync.exceptions AS e JOIN slotsync.records AS c ON c.stream = e.stream AND c.local_key = e.local_key
  WHERE e.stream = b.stream AND e.local_key = ANY (b.keys) AND ${STANDS} AND c.claimed_by = ${token})`;

/** SQL: JSON list of a stream's keys with an exception in force. `stream` is an SQL expression. */
export const exceptedKeys = (stream: SQL): SQL =>
  sql`coalesce((SELECT jsonb_agg(e.local_key) FROM slotsync.exceptions AS e WHERE e.stream = ${stream} AND ${STANDS}), '[]')`;

/** Returns the exceptions in force, ordered by stream and key. */
export const listExceptions = (
  db: Queries,
  { stream, keys }: { stream?: string; keys?: readonly string[] } = {},
) => query<Exception>(db)`
  SELECT ${columnList(exceptions, 'e')} FROM slotsync.exceptions AS e
  WHERE ${STANDS} AND ${stream === undefined ? sql`true` : sql`e.stream = ${stream}`}
    AND ${keys ? sql`e.local_key = ${anyOf(keys)}` : sql`true`}
  ORDER BY e.stream, e.local_key`;

export async function findExceptions(
  db: Queries,
  records: readonly RecordKey[],
): Promise<Map<string, Exception>> {
  if (records.length === 0) return new Map();
  const streams = arrayLiteral(records.map(({ stream }) => stream));
  const keys = arrayLiteral(records.map(({ localKey }) => localKey));
  const rows = await query<Exception>(db)`
    SELECT ${columnList(exceptions, 'e')} FROM slotsync.exceptions AS e
    WHERE ${STANDS} AND (e.stream, e.local_key) IN (SELECT * FROM unnest(${streams}::text[], ${keys}::text[]))`;
  return new Map(rows.map((row) => [recordName(row), row]));
}

/** Counts the exceptions in force by stream, of one stream or of all streams. */
export const countExceptions = (db: Queries, stream?: string): Promise<{ stream: string; count: number }[]> =>
  query<{ stream: string; count: number }>(db)`
    SELECT e.stream, count(*)::int AS count FROM slotsync.exceptions AS e
    WHERE ${STANDS} AND e.stream = coalesce(${stream ?? null}::text, e.stream) GROUP BY e.stream`;

/** Excepts records from now on, and deletes their drift and held rows. An exception in force keeps its start. */
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
  const held = await queryCount(tx)`DELETE FROM slotsync.held WHERE ${isOfKeys}`;
  if (held > 0) await recountGates(tx, stream);
}

/** Query that deletes expired exceptions and returns their keys, which the caller adds to the inbox. */
export const ENDING_EXPIRED = sql.raw(
  'DELETE FROM slotsync.exceptions WHERE until <= now() RETURNING stream, local_key',
);

/** Ends exceptions. Adds their keys, and records that wait for their objects, to the inbox. Returns the ended keys. */
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
