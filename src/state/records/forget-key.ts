// Deletes everything that the state holds about the key of a person whose data must be erased, and notes the deletion.
// The organization itself must delete the row in the mirror and the object at the service.
import { createHash } from 'node:crypto';
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../../text/sql-text.js';
import { anyOf, query, type Queries } from '../database.js';
import { recountGates } from '../gates/held.js';
import { isKindOf } from '../history.js';
import { listFormerObjects } from './read/owners.js';
import { recordName, type RecordKey } from './outcome-types.js';

/** Reason why nothing was deleted: the unfinished run `runId` has the key, or a batch writes the record or object. */
export type ForgetRefusal = { refused: 'in_run'; runId: number } | { refused: 'claimed' };

export interface Forgotten {
  /** Number of deleted or changed rows, by table. */
  deleted: Record<string, number>;
  /** External ids of the key's objects, which the service may still hold. */
  externalIds: string[];
}

/** Replacement for a text that named the deleted key. */
const CLEARED = 'removed: this text named a deleted key';
/** Text columns that may name a deleted key. Alerts are not listed, because they name no keys. */
const MESSAGES = [
  ['records', 'error_message'],
  ['batches', 'error_message'],
  ['runs', 'error_message'],
  ['actions', 'subject'],
  ['actions', 'reason'],
  ['processes', 'error_message'],
  ['freezes', 'reason'],
  ['exceptions', 'reason'],
  ['gates', 'answer_reason'],
  ['streams', 'refused_message'],
] as const;
/** JSON paths of texts that may name a deleted key: messages of the service and reasons of freezes. */
const IN_JSON = [
  ['gates', 'facts', '{refused,message}'],
  ['gates', 'facts', '{message}'],
  ['streams', 'problem', '{message}'],
] as const;
/** Parts of a run's range that may contain values of rows. */
const QUOTING = ['where', 'from', 'to'] as const;

/** Returns the SHA-256 hash by which `removals` identifies a deleted key. */
export function hashRemoved({ stream, localKey }: RecordKey): string {
  return createHash('sha256').update(`${stream}\n${localKey}`).digest('hex');
}

/**
 * Deletes all data of a key in one transaction, including bookings that refer to its objects. Removes the key from rows
 * about several keys, and clears texts that name the key or its objects. Returns undefined if the state has nothing
 * about the key.
 */
export async function forgetKey(
  db: Queries,
  key: RecordKey,
  /** Number of rows that the caller has deleted in other stores such as the queue, by store. */
  elsewhere: Record<string, number> = {},
): Promise<Forgotten | ForgetRefusal | undefined> {
  const { stream, localKey } = key;
  return db.transaction(async (tx) => {
    const [run] = await query<{ id: number }>(tx)`
      SELECT r.id::float8 AS id FROM slotsync.runs AS r
      WHERE EXISTS (SELECT FROM slotsync.batches AS b WHERE b.run_id = r.id AND b.stream = ${stream}
          AND ${localKey} = ANY (b.keys) AND r.finished_at IS NULL)
        -- Its plan may have read the record.
        OR (r.status = 'planning' AND ${stream} = ANY (r.streams) AND (r.kind <> 'incremental' OR EXISTS (
          SELECT FROM slotsync.changes AS c
          WHERE c.run_id = r.id AND c.stream = ${stream} AND c.local_key = ${localKey})))
        OR (r.finished_at IS NULL AND ${stream} = ANY (r.streams) AND ${isQuoting} ~ ${patternOf([localKey])})
      LIMIT 1`;
    if (run) return { refused: 'in_run', runId: run.id };
    const records = await query<{ externalId: string | null; rowId: string | null; isClaimed: boolean }>(tx)`
      SELECT external_id AS "externalId", row_external_id AS "rowId",
        coalesce(claimed_until > now(), false) AS "isClaimed"
      FROM slotsync.records WHERE stream = ${stream} AND local_key = ${localKey} FOR UPDATE`;
    if (records.some(({ isClaimed }) => isClaimed)) return { refused: 'claimed' };
    const links = await query<{ externalId: string }>(tx)`
      SELECT external_id AS "externalId" FROM slotsync.links WHERE stream = ${stream} AND local_key = ${localKey}`;
    const former = await listFormerObjects(tx, stream, [localKey]);
    const named = [
      ...records.flatMap(({ externalId, rowId }) => [externalId, rowId]),
      ...[...links, ...former].map(({ externalId }) => externalId),
    ];
    const externalIds = [...new Set(named.filter((id) => id !== null))];
    const written = await query(tx)`
      SELECT FROM slotsync.object_claims WHERE external_id = ${anyOf(externalIds)} AND claimed_until > now()`;
    if (written.length > 0) return { refused: 'claimed' };
    const inState = await execute(tx, [
      ...statementsOfKey(key, [localKey, ...former.map((kept) => kept.localKey)], externalIds),
      ...statementsOfBookings(externalIds),
      ...clearMessages([localKey, ...externalIds]),
    ]);
    if (inState['held'] !== undefined) await recountGates(tx, stream);
    const deleted = { ...inState, ...elsewhere };
    if (Object.keys(deleted).length === 0) return undefined;
    await noteRemoval(tx, key, deleted);
    return { deleted, externalIds };
  });
}

