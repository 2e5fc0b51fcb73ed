// Detects a restored state or mirror. A restored state knows nothing about writes since its backup, and a restored
// mirror may hold older data. Each process also detects the loss of its own row (`isPutBack` in processes.ts).
import { sql } from 'drizzle-orm';
import {
  readDatabaseFacts,
  recognize,
  type DatabaseFacts,
  type Recognition,
} from '../connections/database-facts.js';
import { arrayLiteral } from '../text/sql-text.js';
import { query, queryCount, queryFirst, queryTogether, type Queries, type RowOf } from './database.js';
import { FIELDS_IN_DOUBT } from './records/record-state.js';
import { markDue } from './streams.js';
import { columnList, databases } from './schema.js';

type DatabaseName = (typeof databases.$inferSelect)['name'];

export type NotedDatabase = RowOf<typeof databases>;

/** Time since when the state counts as restored. `since` is null if no process has stored it yet. */
export interface Restored {
  since: Date | null;
  why: string;
}

export function readStateFacts(db: Queries): Promise<DatabaseFacts> {
  const run = async <T>(on: Queries, statement: string) =>
    (await on.execute(sql.raw(statement))) as unknown as T[];
  // A savepoint, because a failed statement must not abort the caller's transaction.
  const ask = <T>(statement: string) =>
    'rollback' in db ? db.transaction((savepoint) => run<T>(savepoint, statement)) : run<T>(db, statement);
  return readDatabaseFacts(ask, 'slotsync.destination');
}

/**
 * Compares a database with its stored facts, and stores the current facts. If they differ, the stored facts and the
 * database are read again under a lock, because another process may have stored newer facts meanwhile.
 */
export async function noteDatabase(
  db: Queries,
  name: DatabaseName,
  read: (db: Queries) => Promise<DatabaseFacts>,
): Promise<Recognition> {
  const [before, seenAtFirst] = await Promise.all([readDatabase(db, name), read(db)]);
  if (before && recognize(before, seenAtFirst).is === 'same') {
    await db.execute(notingSeen(name, seenAtFirst));
    return { is: 'same' };
  }
  return db.transaction(async (tx) => {
    const first = sql`
      INSERT INTO slotsync.databases (name, database_oid) VALUES (${name}, ${seenAtFirst.databaseOid})
      ON CONFLICT DO NOTHING`;
    const [[noted]] = (await queryTogether(tx, [first, sql`${selectDatabase(name)} FOR UPDATE`])) as [
      NotedDatabase[],
    ];
    if (!noted) throw new Error(`the row of the ${name} is missing in slotsync.databases`);
    const seen = await read(tx);
    const recognition = recognize(noted, seen);
    await tx.execute(notingSeen(name, seen));
    if (recognition.is === 'other') {
      await query(tx)`
        UPDATE slotsync.databases SET timeline = ${seen.timeline}::int, wal_position = ${seen.walPosition}::float8::bigint
        WHERE name = ${name}`;
      await markRestored(tx, name, recognition.why);
    }
    return recognition;
  });
}

const notingSeen = (name: DatabaseName, seen: DatabaseFacts) => sql`
  UPDATE slotsync.databases SET system_id = coalesce(${seen.systemId}, system_id), database_oid = ${seen.databaseOid},
    table_oid = coalesce(${seen.tableOid}, table_oid), seen_at = clock_timestamp(),
    timeline = greatest(timeline, ${seen.timeline}::int),
    wal_position = greatest(wal_position, ${seen.walPosition}::float8::bigint) WHERE name = ${name}`;

/**
 * Marks a database as restored. For the state, accepted field values are dropped, so that a value sent after the backup
 * is not mistaken for a value that a person entered.
 */
export async function markRestored(db: Queries, name: DatabaseName, why: string): Promise<void> {
  await query(db)`
    UPDATE slotsync.databases SET restored_at = clock_timestamp(), restored_why = ${why}
    WHERE name = ${name}`;
  if (name === 'state')
    await query(db)`
      UPDATE slotsync.records AS r SET accepted_fields = ${FIELDS_IN_DOUBT} WHERE r.accepted_fields IS NOT NULL`;
}

export const readDatabase = (db: Queries, name: DatabaseName) =>
  queryFirst<NotedDatabase>(db)`${selectDatabase(name)}`;

const selectDatabase = (name: DatabaseName) => sql`
  SELECT ${columnList(databases)} FROM slotsync.databases WHERE name = ${name}`;

/**
 * Returns details if the state was restored and not verified whole since. Also detects a restore that no process has
 * stored yet.
 */
export async function readRestored(db: Queries): Promise<Restored | undefined> {
  const noted = await readDatabase(db, 'state');
  if (!noted) return undefined;
  if (noted.restoredAt) return { since: noted.restoredAt, why: noted.restoredWhy ?? '' };
  const recognition = recognize(noted, await readStateFacts(db));
  return recognition.is === 'other' ? { since: null, why: recognition.why } : undefined;
}

/**
 * Ends the mark of a restored state when all streams were verified whole since. The service's content is then known
 * again, and the streams become due.
 */
export async function settleRestored(db: Queries, streams: readonly string[]): Promise<void> {
  const settled = await queryCount(db)`
    UPDATE slotsync.databases AS d SET restored_at = NULL, restored_why = NULL
    WHERE d.name = 'state' AND NOT EXISTS (
      SELECT FROM unnest(${arrayLiteral(streams)}::text[]) AS s(stream)
      LEFT JOIN slotsync.verifications AS v USING (stream)
      WHERE v.verified_at IS NULL OR v.verified_at < d.restored_at) AND d.restored_at IS NOT NULL`;
  if (settled > 0) await markDue(db, streams, 'verified');
}
