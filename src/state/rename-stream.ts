// Moves everything that the state has of a stream to another name, after the stream was renamed in the configuration.
import { getTableColumns, getTableName, is, sql } from 'drizzle-orm';
import { PgTable } from 'drizzle-orm/pg-core';
import { messageOf, SlotsyncError, UsageError } from '../errors/errors.js';
import { query, queryCount, queryOne, type Queries } from './database.js';
import { causeOf, takeLock, type Waiting } from './locks.js';
import { listProcesses } from './processes.js';
import * as schema from './schema.js';
import { markDue } from './streams.js';

export interface StreamNames {
  from: string;
  to: string;
}

/** Tables with rows of a stream. `removals` is excluded, because its hashes contain the old name. */
const OF_A_STREAM = (Object.values(schema) as unknown[]).filter(
  (table): table is PgTable =>
    is(table, PgTable) && 'stream' in getTableColumns(table) && table !== schema.removals,
);
/** Tables that may have rows of the new name before it has records. Rows of the old name replace those rows. */
const REPLACED = [
  schema.streams,
  schema.gates,
  schema.held,
  schema.sent,
  schema.drift,
  schema.verifications,
  schema.freshness,
];
/** Columns with lists of stream names (`LISTS`), and JSON columns with a key for each stream (`BY_STREAM`). */
const LISTS = [
  [schema.runs, 'streams'],
  [schema.freezes, 'streams'],
  [schema.freezes, 'except_streams'],
  [schema.schedules, 'streams'],
] as const;
const BY_STREAM = ['plan', 'counts', 'accepted', 'holds', 'fingerprints'];

/**
 * Moves everything of a stream to another name, and executes `statements` in the same transaction. Returns the number
 * of moved records. Throws UsageError, without a change, if the stream may not be renamed.
 */
export async function renameStream(
  tx: Queries,
  names: StreamNames,
  statements: readonly string[],
  waiting?: Waiting,
): Promise<number> {
  const { from, to } = names;
  await takeLock(tx, 'run_start', waiting);
  await takeLock(tx, 'inbox', waiting);
  await requireMovable(tx, names);
  for (const table of REPLACED) await query(tx)`DELETE FROM ${table} WHERE stream = ${to}`;
  let records = 0;
  for (const table of OF_A_STREAM) {
    const moved = await queryCount(tx)`UPDATE ${table} SET stream = ${to} WHERE stream = ${from}`;
    if (getTableName(table) === 'records') records = moved;
  }
  // `waits_for` contains names from `recordName`: JSON lists that begin with the stream.
  const [formerList, list] = [from, to].map((name) => `${JSON.stringify([name]).slice(0, -1)},`);
  await query(tx)`
    UPDATE slotsync.records SET waits_for = ${list} || substr(waits_for, length(${formerList}) + 1)
    WHERE starts_with(waits_for, ${formerList})`;
  for (const [table, name] of LISTS) {
    const column = sql.identifier(name);
    await query(tx)`
      UPDATE ${table} SET ${column} = array_replace(${column}, ${from}, ${to}) WHERE ${from} = ANY (${column})`;
  }
  for (const name of BY_STREAM) {
    const column = sql.identifier(name);
    await query(tx)`
      UPDATE slotsync.runs SET ${column} = ${column} - ${from}::text || jsonb_build_object(${to}::text, ${column}->${from})
      WHERE ${column} ? ${from}`;
  }
  // Changes since the stream was renamed in the configuration may have been lost.
  await markDue(tx, [to], 'new');
  for (const statement of statements) await tx.execute(sql.raw(statement)).catch(explainFault(names));
  return records;
}

async function requireMovable(tx: Queries, { from, to }: StreamNames): Promise<void> {
  const { isKnown, hasRecords, runId } = await queryOne<{
    isKnown: boolean;
    hasRecords: boolean;
    runId: number | null;
  }>(tx)`
    SELECT EXISTS (SELECT FROM slotsync.streams WHERE stream = ${from})
        OR EXISTS (SELECT FROM slotsync.records WHERE stream = ${from}) AS "isKnown",
      EXISTS (SELECT FROM slotsync.records WHERE stream = ${to})
        OR EXISTS (SELECT FROM slotsync.links WHERE stream = ${to}) AS "hasRecords",
      (SELECT min(id)::float8 FROM slotsync.runs
        WHERE finished_at IS NULL AND streams && ARRAY[${from}, ${to}]) AS "runId"`;
  if (!isKnown)
    throw new UsageError(`the state has no stream '${from}'`, {
      remedy: 'To list the streams: slotsync status',
    });
  if (hasRecords)
    throw new UsageError(`the stream '${to}' already has records, and two streams cannot be merged`, {
      remedy: 'To see its records: slotsync status',
    });
  if (runId !== null)
    throw new UsageError(`run ${runId} of '${from}' or '${to}' has not ended`, {
      remedy: `Wait until it has ended, or: slotsync cancel ${runId}`,
    });
  const former = (await listProcesses(tx)).find(
    ({ isAlive, fingerprints }) => isAlive && Object.hasOwn(fingerprints ?? {}, from),
  );
  if (former)
    throw new UsageError(
      `${former.command} on ${former.host}, process ${former.pid}, still has '${from}' in its configuration`,
      {
        remedy: 'Restart it, then run this command again. A killed process counts as running for 30 seconds.',
      },
    );
}

/** Adds a remedy to the error if the triggers could not be changed. */
const explainFault =
  ({ from, to }: StreamNames) =>
  (error: unknown): never => {
    const cause = causeOf(error) as { code?: unknown } | undefined;
    if (cause?.code === '55P03')
      throw new SlotsyncError('triggers_busy', `the table of '${to}' is locked by other writers`, {
        remedy: 'Nothing was renamed. Run this command again when the table is less busy.',
        cause: error,
      });
    if (cause?.code !== '42501') throw error;
    throw new UsageError(
      `nothing was renamed: the role of STATE_DATABASE_URL may not change the triggers: ${messageOf(cause)}`,
      {
        remedy: `Let the owner of the table drop the function of '${from}', run this again, and let the owner run what slotsync triggers print ${to} shows.`,
      },
    );
  };
