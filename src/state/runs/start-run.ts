// A run begins as a row. No two unfinished runs cover the same stream, except incremental runs, whose batches claim
// single keys, and runs that only read. Only processes with the configuration of a run may plan it and map rows for it.
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
  /** Fingerprints of the configuration that the run belongs to. Not needed for runs that only read. */
  fingerprints?: Fingerprints | undefined;
}

/** Inserts the row of a run without checking for other runs. `status` is `running` if the run needs no plan. */
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

/** Starts a run. If an unfinished run covers any of its streams, returns that run instead. */
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
 * Starts a run over the requested streams that no unfinished run covers, if there are any. `busy` lists the unfinished
 * runs, each with the requested streams that it covers.
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
 * Returns the unfinished runs that cover any of the streams. No other run can start until the transaction ends. Runs
 * that no process may work any more are ended.
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

/** SQL condition: the run `r` is unfinished, and no live process has its configuration. */
const IS_LEFT = sql`(r.finished_at IS NULL AND NOT EXISTS (SELECT FROM slotsync.processes AS p
  WHERE p.configuration = r.configuration AND p.seen_at > now() - make_interval(secs => ${ALIVE_SECONDS})))`;

/** SQL condition: this configuration declares the streams of the run `r` in the same way. True for very old runs. */
const isDeclared = ({ streams }: Fingerprints) =>
  sql`coalesce(r.fingerprints <@ ${JSON.stringify(streams)}::jsonb, true)`;

/**
 * Adopts runs whose configuration no live process has, if this configuration declares their streams in the same way.
 * Then processes with this configuration may work them.
 */
export async function adoptRuns(db: Queries, fingerprints: Fingerprints): Promise<void> {
  await query(db)`
    UPDATE slotsync.runs AS r SET configuration = ${fingerprints.configuration}
    WHERE ${IS_LEFT} AND ${isDeclared(fingerprints)} AND NOT ${ONLY_READS}
      AND configuration IS DISTINCT FROM ${fingerprints.configuration}`;
}

/**
 * Ends runs whose configuration no live process has, if they cover one of the streams, or if they are incremental. The
 * next run plans what they have not sent, or their keys return to the inbox. Paused runs stay. Returns the number of
 * ended runs.
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
