// Sends records of a run that wait for a record of their own stream, in additional batches. A record is sent when its
// parent has arrived. If records refer to each other in a circle, one record is sent first without the reference. Then
// it waits for its parent, and is sent again with the reference.
import { sql, type SQL } from 'drizzle-orm';
import { query, queryCount, type Queries } from '../database.js';
import { recordName, REFERENCE_CIRCLE, type RecordKey } from '../records/outcome-types.js';
import { createFollower, readChainLinks } from '../records/read/waiting-chains.js';
import { HAS_ARRIVED } from '../records/record-state.js';

const MOST_STARTS = 1000;

/** SQL condition: the record `r` waits for a record of its own stream. */
const IS_OF_OWN_STREAM = sql`r.waits_for::jsonb->>0 = r.stream`;
/** SQL condition: the record `r` is deferred, and waits for a record of its own stream. */
const WAITS = sql`r.status = 'deferred' AND ${IS_OF_OWN_STREAM}`;

/** SQL for the name of a record as stored in `waits_for`, in the collation of that column's index. */
const NAME = (record: string) =>
  sql.raw(
    `('[' || to_json(${record}.stream) || ',' || to_json(${record}.local_key) || ']') COLLATE "default"`,
  );

/** Looks up a record as `r` by its key alone. Otherwise PostgreSQL would scan an index of all waiting records. */
const RECORD = (stream: SQL, key: SQL) =>
  sql`(SELECT * FROM slotsync.records AS r WHERE r.stream = ${stream} AND r.local_key = ${key} OFFSET 0) AS r`;

/** SQL for the record `r` that the row `w` of the query `waiting` waits for. */
const PARENT = RECORD(sql`w.stream`, sql`w.parent`);

/** Query `waiting`: records of the run that wait for a record of their own stream, with the batch that tried each. */
const waitingIn = (runId: number) => sql`waiting AS MATERIALIZED (
  SELECT b.id, b.stream, r.local_key, r.waits_for::jsonb->>1 AS parent, b.level, b.exempt, ${HAS_ARRIVED} AS has_arrived,
    -- The second write of a record counts towards no limit.
    CASE WHEN r.error_code IS DISTINCT FROM ${REFERENCE_CIRCLE} THEN b.operation END AS operation, b.size
  FROM (SELECT *, max(cardinality(keys)) OVER (PARTITION BY stream) AS size FROM slotsync.batches
    WHERE run_id = ${runId}::bigint AND state = 'done' AND (counts->>'deferred')::int > 0) AS b
  CROSS JOIN unnest(b.keys) AS key CROSS JOIN LATERAL ${RECORD(sql`b.stream`, sql`key`)}
  WHERE r.run_id = b.run_id AND ${WAITS})`;

/**
 * Plans batches of the waiting records whose parent has arrived. If no parent has arrived, plans one record of each cycle of
 * records that refer to each other. Returns true if it planned any record. Call it in the transaction that advances the
 * run.
 */
export async function planAgain(tx: Queries, runId: number): Promise<boolean> {
  const arrived = sql`SELECT w.* FROM waiting AS w WHERE EXISTS (SELECT FROM ${PARENT} WHERE ${HAS_ARRIVED})`;
  return (await planChosen(tx, runId, arrived)) || breakCircles(tx, runId);
}

async function breakCircles(tx: Queries, runId: number): Promise<boolean> {
  // Includes records that were given up, because they are sent as soon as their reference arrives.
  const caught = sql`r.status IN ('deferred', 'dead') AND ${IS_OF_OWN_STREAM} AND NOT ${HAS_ARRIVED}`;
  // Selects records that are in a circle or wait for one: all that do not wait, through others, for a record that waits
  // for nothing. A record that was sent without its reference counts as arrived.
  const starts = await query<RecordKey>(tx)`
    WITH RECURSIVE ${waitingIn(runId)}, ended (stream, local_key) AS (
      SELECT w.stream, w.local_key FROM waiting AS w WHERE NOT EXISTS (SELECT FROM ${PARENT} WHERE ${caught})
      UNION ALL SELECT r.stream, r.local_key FROM ended AS e CROSS JOIN LATERAL (
        SELECT * FROM slotsync.records AS r WHERE r.waits_for = ${NAME('e')} OFFSET 0) AS r WHERE ${caught}
    )
    SELECT stream, local_key AS "localKey"
    FROM (SELECT stream, local_key FROM waiting WHERE NOT has_arrived EXCEPT TABLE ended) AS caught LIMIT ${MOST_STARTS}`;
  const follow = createFollower(await readChainLinks(tx, starts));
  const ends = starts.map((start) => follow(start).end).filter(({ status }) => status === 'cycle');
  const circles = new Map(ends.map((end) => [recordName(end), end.members]));
  if (circles.size === 0) return false;
  const members = [...circles].flatMap(([circle, those]) => those.map((one) => ({ ...one, circle })));
  const first = sql`SELECT DISTINCT ON (m.circle) w.* FROM waiting AS w
    JOIN jsonb_to_recordset(${JSON.stringify(members)}::jsonb) AS m(circle text, stream text, "localKey" text)
      ON m.stream = w.stream AND m."localKey" = w.local_key ORDER BY m.circle, w.local_key`;
  return planChosen(tx, runId, first, true);
}

/** Moves the rows that `chosen` selects from `waiting` to new batches of the same size, out of their ended batches. */
async function planChosen(tx: Queries, runId: number, chosen: SQL, isCircle = false): Promise<boolean> {
  const planned = await queryCount(tx)`
    WITH ${waitingIn(runId)}, chosen AS MATERIALIZED (${chosen}), locked AS MATERIALIZED (
      SELECT r.stream, r.local_key FROM slotsync.records AS r
      WHERE ${isCircle} AND (r.stream, r.local_key) IN (SELECT stream, local_key FROM chosen) FOR NO KEY UPDATE SKIP LOCKED
    ), marked AS (
      UPDATE slotsync.records AS r SET error_code = ${REFERENCE_CIRCLE} FROM locked AS l
      WHERE r.stream = l.stream AND r.local_key = l.local_key
    ), moved AS (
      UPDATE slotsync.batches AS b SET keys = ARRAY(SELECT unnest(b.keys) EXCEPT SELECT unnest(c.keys)),
        counts = jsonb_set(counts, '{deferred}', to_jsonb((counts->>'deferred')::int - cardinality(c.keys)))
      FROM (SELECT id, array_agg(local_key) AS keys FROM chosen GROUP BY id) AS c WHERE b.id = c.id
    )
    INSERT INTO slotsync.batches (run_id, stream, level, operation, exempt, keys, state)
    SELECT ${runId}::bigint, stream, level, operation, exempt, array_agg(local_key ORDER BY local_key), 'planned'
    FROM (SELECT *, (row_number() OVER (PARTITION BY stream, level, operation, exempt ORDER BY local_key) - 1) / size AS part
      FROM chosen) AS parts
    GROUP BY stream, level, operation, exempt, part RETURNING 1`;
  return planned > 0;
}
