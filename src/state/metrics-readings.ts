// What metrics read from the state: the backlog, the latest runs, the age of the last success. With a time limit, so that
// a scrape does not keep one of the state's few connections from the work.
import type { State } from './database.js';

export interface StateReading {
  /** Runs to be planned and batches in the queue or in work, and since when the oldest was requested or planned. */
  backlog: { lane: string; jobs: number; oldestSeconds: number }[];
  /** Changes that no run has taken, and how long the oldest of them has waited. */
  inbox: { changes: number; oldestSeconds: number };
  /** The latest finished run of each kind and status, from its request to its end. */
  runs: { kind: string; status: string; seconds: number }[];
  /** Per stream, how long ago a run that covered it succeeded; null: none of those looked at. */
  successes: { stream: string; ageSeconds: number | null }[];
  /** Objects that drift. */
  drift: { stream: string; kind: string; objects: number }[];
  /** Per stream, how long ago its last whole verify began; null: never. */
  verified: { stream: string; ageSeconds: number | null }[];
}

export type StateReadings = ReturnType<typeof createStateReadings>;

/** Runs looked back over: a week of one each minute. */
const RUNS_LOOKED_AT = 10_000;

/** The state is opened by the first reading. */
export function createStateReadings({
  state,
  timeoutMs,
}: {
  state: () => Promise<State>;
  timeoutMs: number;
}) {
  const client = async () => (await state()).client;
  return {
    /** Resolves when the database answers. */
    async ping(): Promise<void> {
      const sql = await client();
      await sql`SELECT 1`;
    },

    /** Everything in one snapshot; `streams`: those whose last success is wanted. */
    async read(streams: readonly string[]): Promise<StateReading> {
      const sql = await client();
      return sql.begin('read only', async (tx) => {
        await tx.unsafe(`SET LOCAL statement_timeout = ${timeoutMs}`);
        const backlog = await tx<StateReading['backlog']>`
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
        const [inbox] = await tx<StateReading['inbox'][]>`
          SELECT count(*)::int AS changes,
            coalesce(greatest(0, extract(epoch FROM now() - min(requested_at))), 0)::float8 AS "oldestSeconds"
          FROM slotsync.changes WHERE run_id IS NULL`;
        const runs = await tx<StateReading['runs']>`
          SELECT DISTINCT ON (kind, status) kind, status,
            greatest(0, extract(epoch FROM finished_at - requested_at))::float8 AS seconds
          FROM slotsync.runs
          WHERE finished_at IS NOT NULL AND id > (SELECT max(id) FROM slotsync.runs) - ${RUNS_LOOKED_AT}::bigint
          ORDER BY kind, status, id DESC`;
        // A dead record of one stream does not cancel the success of the others.
        const successes = await tx<StateReading['successes']>`
          SELECT stream, (
            SELECT greatest(0, extract(epoch FROM now() - finished_at))::float8 FROM slotsync.runs
            WHERE id > (SELECT max(id) FROM slotsync.runs) - ${RUNS_LOOKED_AT}::bigint
              AND finished_at IS NOT NULL AND stream = ANY(streams) AND kind IN ('incremental', 'sync', 'backfill')
              AND (status = 'succeeded' OR status IN ('partial', 'held') AND plan ? stream AND NOT holds ? stream
                AND coalesce((counts->stream->>'failed')::int, 0) + coalesce((counts->stream->>'dead')::int, 0) = 0)
            ORDER BY id DESC LIMIT 1
          ) AS "ageSeconds"
          FROM jsonb_array_elements_text(${JSON.stringify(streams)}::text::jsonb) AS named(stream)`;
        const drift = await tx<StateReading['drift']>`
          SELECT stream, kind, count(*)::int AS objects FROM slotsync.drift GROUP BY stream, kind`;
        const verified = await tx<StateReading['verified']>`
          SELECT named.stream, CASE WHEN verified_at IS NOT NULL THEN greatest(0, extract(epoch FROM now() - verified_at)) END::float8 AS "ageSeconds"
          FROM jsonb_array_elements_text(${JSON.stringify(streams)}::text::jsonb) AS named(stream)
          LEFT JOIN slotsync.verifications AS v ON v.stream = named.stream`;
        const noInbox = { changes: 0, oldestSeconds: 0 };
        return { backlog, inbox: inbox ?? noInbox, runs, successes, drift, verified };
      });
    },
  };
}
