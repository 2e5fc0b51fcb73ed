// The life of a reconcile run: one at a time, worked by the process that started it. It only reads at both sides, so one
// that was interrupted is not resumed: its row is closed, and the next one reads again.
import { sql } from 'drizzle-orm';
import postgres from 'postgres';
import { asStateError, queryState, type Queries, type State } from '../database.js';
import { runs, type RunRange } from '../schema.js';

const LOCK = 'slotsync reconcile';

/** What such a run covers, among the names of streams; no stream can be called so. */
export const RESERVATIONS = '#reservations';

/**
 * Runs while holding the lock of all reconciling; undefined when another process holds it. The lock lies in a
 * connection of its own and ends with it, however the process ends.
 */
export async function whileReconcilingAlone<T>(
  state: State,
  run: () => Promise<T>,
): Promise<{ result: T } | undefined> {
  const client = postgres(state.url, {
    max: 1,
    connect_timeout: 10,
    idle_timeout: 0,
    max_lifetime: null,
    onnotice: () => undefined,
    connection: { application_name: 'slotsync reconcile' },
  });
  try {
    const [row] = await client<{ taken: boolean }[]>`
      SELECT pg_try_advisory_lock(hashtextextended(${LOCK}, 0)) AS taken`.catch((error: unknown) => {
      throw asStateError(error);
    });
    return row?.taken ? { result: await run() } : undefined;
  } finally {
    await client.end({ timeout: 1 });
  }
}

/** Starts a reconcile run, under the lock: whatever is unfinished was interrupted. Returns its id. */
export async function startReconciliation(db: Queries, range: RunRange | undefined): Promise<number> {
  return queryState(async () => {
    await db.execute(sql`
      UPDATE slotsync.runs SET status = 'failed', finished_at = now(), error_code = 'interrupted',
        error_message = 'the process that worked it ended'
      WHERE kind = 'reconcile' AND finished_at IS NULL`);
    const [run] = await db
      .insert(runs)
      .values({
        kind: 'reconcile',
        lane: 'sync',
        streams: [RESERVATIONS],
        range: range ?? null,
        status: 'running',
        startedAt: sql`now()`,
      })
      .returning({ id: runs.id });
    if (!run) throw new Error('the run was not written');
    return run.id;
  });
}

/** Ends a reconcile run, unless somebody has ended it meanwhile. */
export async function endReconciliation(
  db: Queries,
  id: number,
  error?: { code: string; message: string },
): Promise<void> {
  await queryState(() =>
    db.execute(sql`
      UPDATE slotsync.runs SET status = ${error ? 'failed' : 'succeeded'}, finished_at = now(),
        error_code = ${error?.code ?? null}, error_message = ${error?.message ?? null}
      WHERE id = ${id}::bigint AND finished_at IS NULL`),
  );
}

/** Takes back a run that found nothing to look at: every few minutes there would be one. */
export async function dropReconciliation(db: Queries, id: number): Promise<void> {
  await queryState(() => db.execute(sql`DELETE FROM slotsync.runs WHERE id = ${id}::bigint`));
}

/** Up to when changes there were read completely, in Unix seconds, and how many seconds ago that was noted. */
export async function readReservationsWatermark(
  db: Queries,
): Promise<{ readUpTo: number; ageSeconds: number } | undefined> {
  const [row] = await queryState(() =>
    db.execute<{ cursor: string; ageSeconds: number }>(sql`
      SELECT cursor, extract(epoch FROM now() - moved_at)::float8 AS "ageSeconds"
      FROM slotsync.watermarks WHERE stream = ${RESERVATIONS}`),
  );
  return row && { readUpTo: Number(row.cursor), ageSeconds: row.ageSeconds };
}

/** Notes that changes there were read completely up to this second. */
export async function moveReservationsWatermark(db: Queries, readUpTo: number): Promise<void> {
  await queryState(() =>
    db.execute(sql`
      INSERT INTO slotsync.watermarks AS w (stream, cursor, local_key, moved_at)
      VALUES (${RESERVATIONS}, ${String(readUpTo)}, '', now())
      ON CONFLICT (stream) DO UPDATE SET cursor = excluded.cursor, moved_at = now()`),
  );
}
