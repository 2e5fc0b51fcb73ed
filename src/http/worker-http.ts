// Health, metrics and the page of a worker over HTTP. A monitoring system that asks often must not become a load: what is
// read is kept for a second, what counts whole tables for a quarter of a minute, and an answer waits no longer than the time
// limit.
import type { Limiter } from '../destination/quota/limiter.js';
import { errorEntry } from '../errors/error-catalogue.js';
import { codeOf } from '../errors/errors.js';
import { createTurns } from '../process/lifecycle.js';
import type { Logger } from '../process/logger.js';
import type { Queries, State } from '../state/database.js';
import { inSnapshot } from '../state/snapshot.js';
import { cacheReading } from './cached-reading.js';
import { readConcernCounts, readCountedFacts, readGaugeFacts } from './gauges.js';
import { json, startHttpServer, type Handler, type Routes } from './http-server.js';
import { createMetrics } from './metrics.js';

const READING = { keepMs: 1000, withinMs: 1500 };
/** Counts of whole tables. One statement may be cut off, and the others still answer in time. A slow count is made seldom. */
const COUNTING = { keepMs: 15_000, keepTimes: 10, withinMs: 6000, statementMs: 3000 };

interface WorkerHttpDeps {
  host: string;
  port: number;
  state: () => Promise<State>;
  log: Logger;
  limiter: () => Promise<Limiter>;
  /** Names of the configured streams. */
  streams: () => Promise<readonly string[]>;
}

/** Counts from now on; `serve` opens the port. */
export function createWorkerHttp({ host, port, state, log, limiter, streams }: WorkerHttpDeps) {
  const read = async <T>(limitMs: number, facts: (tx: Queries, streams: readonly string[]) => Promise<T>) => {
    const names = await streams();
    return inSnapshot((await state()).db, (tx) => facts(tx, names), { limitMs });
  };
  const turns = createTurns();
  /** Reads in turn, so that a scrape takes few connections of the state. */
  const counted = <T>(facts: (tx: Queries, streams: readonly string[]) => Promise<T>) =>
    cacheReading(() => read(COUNTING.statementMs, facts), { ...COUNTING, inTurn: turns.take });
  const metrics = createMetrics({
    quota: cacheReading(async () => (await limiter()).usage(), READING),
    state: cacheReading(() => read(READING.withinMs, readGaugeFacts), READING),
    counts: counted(readCountedFacts),
    concerns: counted(readConcernCounts),
  });
  return {
    meter: metrics.meter,

    /** Serves /healthz, /readyz and /metrics, and the page. Throws UsageError when the port cannot be had. */
    async serve(
      workers: Pick<HealthDeps, 'phase' | 'sendingStopped'>,
      queueDepth: () => Promise<unknown>,
      page: { routes: Routes; notFound: Handler },
    ) {
      const checks = {
        state: cacheReading(async () => (await state()).client`SELECT 1`, READING),
        queue: cacheReading(queueDepth, READING),
      };
      const health = createHealth({ ...workers, checks });
      const { contentType } = metrics;
      const answerMetrics = async () =>
        new Response(await metrics.text(), { headers: { 'content-type': contentType } });
      const routes = {
        '/healthz': health.liveness,
        '/readyz': health.readiness,
        '/metrics': answerMetrics,
        ...page.routes,
      };
      const server = await startHttpServer({ host, port, log, routes, notFound: page.notFound });
      log.info({ port: server.port }, 'http started');
      return server;
    },
  };
}

/** Without the state for longer than this, the process is restarted: only a restart helps where its connections hang. */
const UNREACHED_MS = 5 * 60_000;

export interface HealthDeps {
  /** The state of the process. */
  phase: () => 'starting' | 'running' | 'stopping' | 'ended';
  /** Since when it sends nothing, and why; null: it sends. */
  sendingStopped: () => { since: Date; code: string } | null;
  /** Each resolves when that part answers, and has a time limit of its own. */
  checks: { readonly state: () => Promise<unknown>; readonly [part: string]: () => Promise<unknown> };
  /** A monotonic clock in milliseconds. */
  clock?: () => number;
}

/**
 * The two questions of an orchestrator. Liveness: is the process worth keeping, or should it be restarted? A process that has
 * not reached its state for minutes does no work that a restart could interrupt. Readiness: can it work now?
 */
export function createHealth({ phase, sendingStopped, checks, clock = () => performance.now() }: HealthDeps) {
  /** Since the first look that failed; undefined: the last one did not. */
  let unreachedSince: number | undefined;
  return {
    /** 200 while the process works. The answer itself shows that its event loop is not blocked. */
    async liveness(): Promise<Response> {
      await checks.state().then(
        () => (unreachedSince = undefined),
        () => (unreachedSince ??= clock()),
      );
      const now = phase();
      const alive = now !== 'ended' && clock() - (unreachedSince ?? clock()) <= UNREACHED_MS;
      return json(alive ? 200 : 503, { alive, phase: now });
    },

    /** 200 when it can work; else 503 and, for each part that is not ready, the code of its failure;
     * of sending, since when it has stopped and why. */
    async readiness(): Promise<Response> {
      const notReady: Record<string, string> = {};
      const now = phase();
      if (now !== 'running') notReady['worker'] = now;
      const failures = Object.entries(checks).map(([part, check]) =>
        check().catch((error: unknown) => (notReady[part] = codeOf(error))),
      );
      await Promise.all(failures);
      const stopped = sendingStopped();
      if (stopped) notReady['sending'] = stopped.code;
      const ready = Object.keys(notReady).length === 0;
      const why = stopped && {
        sendingStopped: {
          since: stopped.since,
          code: stopped.code,
          meaning: errorEntry(stopped.code).meaning,
        },
      };
      return json(ready ? 200 : 503, ready ? { ready } : { ready, notReady, ...why });
    },
  };
}
