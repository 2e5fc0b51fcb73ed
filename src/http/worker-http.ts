// Health, metrics and the page of a worker over HTTP. A monitoring system that asks often must not become a load: what is
// read is kept for a second, what counts whole tables for a quarter of a minute, and an answer waits no longer than the time
// limit.
import type { Limiter } from '../destination/quota/limiter.js';
import { LANES } from '../destination/quota/quota-rules.js';
import type { Logger } from '../process/logger.js';
import type { Queries, State } from '../state/database.js';
import { inSnapshot } from '../state/snapshot.js';
import { readCountedFacts, readGaugeFacts } from '../situation/metrics.js';
import { cacheReading } from './cached-reading.js';
import { createHealth, type HealthDeps } from './health.js';
import { startHttpServer, type Handler, type Routes } from './http-server.js';
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
  const metrics = createMetrics({
    lanes: LANES,
    quota: cacheReading(async () => (await limiter()).usage(), READING),
    state: cacheReading(() => read(READING.withinMs, readGaugeFacts), READING),
    counts: cacheReading(() => read(COUNTING.statementMs, readCountedFacts), COUNTING),
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
