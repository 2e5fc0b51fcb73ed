// A run begins as a row. No two unfinished runs cover one stream, except incremental runs, which cover single keys that
// batches claim, and runs that only read. A run belongs to the configuration that it was started with: only processes that have it
// plan the run and map for it.
import { and, isNull, ne, sql } from 'drizzle-orm';
import type { Fingerprints } from '../../streams/fingerprints.js';
import { query, type Queries } from '../database.js';
import { runs, type RunKind, type RunRange, type StartedBy } from '../schema.js';
import { noteAttempted } from '../streams.js';
import { isWhole, ONLY_READS, selectRuns, type Run } from './read-runs.js';
import { arrayLiteral } from '../../text/sql-text.js';
import { takeLock, type Waiting } from '../locks.js';
import { ALIVE_SECONDS } from '../processes.js';
import { replaceRun } from './end-run.js';

export interface RunRequest {
  kind: RunKind;
  lane: string;
  startedBy: StartedBy;
  streams: readonly string[];
  range?: RunRange | undefined;
  /** The fingerprints of the configuration that it belongs to. A run that only reads is worked by who started it, and needs none. */
  fingerprints?: Fingerprints | undefined;
}

/** Writes the row of a run, without looking at others: as to be planned, or as under way already. */
export async function insertRun(
  tx: Queries,
  { streams, range, fingerprints, ...request }: RunRequest,
  status: 'planning' | 'running' = 'planning',
): Promise<Run> {
  const startedAt = status === 'running' ? sql`now()` : null;
  const row = {
    ...request,
    streams: [...streams],
    range: range ?? null,
    status,
    startedAt,
    configuration: fingerprints?.configuration ?? null,
    fingerprints: fingerprints
      ? Object.fromEntries(streams.map((name) => [name, fingerprints.streams[name] ?? '']))
      : null,
  };
  const [run] = await tx.insert(runs).values(row).returning();
  if (!run) throw new Error('the run was not written');
  if (isWhole(run)) await noteAttempted(tx, streams);
  return run;
}

/** Starts a run, unless an unfinished one covers any of its streams: then that one is the answer. */
export async function startRun(
  db: Queries,
  request: RunRequest,
  waiting?: Waiting,
): Promise<{ run: Run; started: boolean }> {
  return db.transaction(async (tx) => {
    const [running] = await lockUnfinished(tx, request, waiting);
    if (running) return { run: running, started: false };
    return { run: await insertRun(tx, request), started: true };
  });
}

/**
 * Starts a run over those of its streams that no unfinished run covers, if there are any. `busy`: the runs that cover
 * the others, with the streams each of them covers.
 */
export async function startFreeRun(db: Queries, request: RunRequest) {
  return db.transaction(async (tx) => {
    const unfinished = await lockUnfinished(tx, request);
    const covered = new Set(unfinished.flatMap((run) => run.streams));
    const free = request.streams.filter((stream) => !covered.has(stream));
    return {
      run: free.length === 0 ? undefined : await insertRun(tx, { ...request, streams: free }),
      busy: unfinished.map((run) => ({
        run,
        streams: request.streams.filter((stream) => run.streams.includes(stream)),
      })),
    };
  });
}

/**
 * The unfinished runs that cover any of these streams; no other run starts until the transaction ends. One that nobody may
 * work any more is replaced: it ends here.
 */
async function lockUnfinished(
  tx: Queries,
  { streams, fingerprints }: RunRequest,
  waiting?: Waiting,
): Promise<Run[]> {
  await takeLock(tx, 'run_start', waiting);
  const isUnfinished = and(isNull(runs.finishedAt), ne(runs.kind, 'incremental'));
  const covers = sql`${runs.streams} && ${arrayLiteral(streams)}::text[] AND NOT ${ONLY_READS}`;
  const select = () => selectRuns(tx).where(and(isUnfinished, covers)).orderBy(runs.id);
  const [left, unfinished] = await Promise.all([
    fingerprints ? endLeftRuns(tx, fingerprints, { streams }) : 0,
    select(),
  ]);
  return left === 0 ? unfinished : select();
}

/** Whether a run `r` is unfinished, and no process at work has its configuration. */
const IS_LEFT = sql`(r.finished_at IS NULL AND NOT EXISTS (SELECT FROM slotsync.processes AS p
  WHERE p.configuration = r.configuration AND p.seen_at > now() - make_interval(secs => ${ALIVE_SECONDS})))`;

/** Whether the streams of a run `r` are declared as here. A run without fingerprints was started by a former version. */
const isDeclared = ({ streams }: Fingerprints) =>
  sql`coalesce(r.fingerprints <@ ${JSON.stringify(streams)}::jsonb, true)`;

/** Makes runs that are left, and whose streams are declared alike in this configuration, runs of this configuration. */
export async function adoptRuns(db: Queries, fingerprints: Fingerprints): Promise<void> {
  await query(db)`
    UPDATE slotsync.runs AS r SET configuration = ${fingerprints.configuration}
    WHERE ${IS_LEFT} AND ${isDeclared(fingerprints)} AND NOT ${ONLY_READS}
      AND configuration IS DISTINCT FROM ${fingerprints.configuration}`;
}

/**
 * Ends runs that are left and belong to another configuration than this: those that cover one of the streams, or take their
 * keys from the inbox. What they have not sent is planned by the next run, or goes back to the inbox. A paused run stays.
 * Returns how many there were.
 */
export async function endLeftRuns(
  db: Queries,
  fingerprints: Fingerprints,
  which: { streams: readonly string[] } | 'incremental',
): Promise<number> {
  const isMeant =
    which === 'incremental'
      ? sql`kind = 'incremental'`
      : sql`kind <> 'incremental' AND streams && ${arrayLiteral(which.streams)}::text[]`;
  const left = await query<{ id: number }>(db)`
    SELECT id::float8 AS id FROM slotsync.runs AS r
    WHERE ${IS_LEFT} AND NOT ${isDeclared(fingerprints)} AND paused_at IS NULL AND ${isMeant}`;
  for (const { id } of left) await replaceRun(db, id);
  return left.length;
}
