// History of accepted writes. Each row is inserted with the outcome of its record. A key keeps its history if its
// object moves to another key.
import { sql, type SQL } from 'drizzle-orm';
import type { ParsedConfig } from '../streams/config-schema.js';
import type { WrittenField } from '../streams/destination-object.js';
import { query, queryOne, type Queries, type RowOf } from './database.js';
import { toStorableJson, type RecordKey } from './records/outcome-types.js';
import type { history, historyKinds } from './schema.js';

export type HistoryRule = Partial<Pick<ParsedConfig, 'history' | 'historyDays'>>;

/** Maximum number of rows in one statement, so that transactions stay short. */
const ROWS_AT_ONCE = 20_000;

/** Returns what the history keeps of an accepted write, for its outcome. */
export function keptOfWrite(
  written: readonly WrittenField[],
  { history: keeps = 'names' }: HistoryRule,
): { names?: string; values?: unknown } {
  if (keeps === 'none') return {};
  const names = toStorableJson(written.map(({ field }) => field));
  // The service may return texts that PostgreSQL cannot store.
  return keeps === 'names' ? { names } : { names, values: JSON.parse(toStorableJson(written)) as unknown };
}

/** Returns common table expressions that insert those outcomes with `names` into the history. */
export const notingWrites = ({
  stream,
  runId,
}: {
  stream: string;
  runId: number;
}): SQL => sql`, kinds AS MATERIALIZED (
  SELECT k.*, r.started_by, (SELECT min(h.id) FROM slotsync.history_kinds AS h WHERE h.fields = k.fields
    AND h.stream = ${stream} AND h.operation = k.operation AND h.started_by = r.started_by) AS id
  FROM slotsync.runs AS r, (SELECT operation, names, ARRAY(SELECT jsonb_array_elements_text(names::jsonb)) AS fields
    FROM outcomes WHERE is_written AND names IS NOT NULL GROUP BY operation, names) AS k WHERE r.id = ${runId}::bigint
), new_kinds AS (
  INSERT INTO slotsync.history_kinds (stream, operation, started_by, fields)
  SELECT ${stream}, operation, started_by, fields FROM kinds WHERE id IS NULL RETURNING id, operation, fields
), noted AS (
  INSERT INTO slotsync.history (at, run_id, kind_id, local_key, field_values)
  SELECT now(), ${runId}::int, coalesce(k.id, n.id), o.key, o.field_values FROM outcomes AS o JOIN kinds AS k USING (operation, names)
  LEFT JOIN new_kinds AS n ON k.id IS NULL AND n.operation = k.operation AND n.fields = k.fields WHERE o.is_written
)`;

export const isKindOf = (stream: string): SQL =>
  sql`kind_id IN (SELECT id FROM slotsync.history_kinds WHERE stream = ${stream})`;

export type NotedWrite = Pick<RowOf<typeof history>, 'at' | 'runId' | 'fieldValues'> &
  Pick<RowOf<typeof historyKinds>, 'startedBy' | 'operation' | 'fields'>;

export const listWrites = (db: Queries, { stream, localKey }: RecordKey, most: number) =>
  query<NotedWrite>(db)`
    SELECT h.at, h.run_id AS "runId", k.started_by AS "startedBy", k.operation, k.fields, h.field_values AS "fieldValues"
    FROM slotsync.history AS h JOIN slotsync.history_kinds AS k ON k.id = h.kind_id
    WHERE h.local_key = ${localKey} AND k.stream = ${stream} ORDER BY h.at DESC, h.run_id DESC LIMIT ${most}::int`;

/** Deletes expired writes, and parts of writes that the settings no longer keep. Works in small transactions. */
export async function pruneHistory(db: Queries, { history: keeps = 'names', historyDays = 90 }: HistoryRule) {
  const isOld = sql`at < now() - make_interval(secs => ${historyDays * 24 * 60 * 60})`;
  const some = (isMeant: SQL) =>
    sql`ctid = ANY (ARRAY(SELECT ctid FROM slotsync.history WHERE ${isMeant} LIMIT ${ROWS_AT_ONCE}::int))`;
  for (let most = ROWS_AT_ONCE; most === ROWS_AT_ONCE;)
    ({ most } = await queryOne<{ most: number }>(db)`
      WITH deleted AS (DELETE FROM slotsync.history WHERE ${some(keeps === 'none' ? sql`true` : isOld)} RETURNING 1),
      emptied AS (UPDATE slotsync.history SET field_values = NULL
        WHERE ${some(keeps === 'names' ? sql`field_values IS NOT NULL AND NOT ${isOld}` : sql`false`)} RETURNING 1)
      SELECT greatest((SELECT count(*) FROM deleted), (SELECT count(*) FROM emptied))::int AS most`);
}
