// The inbox: keys that may differ now. Rows come from everywhere and are only added; a run takes them, and they go when
// it has ended.
import { sql } from 'drizzle-orm';
import postgres from 'postgres';
import { anyOf, queryState, type Queries, type State } from '../database.js';

/** Whoever adds to the inbox notifies here, in the same transaction. Nobody has to: workers look every second too. */
export const CHANGES_CHANNEL = 'slotsync_changes';

/** One process takes at a time. */
const TAKE_LOCK = 'slotsync inbox';
/** Keys a run takes, and rows it looks through for them, oldest first. */
const KEYS_AT_ONCE = 1000;
const ROWS_LOOKED_AT = 20_000;
/** Unfinished incremental runs: beyond them changes wait, and collect into larger runs. */
const RUNS_AT_ONCE = 4;

/** A run over what was taken; nothing to take, or as much under way as may be; another process is taking just now. */
export type TakenChanges = { runId: number } | 'nothing' | 'busy';

/**
 * Starts an incremental run over the oldest keys that wait, of these streams. A key that another run looks at just now
 * stays: whoever changed it meanwhile is heard once more when that run has ended. The run is to be queued.
 */
export async function takeChanges(db: State['db'], streams: readonly string[]): Promise<TakenChanges> {
  return queryState(() =>
    db.transaction(async (tx) => {
      const [lock] = await tx.execute<{ taken: boolean }>(
        sql`SELECT pg_try_advisory_xact_lock(hashtextextended(${TAKE_LOCK}, 0)) AS taken`,
      );
      if (!lock?.taken) return 'busy';
      const [open] = await tx.execute<{ runs: number }>(sql`
        SELECT count(*)::int AS runs FROM slotsync.runs
        WHERE finished_at IS NULL AND kind = 'incremental' AND paused_at IS NULL`);
      if ((open?.runs ?? 0) >= RUNS_AT_ONCE) return 'nothing';
      // One statement, one snapshot: a row that is committed later than this stays for the next run, also when its key
      // is taken here, since the mirror may be read before that row's change is there.
      const [run] = await tx.execute<{ id: number }>(sql`
        WITH in_flight AS MATERIALIZED (
          SELECT DISTINCT stream, local_key FROM slotsync.changes WHERE run_id IS NOT NULL
        ), waiting AS MATERIALIZED (
          SELECT c.id, c.stream, c.local_key FROM slotsync.changes AS c
          WHERE c.run_id IS NULL AND (c.not_before IS NULL OR c.not_before <= now())
            AND c.stream = ${anyOf(streams)}
            AND NOT EXISTS (SELECT FROM in_flight AS f WHERE f.stream = c.stream AND f.local_key = c.local_key)
          ORDER BY c.id LIMIT ${ROWS_LOOKED_AT}
        ), chosen AS MATERIALIZED (
          SELECT stream, local_key FROM waiting GROUP BY stream, local_key ORDER BY min(id) LIMIT ${KEYS_AT_ONCE}
        ), run AS (
          INSERT INTO slotsync.runs (kind, lane, streams, status)
          SELECT 'incremental', 'incremental', array_agg(DISTINCT stream), 'planning' FROM chosen HAVING count(*) > 0
          RETURNING id
        ), taken AS (
          UPDATE slotsync.changes AS c SET run_id = run.id FROM run, chosen
          WHERE c.stream = chosen.stream AND c.local_key = chosen.local_key AND c.run_id IS NULL
        )
        SELECT id::float8 AS id FROM run`);
      return run ? { runId: run.id } : 'nothing';
    }),
  );
}

/** Puts keys of a stream into the inbox and wakes the workers. Returns how many there were. */
export async function addChanges(db: Queries, stream: string, keys: readonly string[]): Promise<number> {
  if (keys.length === 0) return 0;
  // The notification is part of the statement, so that workers hear of it when the rows are there.
  const [row] = await queryState(() =>
    db.execute<{ added: number }>(sql`
      WITH added AS (
        INSERT INTO slotsync.changes (stream, local_key)
        SELECT ${stream}, jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb) RETURNING 1)
      SELECT count(*)::int AS added, pg_notify(${CHANGES_CHANNEL}, '') FROM added`),
  );
  return row?.added ?? 0;
}

/** The keys of a stream that a run has taken, each once. */
export async function readTakenKeys(db: Queries, runId: number, stream: string): Promise<string[]> {
  const rows = await queryState(() =>
    db.execute<{ localKey: string }>(sql`
      SELECT DISTINCT local_key AS "localKey" FROM slotsync.changes
      WHERE run_id = ${runId}::bigint AND stream = ${stream}`),
  );
  return rows.map(({ localKey }) => localKey);
}

/**
 * What a run that has ended leaves of the inbox: nothing, or what it could not look at, for later: half as long again as
 * it has waited, a minute at least and ten at most. Call it in the transaction that ends the run; its commit wakes the workers, since keys may have waited for this run.
 */
export async function closeTaken(tx: Queries, runId: number, ended: 'failed' | 'worked'): Promise<void> {
  await tx.execute(sql`
    UPDATE slotsync.changes AS c SET run_id = NULL,
      not_before = now() + least(interval '10 minutes', greatest(interval '1 minute', (now() - c.requested_at) / 2))
    WHERE c.run_id = ${runId}::bigint AND (${ended === 'failed'} OR EXISTS (
      SELECT FROM slotsync.batches AS b
      WHERE b.run_id = ${runId}::bigint AND b.state = 'failed' AND b.stream = c.stream
        AND (cardinality(b.keys) = 0 OR c.local_key = ANY (b.keys))))`);
  await tx.execute(sql`DELETE FROM slotsync.changes WHERE run_id = ${runId}::bigint`);
  await tx.execute(sql`SELECT pg_notify(${CHANGES_CHANNEL}, '')`);
}

/** What of one stream is in the inbox. */
export interface InboxOfStream {
  stream: string;
  /** Keys that wait, and of them those that a run could not look at and that are tried again later. */
  waiting: number;
  later: number;
  /** Keys that a run is looking at. */
  inFlight: number;
  /** Since the oldest of all these was asked for, in seconds. */
  oldestSeconds: number;
}

export async function readInbox(db: Queries): Promise<InboxOfStream[]> {
  const rows = await queryState(() =>
    db.execute<Record<string, never>>(sql`
      SELECT stream,
        count(DISTINCT local_key) FILTER (WHERE run_id IS NULL)::int AS waiting,
        count(DISTINCT local_key) FILTER (WHERE run_id IS NULL AND not_before > now())::int AS later,
        count(DISTINCT local_key) FILTER (WHERE run_id IS NOT NULL)::int AS "inFlight",
        greatest(0, extract(epoch FROM now() - min(requested_at)))::float8 AS "oldestSeconds"
      FROM slotsync.changes GROUP BY stream ORDER BY stream`),
  );
  return rows as unknown as InboxOfStream[];
}

/**
 * Calls back when something was added to the inbox, and whenever it begins to listen: what came while it did not was
 * not heard. A connection of its own, which is made again when it is lost.
 */
export function listenForChanges(url: string, onChange: () => void) {
  const client = postgres(url, {
    max: 1,
    connect_timeout: 10,
    onnotice: () => undefined,
    connection: { application_name: 'slotsync inbox' },
  });
  // The driver goes on trying by itself, also after a first failure; looking every second bridges the gap.
  client.listen(CHANGES_CHANNEL, onChange, onChange).catch(() => undefined);
  return { close: () => client.end({ timeout: 1 }) };
}
