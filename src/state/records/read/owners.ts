// Records that own an object: what was accepted of it last, and whether anything may have been sent since.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../../../text/sql-text.js';
import { anyOf, query, type Queries } from '../../database.js';
import type { RecordStatus } from '../../schema.js';
import { IS_FORMER, MAY_BE_AT_SERVICE } from '../record-state.js';
import type { RecordKey } from '../outcome-types.js';

/** Hashes as text. */
export interface OwnerRecord extends RecordKey {
  externalId: string;
  destinationId: string | null;
  status: RecordStatus;
  sourceHash: string | null;
  objectHash: string | null;
  acceptedFields: string | null;
  /** It keeps an object that no row has since the external id of a record changed: the key of that record. */
  formerKey: string | null;
  /** The same, and no operator has decided about the object. */
  isFormer: boolean;
  /** The service may hold its object, or is about to: a batch may be writing it. */
  mayBeAtService: boolean;
  /** No batch is writing it, nothing about it is in doubt, and no late write is waited for. */
  isSettled: boolean;
  /** Seconds since anything about it was written. */
  quietSeconds: number;
  /** When that was, by the clock of the database: seconds since 1970. */
  writtenSeconds: number;
  /** The same as text at full precision. */
  writtenAt: string;
}

/** Columns of a row of `records` (named r). */
const OWNER = sql`r.stream, r.local_key AS "localKey", r.external_id AS "externalId",
  r.destination_id AS "destinationId", r.status, r.source_hash::text AS "sourceHash",
  r.object_hash AS "objectHash", r.accepted_fields AS "acceptedFields", r.former_key AS "formerKey", ${IS_FORMER} AS "isFormer", ${MAY_BE_AT_SERVICE} AS "mayBeAtService",
  r.claimed_by IS NULL AND NOT r.in_doubt AND r.check_after IS NULL AS "isSettled",
  extract(epoch FROM clock_timestamp() - r.updated_at)::float8 AS "quietSeconds",
  extract(epoch FROM r.updated_at)::float8 AS "writtenSeconds",
  r.updated_at::text AS "writtenAt"`;

/** The record that owns each of these objects, by external id. */
export async function readOwners(db: Queries, externalIds: readonly string[]) {
  if (externalIds.length === 0) return new Map<string, OwnerRecord>();
  const rows = await query<OwnerRecord>(db)`
    SELECT ${OWNER} FROM slotsync.records AS r WHERE r.external_id = ${anyOf([...new Set(externalIds)])}`;
  return new Map(rows.map((row) => [row.externalId, row]));
}

/** The records of these keys that have an external id. */
export async function readOwnersByKey(db: Queries, stream: string, keys: readonly string[]) {
  return readByKey(db, sql`r.stream = ${stream} AND r.local_key = ${anyOf(keys)}`, keys.length);
}

/** The records of a stream that have an external id, in the order of their keys: those after `after`, at most `most`. */
export async function listOwners(db: Queries, stream: string, after: string | undefined, most: number) {
  const isAfter = after === undefined ? sql`true` : sql`r.local_key > ${after}`;
  return readByKey(db, sql`r.stream = ${stream} AND ${isAfter}`, most);
}

/** So many records of a stream whose objects are to be as they were accepted last, chosen at random. */
export async function sampleOwners(db: Queries, stream: string, count: number): Promise<OwnerRecord[]> {
  return query<OwnerRecord>(db)`
    SELECT ${OWNER} FROM slotsync.records AS r
    WHERE r.stream = ${stream} AND r.external_id IS NOT NULL AND r.status = 'synced'
    ORDER BY random() LIMIT ${count}`;
}

/** Records read for one number at most. Without a limit PostgreSQL expects hundreds, and compiles the statement (JIT) for 0.1 s. */
const MOST_OWNERS = 10;

/**
 * The records whose objects have these numbers at the service, or may have. Each number is looked up in the index; more than ten
 * records of one number are not read.
 */
export async function readOwnersByNumber(db: Queries, numbers: readonly string[]): Promise<OwnerRecord[]> {
  if (numbers.length === 0) return [];
  return query<OwnerRecord>(db)`
    SELECT ${OWNER} FROM unnest(${arrayLiteral(numbers)}::text[]) AS number CROSS JOIN LATERAL (
      SELECT * FROM slotsync.records AS r WHERE r.destination_id = number AND r.external_id IS NOT NULL AND ${MAY_BE_AT_SERVICE}
      LIMIT ${MOST_OWNERS}) AS r`;
}

/** Keys of the records of a stream whose object has this number at the service. */
export async function listKeysByNumber(
  db: Queries,
  stream: string,
  destinationId: string,
): Promise<string[]> {
  const rows = await query<{ localKey: string }>(db)`
    SELECT local_key AS "localKey" FROM slotsync.records
    WHERE stream = ${stream} AND destination_id = ${destinationId} ORDER BY object_hash IS NULL, local_key`;
  return rows.map(({ localKey }) => localKey);
}

async function readByKey(db: Queries, condition: SQL, most: number): Promise<OwnerRecord[]> {
  return query<OwnerRecord>(db)`
    SELECT ${OWNER} FROM slotsync.records AS r
    WHERE ${condition} AND r.external_id IS NOT NULL ORDER BY r.local_key LIMIT ${most}`;
}
