// Alerts and their messages, and the nightly runs that alerts report. At most one alert of a cause is open. A process
// claims a message before sending it, by moving the time of the next attempt forward.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../text/sql-text.js';
import { anyOf, query, queryFirst, type Queries, type RowOf } from './database.js';
import type { AlertCondition, AlertEvent, AlertText, alerts, RunStatus } from './schema.js';

export interface AlertCause {
  cause: string;
  condition: AlertCondition;
  message: AlertText;
}

export type Alert = RowOf<typeof alerts>;

export interface DueMessage {
  id: number;
  /** Start of the transaction that created the message, in microseconds since 1970. Identifies the evaluation. */
  decidedAt: string;
  event: AlertEvent;
  /** Addresses that have not received the message. Null if no address has received it. */
  missing: string[] | null;
  alert: Alert;
}

export interface OpenAlert extends Alert {
  messages: {
    channel: string;
    attempts: number;
    sentAt: string | null;
    missing: string[] | null;
    error: string | null;
  }[];
}

/** Days after which an unsent message is no longer tried. */
const TRY_DAYS = 3;
const WIDEST_GAP_MINUTES = 60;

/** Opens an alert with a message to each channel, unless one of the same cause is open. Returns its id if opened. */
export async function openAlert(
  db: Queries,
  { cause, condition, message }: AlertCause,
  channels: readonly string[],
): Promise<number | undefined> {
  const [row] = await query<{ id: number }>(db)`
    WITH opened AS (
      INSERT INTO slotsync.alerts (cause, condition, message)
      VALUES (${cause}, ${condition}, ${JSON.stringify(message)}::text::jsonb)
      ON CONFLICT (cause) WHERE recovered_at IS NULL DO NOTHING RETURNING id
    ), told AS (
      INSERT INTO slotsync.alert_messages (alert_id, channel, event)
      SELECT id, channel, 'opened' FROM opened, jsonb_array_elements_text(${JSON.stringify(channels)}::text::jsonb) AS c(channel)
    )
    SELECT id::float8 AS id FROM opened`;
  return row?.id;
}

/** Creates messages for an open alert that has none, because its process had no channels configured. */
export async function addMessages(db: Queries, id: number, channels: readonly string[]): Promise<void> {
  await query(db)`
    INSERT INTO slotsync.alert_messages (alert_id, channel, event)
    SELECT ${id}::bigint, channel, 'opened' FROM jsonb_array_elements_text(${JSON.stringify(channels)}::text::jsonb) AS c(channel)`;
}

/** Stores if the cause of an open alert still exists. A cause may return before the alert is closed. */
export async function noteCause(db: Queries, id: number, isThere: boolean): Promise<void> {
  await query(db)`
    UPDATE slotsync.alerts SET gone_since = CASE WHEN NOT ${isThere} THEN now() END
    WHERE id = ${id}::bigint AND (gone_since IS NULL) <> ${isThere}`;
}

/**
 * Closes an alert whose cause has been absent for `afterMinutes`, with a message to `channels` and each channel of the
 * alert. Unsent messages about the opening are deleted, because the new message contains everything.
 */
export async function recoverAlert(
  db: Queries,
  id: number,
  {
    afterMinutes,
    message,
    channels = [],
  }: { afterMinutes: number; message: Partial<AlertText>; channels?: readonly string[] },
): Promise<void> {
  await query(db)`
    WITH recovered AS (
      UPDATE slotsync.alerts SET recovered_at = gone_since,
        message = message || ${JSON.stringify(message)}::text::jsonb
      WHERE id = ${id}::bigint AND recovered_at IS NULL
        AND gone_since <= now() - make_interval(mins => ${afterMinutes}) RETURNING id
    ), told AS (
      INSERT INTO slotsync.alert_messages (alert_id, channel, event)
      SELECT r.id, channel, 'recovered' FROM recovered AS r, LATERAL (
        SELECT channel FROM slotsync.alert_messages WHERE alert_id = r.id
        UNION SELECT jsonb_array_elements_text(${JSON.stringify(channels)}::text::jsonb)) AS c
    )
    DELETE FROM slotsync.alert_messages AS m USING recovered AS r
    WHERE m.alert_id = r.id AND m.event = 'opened' AND m.sent_at IS NULL`;
}

const ALERT = sql.raw(`a.id::float8 AS id, a.cause, a.condition, a.message, a.opened_at AS "openedAt",
  a.gone_since AS "goneSince", a.recovered_at AS "recoveredAt"`);

export const listOpenAlerts = (db: Queries): Promise<OpenAlert[]> =>
  listAlerts(db, sql`recovered_at IS NULL AND condition <> 'nightly_run'`);

/** Returns alerts of nightly runs whose start or end could not be sent to a channel so far. */
export const listUnsentNightly = (db: Queries): Promise<OpenAlert[]> =>
  listAlerts(
    db,
    sql`condition = 'nightly_run' AND EXISTS (
      SELECT FROM slotsync.alert_messages AS m WHERE m.alert_id = a.id AND sent_at IS NULL AND error IS NOT NULL)`,
  );

