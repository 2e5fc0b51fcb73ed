// Readings of the state for metrics. With time limits, so that a scrape does not keep one of the state's few connections
// from the work. What counts a whole table is read apart, by savepoints: a table that is too large, or locked, takes
// nothing else away.
import { countBookings } from './bookings/read-reservations.js';
import { query, queryOne, type Queries, type State } from './database.js';
import { readInTime } from './read-in-time.js';
import { readBinding } from './destination-binding.js';
import { listProcesses } from './processes.js';
import { countRecords } from './records/read/count-records.js';
import { listRequestSizes } from './request-sizes.js';
import { readHolds } from './runs/holds.js';
import { listUnfinishedRuns } from './runs/read-runs.js';
import type { DriftKind, LimitedOperation, RecordStatus, RunKind, Verdict } from './schema.js';
import { isWhole } from './runs/last-success.js';

/** Times are ages in seconds, by the database's clock. */
export interface StateReading {
  /** Runs to be planned and batches in the queue or in work, and since when the oldest was requested or planned. */
  backlog: { lane: string; jobs: number; oldestSeconds: number }[];
  /** Changes that no run has taken, and how long the oldest of them has waited. */
  inbox: { changes: number; oldestSeconds: number };
  /** The latest finished run of each kind and status, from its request to its end. */
  runs: { kind: string; status: string; seconds: number }[];
  /** Runs that have not ended, by kind and status; `paused` is one too. */
  unfinished: { kind: string; status: string; runs: number; oldestSeconds: number }[];
  /** Per stream, how long ago a run that covered it succeeded; null: none of those looked at. */
  successes: { stream: string; ageSeconds: number | null }[];
  /** Objects that drift. */
  drift: { stream: string; kind: DriftKind; objects: number }[];
  /** Per stream, how long ago its last whole verify began; null: never. */
  verified: { stream: string; ageSeconds: number | null }[];
  /** Processes that work the queue. `stopped`: it sends nothing since then, and why. */
  processes: {
    command: string;
    host: string;
    pid: number;
    isAlive: boolean;
    stopped: { code: string; ageSeconds: number } | null;
  }[];
  /** How long ago a request ended, and ended with 2xx; null: none was noted. */
  service: { answeredSeconds: number | null; succeededSeconds: number | null };
  /** Objects in the next full request, by type. */
  requestSizes: { type: string; objects: number }[];
}

/** Counts that take a scan; null: it could not be read in time. */
export interface CountsReading {
  records: { stream: string; status: RecordStatus; count: number }[] | null;
  runs: {
    /** Records that wait for an operator. */
    held: { stream: string; operation: LimitedOperation; count: number }[];
    /** How long ago a run of each kind succeeded; for `sync`, one of all streams; null: never. */
    successes: { kind: RunKind; ageSeconds: number | null }[];
  } | null;
  bookings: { verdict: Verdict; count: number; problems: number }[] | null;
  /** Connections of all processes to the state's database, by their purpose. */
  connections: { duty: string; count: number }[] | null;
}

export type StateReadings = ReturnType<typeof createStateReadings>;

/** Runs looked back over: a week of one each minute. */
const RUNS_LOOKED_AT = 10_000;

/** The state is opened by the first reading. */
export function createStateReadings({
  state,
  timeoutMs,
  countsTimeoutMs = timeoutMs,
}: {
  state: () => Promise<State>;
  /** Limits of each statement, and of each that counts a table. */
  timeoutMs: number;
  countsTimeoutMs?: number;
}) {
  /** Reads in one snapshot, in which no statement takes longer. */
  async function inTime<T>(limitMs: number, read: (tx: Queries) => Promise<T>): Promise<T> {
    return readInTime(await state(), limitMs, read);
  }

  return {
    /** Resolves when the database answers. */
    async ping(): Promise<void> {
      const { client } = await state();
      await client`SELECT 1`;
    },

    /** Quick readings, in one snapshot; `streams`: those whose last success is wanted. */
    read: (streams: readonly string[]): Promise<StateReading> =>
      inTime(timeoutMs, async (tx) => {
        const { now } = await queryOne<{ now: Date }>(tx)`SELECT now() AS now`;
        const ageOf = (at: Date) => Math.max(0, (now.getTime() - at.getTime()) / 1000);
        const orNull = (at: Date | null | undefined) => (at ? ageOf(at) : null);
        const processes = (await listProcesses(tx)).map(
          ({ command, host, pid, isAlive, stoppedSince, errorCode }) => ({
            command,
            host,
            pid,
            isAlive,
            stopped: stoppedSince && { code: errorCode ?? '', ageSeconds: ageOf(stoppedSince) },
          }),
        );
        const bound = await readBinding({ db: tx });
        return {
          backlog: await readBacklog(tx),
          inbox: await readInboxAge(tx),
          runs: await readLatestRuns(tx),
          unfinished: countByKind(await listUnfinishedRuns(tx), ageOf),
          successes: await readSuccesses(tx, streams),
          drift: await readDrift(tx),
          verified: await readVerified(tx, streams),
          processes,
          service: {
            answeredSeconds: orNull(bound?.answeredAt),
            succeededSeconds: orNull(bound?.succeededAt),
          },
          requestSizes: (await listRequestSizes(tx)).map(({ type, objects }) => ({ type, objects })),
        };
      }),

    /** Counts of whole tables, each for itself; `streams`: those that a whole sync has. */
    count: (streams: readonly string[]): Promise<CountsReading> =>
      inTime(countsTimeoutMs, async (tx) => {
        const orNull = <T>(read: (part: Queries) => Promise<T>) => tx.transaction(read).catch(() => null);
        return {
          connections: await orNull(readConnections),
          runs: await orNull(async (part) => ({
            held: await readHolds(part),
            successes: await readSuccessesByKind(part, streams),
          })),
          bookings: await orNull(countBookings),
          records: await orNull(countRecords),
        };
      }),
  };
}

