// Stores the number of requests of all processes in each second, and the last answer of the service.
import { sql } from 'drizzle-orm';
import { agoOf, query, queryOne, queryTogether, type Queries, type State } from './database.js';
import { codeOf } from '../errors/errors.js';
import { repeat } from '../process/lifecycle.js';
import type { Logger } from '../process/logger.js';
import type { RequestCounter } from '../process/meter.js';

interface Noted {
  seconds: readonly { second: Date; requests: number; throttled: number }[];
  latest: { answer: string; at: Date } | undefined;
  success: { at: Date } | undefined;
}

/** Seconds by which a correct clock may differ from the database's, including the time until the write. */
const CLOCKS_AGREE_SECONDS = 5;

/**
 * Adds request counts and the last answer, unless another process has stored a later answer. The counts have times of
 * the host's clock (`now`). If that clock is wrong, they are moved to the database's time. Writes the counts and the
 * answer in one transaction, because after a failure the caller retries the two together.
 */
export async function noteRequests(db: Queries, { seconds, latest, success }: Noted, now = Date.now()) {
  const rows = JSON.stringify(
    seconds.map(({ second, ...counts }) => ({ second: second.toISOString(), ...counts })),
  );
  const counted = sql`
    INSERT INTO slotsync.request_seconds AS s (second, requests, throttled)
    SELECT second + CASE WHEN abs(behind) < ${CLOCKS_AGREE_SECONDS} THEN interval '0' ELSE make_interval(secs => behind) END,
      requests, throttled
    FROM round(extract(epoch FROM now()) - ${now / 1000}::float8) AS behind,
      jsonb_to_recordset(${rows}::text::jsonb) AS n(second timestamptz, requests int, throttled int) ORDER BY second
    ON CONFLICT (second) DO UPDATE SET requests = s.requests + excluded.requests,
      throttled = s.throttled + excluded.throttled`;
  const ago = (time?: { at: Date }) => sql`${time ? agoOf(time.at, now) : null}::text::interval`;
  const answered = sql`
    UPDATE slotsync.destination SET
      answer = CASE WHEN coalesce(answered_at <= now() - ${ago(latest)}, true) THEN ${latest?.answer} ELSE answer END,
      answered_at = greatest(answered_at, now() - ${ago(latest)}),
      succeeded_at = greatest(succeeded_at, now() - ${ago(success)})`;
  await queryTogether(db, latest ? [counted, answered] : [counted]);
}

export interface RequestTotals {
  requests: number;
  /** Requests answered with 429. */
  throttled: number;
  /** Maximum number of requests in one second, and that second. Null if no request was sent. */
  fastest: number;
  fastestAt: Date | null;
}

/** Returns the requests of all processes in a period, as far as they are still stored. */
export const readRequestTotals = (db: Queries, from: Date, to: Date) => queryOne<RequestTotals>(db)`
  SELECT coalesce(sum(requests), 0)::int AS requests, coalesce(sum(throttled), 0)::int AS throttled,
    coalesce(max(requests), 0)::int AS fastest, (array_agg(second ORDER BY requests DESC, second))[1] AS "fastestAt"
  FROM slotsync.request_seconds
  WHERE second >= date_trunc('second', ${from.toISOString()}::text::timestamptz)
    AND second <= ${to.toISOString()}::text::timestamptz`;

export interface RequestStep {
  at: Date;
  requests: number;
  /** Requests answered with 429. */
  throttled: number;
  /** Maximum number of requests in one second. */
  fastest: number;
}

/** Returns requests in steps of `seconds`, oldest first. Steps without requests are included with 0. */
export const listRequestSteps = (
  db: Queries,
  { from, seconds, steps }: { from: Date; seconds: number; steps: number },
) => query<RequestStep>(db)`
  SELECT m.at, coalesce(sum(s.requests), 0)::int AS requests, coalesce(sum(s.throttled), 0)::int AS throttled,
    coalesce(max(s.requests), 0)::int AS fastest
  FROM (SELECT date_trunc('second', ${from.toISOString()}::text::timestamptz) + step * make_interval(secs => ${seconds}::int) AS at
    FROM generate_series(0, ${steps - 1}::int) AS step) AS m
  LEFT JOIN slotsync.request_seconds AS s ON s.second >= m.at AND s.second < m.at + make_interval(secs => ${seconds}::int)
  GROUP BY m.at ORDER BY m.at`;

const NOTE_EVERY_MS = 5000;

/** Stores the counts every few seconds, once the state is open. */
export function noteRequestsPeriodically(
  counter: RequestCounter,
  state: () => State | undefined,
  log: Logger,
) {
  async function note(): Promise<void> {
    const opened = state();
    const counted = opened && counter.take();
    if (!opened || !counted) return;
    await noteRequests(opened.db, counted).catch((error: unknown) => {
      counter.putBack(counted);
      throw error;
    });
  }

  const notes = repeat(note, {
    everyMs: NOTE_EVERY_MS,
    firstAfterMs: NOTE_EVERY_MS,
    onError: (error) => log.debug({ code: codeOf(error) }, 'storing request counts failed; it is retried'),
  });
  return {
    async close(): Promise<void> {
      await notes.end();
      await note();
    },
  };
}
