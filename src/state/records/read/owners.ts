// Reads records that own an object: what the service accepted last, and if anything may have been sent since. Former
// objects lost their row when the external id of their record changed. A record of its own keeps each.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../../../text/sql-text.js';
import { anyOf, query, queryColumn, queryValue, type Queries } from '../../database.js';
import type { RecordStatus } from '../../schema.js';
import { IS_FORMER, MAY_BE_AT_SERVICE, HAS_ARRIVED } from '../record-state.js';
import { type RecordKey, recordName } from '../outcome-types.js';

export interface OwnerRecord extends RecordKey {
  externalId: string;
  destinationId: string | null;
  status: RecordStatus;
  sourceHash: string | null;
  objectHash: string | null;
  acceptedFields: string | null;
  /** Key of the record that owned this object before its external id changed. Null unless this is a former object. */
  formerKey: string | null;
  /** True if the object is a former object about which no operator has decided. */
  isFormer: boolean;
  /** True if the service may hold the object, or if a batch may be sending it. */
  mayBeAtService: boolean;
  /** True if no batch is writing the record, the object is not in doubt, and no late write can still be executed. */
  isSettled: boolean;
  quietSeconds: number;
  /** Time of the last change by the clock of the database, in seconds since 1970. */
  writtenSeconds: number;
  /** Time of the last change as text at full precision. */
  writtenAt: string;
}

const OWNER = sql`r.stream, r.local_key AS "localKey", r.external_id AS "externalId",
  r.destination_id AS "destinationId", r.status, r.source_hash::text AS "sourceHash",
  r.object_hash AS "objectHash", r.accepted_fields AS "acceptedFields", r.former_key AS "formerKey", ${IS_FORMER} AS "isFormer", ${MAY_BE_AT_SERVICE} AS "mayBeAtService",
  r.claimed_by IS NULL AND NOT r.in_doubt AND r.check_after IS NULL AS "isSettled",
  extract(epoch FROM clock_timestamp() - r.updated_at)::float8 AS "quietSeconds",
  extract(epoch FROM r.updated_at)::float8 AS "writtenSeconds",
  r.updated_at::text AS "writtenAt"`;

export async function readOwners(db: Queries, externalIds: readonly string[]) {
  if (externalIds.length === 0) return new Map<string, OwnerRecord>();
  const rows = await query<OwnerRecord>(db)`
    SELECT ${OWNER} FROM slotsync.records AS r WHERE r.external_id = ${anyOf([...new Set(externalIds)])}`;
  return new Map(rows.map((row) => [row.externalId, row]));
}

export async function readOwnersByKey(db: Queries, stream: string, keys: readonly string[]) {
  return readByKey(db, sql`r.stream = ${stream} AND r.local_key = ${anyOf(keys)}`, keys.length);
}

/** Returns up to `most` records of a stream that own an object, ordered by key, beginning after `after`. */
export async function listOwners(db: Queries, stream: string, after: string | undefined, most: number) {
  const isAfter = after === undefined ? sql`true` : sql`r.local_key > ${after}`;
  return readByKey(db, sql`r.stream = ${stream} AND ${isAfter}`, most);
}

/** Returns up to `count` random records of a stream in status `synced` that own an object. */
export const sampleOwners = (db: Queries, stream: string, count: number) => query<OwnerRecord>(db)`
  SELECT ${OWNER} FROM slotsync.records AS r
  WHERE r.stream = ${stream} AND r.external_id IS NOT NULL AND r.status = 'synced'
  ORDER BY random() LIMIT ${count}`;

/** Maximum number of records per service id. Without a limit, PostgreSQL expects hundreds and spends 0.1 s on JIT. */
const MOST_OWNERS = 10;

/** Returns records whose objects have, or may have, these ids of the service. Uses the index for each id. */
export async function readOwnersByNumber(db: Queries, numbers: readonly string[]): Promise<OwnerRecord[]> {
  if (numbers.length === 0) return [];
  return query<OwnerRecord>(db)`
    SELECT ${OWNER} FROM unnest(${arrayLiteral(numbers)}::text[]) AS number CROSS JOIN LATERAL (
      SELECT * FROM slotsync.records AS r WHERE r.destination_id = number AND r.external_id IS NOT NULL AND ${MAY_BE_AT_SERVICE}
      LIMIT ${MOST_OWNERS}) AS r`;
}

/** Returns the keys of a stream's records whose object has this id of the service. */
export const listKeysByNumber = (db: Queries, stream: string, destinationId: string) =>
  queryColumn<string>(db)`
    SELECT local_key AS "localKey" FROM slotsync.records
    WHERE stream = ${stream} AND destination_id = ${destinationId} ORDER BY object_hash IS NULL, local_key`;

const readByKey = (db: Queries, condition: SQL, most: number) => query<OwnerRecord>(db)`
  SELECT ${OWNER} FROM slotsync.records AS r
  WHERE ${condition} AND r.external_id IS NOT NULL ORDER BY r.local_key LIMIT ${most}`;

/**
 * Returns a function that yields the external id of a referenced record. It yields undefined if the service has not
 * accepted the record, or if an operator must decide about its object.
 */
export async function readExternalIds(db: Queries, wanted: readonly RecordKey[]) {
  if (wanted.length === 0) return () => undefined;
  const rows = await query<RecordKey & { externalId: string }>(db)`
    SELECT r.stream, r.local_key AS "localKey", r.external_id AS "externalId"
    FROM jsonb_to_recordset(${JSON.stringify(wanted)}::jsonb) AS w(stream text, "localKey" text)
    CROSS JOIN LATERAL (
      SELECT * FROM slotsync.records AS r
      WHERE r.stream = w.stream AND r.local_key = w."localKey" AND ${HAS_ARRIVED}
      OFFSET 0) AS r`;
  const found = new Map(rows.map((row) => [recordName(row), row.externalId]));
  return (reference: RecordKey) => found.get(recordName(reference));
}

/** Counts former objects about which no operator has decided, optionally of one stream only. */
export const countFormerObjects = (db: Queries, stream?: string) => queryValue<number>(db)`
  SELECT count(*)::int AS count FROM slotsync.records AS r
  WHERE ${IS_FORMER} AND stream = coalesce(${stream ?? null}, stream)`;

export const listOtherFormerStreams = (db: Queries, streams: readonly string[]) => queryColumn<string>(db)`
  SELECT DISTINCT stream FROM slotsync.records AS r
  WHERE ${IS_FORMER} AND NOT stream = ${anyOf(streams)} ORDER BY stream`;

/** Returns former objects of these keys, including retired objects, with the record that keeps each object. */
export async function listFormerObjects(db: Queries, stream: string, keys: readonly string[]) {
  if (keys.length === 0) return [];
  return query<RecordKey & { externalId: string; formerKey: string; isUndecided: boolean }>(db)`
    SELECT stream, local_key AS "localKey", external_id AS "externalId", former_key AS "formerKey",
      ${IS_FORMER} AS "isUndecided"
    FROM slotsync.records AS r WHERE stream = ${stream} AND former_key = ${anyOf(keys)} ORDER BY external_id`;
}