const readBacklog = (db: Queries) => query<StateReading['backlog'][number]>(db)`
  SELECT lane, count(*)::int AS jobs,
    greatest(0, extract(epoch FROM now() - min(since)))::float8 AS "oldestSeconds"
  FROM (
    SELECT lane, requested_at AS since FROM slotsync.runs
    WHERE finished_at IS NULL AND status = 'planning'
    UNION ALL
    SELECT r.lane, b.created_at FROM slotsync.runs AS r JOIN slotsync.batches AS b ON b.run_id = r.id
    WHERE r.finished_at IS NULL AND b.state = 'queued'
  ) AS jobs
  GROUP BY lane`;

const readInboxAge = (db: Queries) => queryOne<StateReading['inbox']>(db)`
  SELECT count(*)::int AS changes,
    coalesce(greatest(0, extract(epoch FROM now() - min(requested_at))), 0)::float8 AS "oldestSeconds"
  FROM slotsync.changes WHERE run_id IS NULL`;

const readLatestRuns = (db: Queries) => query<StateReading['runs'][number]>(db)`
  SELECT DISTINCT ON (kind, status) kind, status,
    greatest(0, extract(epoch FROM finished_at - requested_at))::float8 AS seconds
  FROM slotsync.runs
  WHERE finished_at IS NOT NULL AND id > (SELECT max(id) FROM slotsync.runs) - ${RUNS_LOOKED_AT}::bigint
  ORDER BY kind, status, id DESC`;

/** A dead record of one stream does not cancel the success of the others. */
const readSuccesses = (db: Queries, streams: readonly string[]) =>
  query<StateReading['successes'][number]>(db)`
  SELECT stream, (
    SELECT greatest(0, extract(epoch FROM now() - finished_at))::float8 FROM slotsync.runs
    WHERE id > (SELECT max(id) FROM slotsync.runs) - ${RUNS_LOOKED_AT}::bigint
      AND finished_at IS NOT NULL AND stream = ANY(streams) AND kind IN ('incremental', 'sync', 'backfill')
      AND (status = 'succeeded' OR status IN ('partial', 'held') AND plan ? stream
        AND NOT EXISTS (
          SELECT FROM slotsync.holds AS h WHERE h.run_id = runs.id AND h.stream = named.stream AND h.state <> 'rejected')
        AND coalesce((counts->stream->>'failed')::int, 0) + coalesce((counts->stream->>'dead')::int, 0) = 0)
    ORDER BY id DESC LIMIT 1
  ) AS "ageSeconds"
  FROM jsonb_array_elements_text(${JSON.stringify(streams)}::text::jsonb) AS named(stream)`;

/** The last success of a kind that seldom runs may be long ago: all runs are read. */
const readSuccessesByKind = (db: Queries, streams: readonly string[]) =>
  query<{ kind: RunKind; ageSeconds: number | null }>(db)`
  SELECT kind, extract(epoch FROM now() - max(finished_at)
    FILTER (WHERE status = 'succeeded' AND (kind <> 'sync' OR ${isWhole(streams)})))::float8 AS "ageSeconds"
  FROM slotsync.runs GROUP BY kind ORDER BY kind`;

const readDrift = (db: Queries) => query<StateReading['drift'][number]>(db)`
  SELECT stream, kind, count(*)::int AS objects FROM slotsync.drift GROUP BY stream, kind`;

const readVerified = (db: Queries, streams: readonly string[]) =>
  query<StateReading['verified'][number]>(db)`
  SELECT named.stream, CASE WHEN verified_at IS NOT NULL THEN greatest(0, extract(epoch FROM now() - verified_at)) END::float8 AS "ageSeconds"
  FROM jsonb_array_elements_text(${JSON.stringify(streams)}::text::jsonb) AS named(stream)
  LEFT JOIN slotsync.verifications AS v ON v.stream = named.stream`;

/** A role that is not a superuser sees its own connections alone, which all processes of a state have. */
const readConnections = (db: Queries) => query<{ duty: string; count: number }>(db)`
  SELECT substr(application_name, 10) AS duty, count(*)::int AS count FROM pg_stat_activity
  WHERE application_name LIKE 'slotsync %' AND datname = current_database() GROUP BY duty ORDER BY duty`;

function countByKind(
  runs: Awaited<ReturnType<typeof listUnfinishedRuns>>,
  ageOf: (at: Date) => number,
): StateReading['unfinished'] {
  const counted = new Map<string, StateReading['unfinished'][number]>();
  for (const { kind, status: own, pausedAt, requestedAt } of runs) {
    const status = pausedAt ? 'paused' : own;
    const name = `${kind} ${status}`;
    const { runs: before, oldestSeconds } = counted.get(name) ?? { runs: 0, oldestSeconds: 0 };
    const oldest = Math.max(oldestSeconds, ageOf(requestedAt));
    counted.set(name, { kind, status, runs: before + 1, oldestSeconds: oldest });
  }
  return [...counted.values()];
}