/** Deletes all data of one booking in one transaction. Returns undefined if there is no such booking. */
export async function forgetBooking(db: Queries, localKey: string): Promise<Forgotten | undefined> {
  return db.transaction(async (tx) => {
    const [booking] = await query<{ externalId: string | null }>(tx)`
      SELECT external_id AS "externalId" FROM slotsync.reservations WHERE key = ${localKey}`;
    if (!booking) return undefined;
    const externalIds = booking.externalId === null ? [] : [booking.externalId];
    const deleted = await execute(tx, [
      ...deleteBookings(sql`r.key = ${localKey}`),
      ...clearMessages([localKey, ...externalIds]),
    ]);
    await noteRemoval(tx, { stream: 'reservations', localKey }, deleted);
    return { deleted, externalIds };
  });
}

type Statement = readonly [table: string, statement: SQL];

/** Tags of statements: update(table)`column = value WHERE condition`, and remove(table)`condition`. */
const tagOf =
  (build: (table: SQL, rest: SQL) => SQL) =>
  (table: string) =>
  (...rest: Parameters<typeof sql>): Statement => [table, build(sql.raw(`slotsync.${table}`), sql(...rest))];
const update = tagOf((table, rest) => sql`UPDATE ${table} SET ${rest}`);
const remove = tagOf((table, condition) => sql`DELETE FROM ${table} WHERE ${condition}`);

function statementsOfKey(
  key: RecordKey,
  keys: readonly string[],
  externalIds: readonly string[],
): Statement[] {
  const { stream, localKey } = key;
  const these = sql`${arrayLiteral(keys)}::text[]`;
  // References in other objects contain the external id. A key of digits is not searched, because any value may equal
  // it.
  const values = /^\d+$/.test(localKey) ? externalIds : [localKey, ...externalIds];
  const quoted = sql`${arrayLiteral(values.map((value) => JSON.stringify(value)))}::text[]`;
  const isQuotedIn = (json: SQL) =>
    sql`EXISTS (SELECT FROM unnest(${quoted}) AS name WHERE strpos(${json}, name) > 0)`;
  /** SQL: `sample` is about the deleted key or names it. `of` is an SQL expression for the stream of the sample. */
  const isSampleOf = (of: SQL) =>
    sql`(${of} = ${stream} AND sample->>'key' = ${localKey} OR ${isQuotedIn(sql`sample::text`)})`;
  const clearFields = (table: string) => update(table)`fields = NULL WHERE ${isQuotedIn(sql`fields::text`)}`;
  const deleteOfKey = (table: string) => remove(table)`stream = ${stream} AND local_key = ANY (${these})`;
  return [
    ...['records', 'links', 'changes', 'drift', 'drift_events', 'held', 'exceptions'].map(deleteOfKey),
    ...['drift', 'drift_events'].map(clearFields),
    remove('history')`local_key = ANY (${these}) AND ${isKindOf(stream)}`,
    update('history')`field_values = NULL
        WHERE field_values IS NOT NULL AND ${isQuotedIn(sql`field_values::text`)}`,
    remove('object_claims')`external_id = ${anyOf(externalIds)}`,
    update('records')`waits_for = NULL, error_message = ${CLEARED}
        WHERE waits_for = ${recordName(key)}`,
    update('records')`renamed_to = NULL WHERE stream = ${stream} AND renamed_to = ${localKey}`,
    update('batches')`keys = array(SELECT k FROM unnest(keys) AS k WHERE k <> ALL (${these})),
          error_message = CASE WHEN error_message IS NOT NULL THEN ${CLEARED} END
        WHERE stream = ${stream} AND keys && ${these}
          AND run_id IN (SELECT id FROM slotsync.runs WHERE finished_at IS NOT NULL)`,
    update('runs')`range = jsonb_set(range, '{keys}', (range->'keys') - ${localKey}::text)
        WHERE ${stream} = ANY (streams) AND range->'keys' ? ${localKey}`,
    // Gates and holds contain sample records with field values.
    update('gates')`samples = (
          SELECT coalesce(jsonb_agg(sample), '[]') FROM jsonb_array_elements(samples) AS sample
          WHERE NOT ${isSampleOf(sql`stream`)})
        WHERE EXISTS (SELECT FROM jsonb_array_elements(samples) AS sample WHERE ${isSampleOf(sql`stream`)})`,
    updateHolds(
      sql`EXISTS (SELECT FROM jsonb_array_elements(g.value->'samples') AS sample WHERE ${isSampleOf(sql`s.key`)})`,
      sql`jsonb_set(g.value, '{samples}', (
        SELECT coalesce(jsonb_agg(sample), '[]') FROM jsonb_array_elements(g.value->'samples') AS sample
        WHERE NOT ${isSampleOf(sql`s.key`)}))`,
    ),
    update('streams')`cursor_key = '' WHERE stream = ${stream} AND cursor_key = ${localKey}`,
  ];
}