const listAlerts = (db: Queries, isMeant: SQL) => query<OpenAlert>(db)`
  SELECT ${ALERT}, coalesce((
    SELECT jsonb_agg(jsonb_build_object('channel', channel, 'attempts', attempts, 'sentAt', sent_at, 'missing', missing,
      'error', error) ORDER BY channel)
    FROM slotsync.alert_messages AS m WHERE m.alert_id = a.id), '[]') AS messages
  FROM slotsync.alerts AS a WHERE ${isMeant} ORDER BY opened_at, id`;

/**
 * Claims the due messages of a channel. A claimed message is due again after one minute, then after doubling intervals
 * of up to an hour, so that another process sends it if this process dies.
 */
export async function claimMessages(db: Queries, channel: string, limit: number): Promise<DueMessage[]> {
  const rows = await query<Alert & Omit<DueMessage, 'id' | 'alert'> & { messageId: number }>(db)`
    WITH claimed AS (
      UPDATE slotsync.alert_messages SET attempts = attempts + 1,
        next_at = now() + make_interval(mins => least(${WIDEST_GAP_MINUTES}, power(2, least(attempts, 10)))::int)
      WHERE id IN (
        SELECT id FROM slotsync.alert_messages
        WHERE channel = ${channel} AND sent_at IS NULL AND next_at <= now()
          AND created_at > now() - make_interval(days => ${TRY_DAYS})
        ORDER BY id LIMIT ${limit} FOR UPDATE SKIP LOCKED)
      RETURNING id, alert_id, event, missing, created_at
    )
    SELECT c.id::float8 AS "messageId", (extract(epoch FROM c.created_at) * 1e6)::bigint::text AS "decidedAt", c.event, c.missing, ${ALERT}
    FROM claimed AS c JOIN slotsync.alerts AS a ON a.id = c.alert_id ORDER BY c.id`;
  return rows.map(({ messageId: id, decidedAt, event, missing, ...alert }) => ({
    id,
    decidedAt,
    event,
    missing,
    alert,
  }));
}

/**
 * Stores the result of sending claimed messages. `problem` is the error, or null on success. `missing` lists addresses
 * that failed although others succeeded.
 */
export async function noteAttempt(
  db: Queries,
  ids: readonly number[],
  { problem, missing }: { problem: string | null; missing: readonly string[] | null },
): Promise<void> {
  // Skips messages that another process has sent meanwhile. Locks in the same order as closing an alert, to prevent
  // deadlocks.
  await query(db)`
    UPDATE slotsync.alert_messages SET error = ${problem}, missing = ${missing && arrayLiteral(missing)}::text[],
      sent_at = CASE WHEN ${problem === null} THEN now() END
    WHERE id IN (
      SELECT id FROM slotsync.alert_messages WHERE id = ${anyOf(ids, 'bigint')} AND sent_at IS NULL
      ORDER BY alert_id, id FOR UPDATE)`;
}

const IS_NIGHTLY = sql.raw(`r.kind = 'sync' AND r.started_by = 'schedule' AND coalesce(
  (SELECT n.streams = '{}' OR n.streams && r.streams FROM slotsync.schedules AS n WHERE n.name = 'nightly'),
  NOT EXISTS (SELECT FROM slotsync.schedules AS o WHERE o.name <> 'verify'))`);

/** Nightly run. `finishedAt` is null while the run is unfinished. */
export interface NightlyRun {
  id: number;
  streams: string[];
  finishedAt: Date | null;
}

export const readLatestNightly = (db: Queries) => queryFirst<NightlyRun>(db)`
  SELECT r.id::float8 AS id, r.streams, r.finished_at AS "finishedAt" FROM slotsync.runs AS r
  WHERE ${IS_NIGHTLY} AND r.finished_at IS NOT NULL ORDER BY r.id DESC LIMIT 1`;

/** Nightly run whose start or end was not reported yet. `alert` is the alert about its start, or null. */
interface UnnotedNightly extends NightlyRun {
  status: RunStatus;
  alert: { id: number; message: AlertText } | null;
}

/**
 * Returns nightly runs whose end was not reported. A run whose start was not reported either is included only if it is
 * the latest and ended less than a day ago.
 */
export const listUnnotedNightly = (db: Queries) => query<UnnotedNightly>(db)`
  SELECT r.id::float8 AS id, r.streams, r.status, r.finished_at AS "finishedAt",
    CASE WHEN a.id IS NOT NULL THEN jsonb_build_object('id', a.id, 'message', a.message) END AS alert
  FROM slotsync.runs AS r LEFT JOIN slotsync.alerts AS a ON a.condition = 'nightly_run' AND a.cause = 'nightly_run ' || r.id
  WHERE ${IS_NIGHTLY} AND a.recovered_at IS NULL AND (a.id IS NOT NULL OR (
    coalesce(r.finished_at, now()) > now() - interval '1 day'
    AND r.id = (SELECT max(r.id) FROM slotsync.runs AS r WHERE ${IS_NIGHTLY})))
  ORDER BY r.id`;