const isQuoting = sql.raw(`concat_ws(' ', ${QUOTING.map((part) => `range->>'${part}'`).join(', ')})`);

/**
 * Returns a statement that changes holds in the history of runs. In both conditions, `g` is a hold and `s` a stream.
 */
const updateHolds = (isMeant: SQL, changed: SQL) => update('runs')`holds = (
      SELECT jsonb_object_agg(s.key, (
        SELECT coalesce(jsonb_object_agg(g.key, CASE WHEN ${isMeant} THEN ${changed} ELSE g.value END), '{}')
        FROM jsonb_each(s.value) AS g))
      FROM jsonb_each(holds) AS s)
    WHERE EXISTS (SELECT FROM jsonb_each(holds) AS s, jsonb_each(s.value) AS g WHERE ${isMeant})`;

/** Returns statements that replace texts, and range values of ended runs, that contain one of the names. */
function clearMessages(names: readonly string[]): Statement[] {
  const pattern = patternOf(names);
  const cleared = sql`to_jsonb(${CLEARED}::text)`;
  const quoting = sql`${arrayLiteral(QUOTING)}::text[]`;
  return [
    ...MESSAGES.map(([table, column]) => {
      const message = sql.raw(column);
      return update(table)`${message} = ${CLEARED} WHERE ${message} ~ ${pattern}`;
    }),
    ...IN_JSON.map(([table, column, path]) => {
      const json = sql.raw(column);
      return update(table)`${json} = jsonb_set(${json}, ${path}::text[], ${cleared})
        WHERE ${json} #>> ${path}::text[] ~ ${pattern}`;
    }),
    updateHolds(
      sql`concat_ws(' ', g.value #>> '{facts,message}', g.value #>> '{facts,refused,message}') ~ ${pattern}`,
      sql`jsonb_set(jsonb_set(g.value, '{facts,message}', ${cleared}, false), '{facts,refused,message}', ${cleared}, false)`,
    ),
    update('runs')`range = (
          SELECT jsonb_object_agg(part, CASE WHEN part = ANY (${quoting}) AND value #>> '{}' ~ ${pattern}
            THEN ${cleared} ELSE value END)
          FROM jsonb_each(range) AS parts (part, value))
        WHERE finished_at IS NOT NULL AND ${isQuoting} ~ ${pattern}`,
  ];
}

/**
 * Returns a regular expression for PostgreSQL and JavaScript that finds a name as a whole word, also JSON-escaped or
 * URL-encoded.
 */
export function patternOf(names: readonly string[]): string {
  const forms = names
    .map((name) => name || "''")
    .flatMap((name) => [name, JSON.stringify(name).slice(1, -1), encodeURIComponent(name.toWellFormed())]);
  return [...new Set(forms)]
    .map((form) => {
      const [before, after] = [/^\w/.test(form) ? '(?<!\\w)' : '', /\w$/.test(form) ? '(?!\\w)' : ''];
      return before + form.replaceAll(/[^\w\u0080-\uffff]/g, String.raw`\$&`) + after;
    })
    .join('|');
}

/** Returns statements that delete bookings of these objects and remove the objects from other bookings' history. */
function statementsOfBookings(externalIds: readonly string[]): Statement[] {
  const quoted = sql`${arrayLiteral(externalIds.map((id) => JSON.stringify(id)))}::text[]`;
  const isNamedIn = (json: string) =>
    sql`EXISTS (SELECT FROM unnest(${quoted}) AS name WHERE strpos(${sql.raw(json)}, name) > 0)`;
  return [
    ...deleteBookings(isNamedIn('concat(r.here, r.there, r.differs)')),
    update('reservation_events')`differs = NULL WHERE ${isNamedIn('differs::text')}`,
  ];
}

/** Returns statements that delete the bookings `r` that fulfil `condition`, with their history and cancellations. */
function deleteBookings(condition: SQL): Statement[] {
  const these = sql`FROM slotsync.reservations AS r WHERE ${condition}`;
  return [
    remove('reservation_events')`key IN (SELECT r.key ${these})`,
    remove(
      'cancellations',
    )`reservation IN (SELECT r.destination_id ${these}) OR external_id IN (SELECT r.external_id ${these})`,
    remove('reservations')`key IN (SELECT r.key ${these})`,
  ];
}

async function execute(tx: Queries, statements: readonly Statement[]): Promise<Record<string, number>> {
  const rows: Record<string, number> = {};
  for (const [table, statement] of statements) {
    const { count } = (await tx.execute(statement)) as unknown as { count: number };
    if (count > 0) rows[table] = (rows[table] ?? 0) + count;
  }
  return rows;
}

async function noteRemoval(tx: Queries, key: RecordKey, deleted: Record<string, number>): Promise<void> {
  await query(tx)`
    INSERT INTO slotsync.removals (stream, key_hash, deleted)
    VALUES (${key.stream}, ${hashRemoved(key)}, ${JSON.stringify(deleted)}::jsonb)`;
}
