// Health and metrics of a worker over HTTP. A monitoring system that asks often must not become a load: what is read
// is kept for a second, and nobody waits longer than the time limit.
import type { Limiter } from '../destination/quota/limiter.js';
import { LANES } from '../destination/quota/quota-rules.js';
import type { Logger } from '../logger.js';
import type { createStateReadings } from '../state/metrics-readings.js';
import { createReading } from './cached-reading.js';
import { createHealth, type HealthDeps } from './health.js';
import { startHttp } from './http-server.js';
import { createMetrics, type Metrics } from './metrics.js';

/** Milliseconds. */
export const READING = { keepMs: 1000, withinMs: 1500 };

type StateReadings = ReturnType<typeof createStateReadings>;

/** Metrics of this process, with the quota and the state as they are read at a scrape. */
export function createWorkerMetrics(sources: {
  limiter: () => Promise<Limiter>;
  readings: () => Promise<StateReadings>;
  streams: () => Promise<readonly string[]>;
}): Metrics {
  return createMetrics({
    lanes: LANES,
    quota: createReading(async () => (await sources.limiter()).usage(), READING),
    state: createReading(async () => (await sources.readings()).read(await sources.streams()), READING),
  });
}

/** Serves /healthz, /readyz and /metrics. Throws UsageError when the port cannot be had. */
export async function serveWorker({
  port,
  log,
  metrics,
  phase,
  readings,
  queueDepth,
}: {
  port: number;
  log: Logger;
  metrics: Metrics;
  phase: HealthDeps['phase'];
  readings: StateReadings;
  queueDepth: () => Promise<unknown>;
}) {
  const health = createHealth({
    phase,
    checks: { state: createReading(readings.ping, READING), queue: createReading(queueDepth, READING) },
  });
  const server = await startHttp({
    port,
    log,
    routes: {
      '/healthz': health.alive,
      '/readyz': health.ready,
      '/metrics': async () => ({
        status: 200,
        contentType: metrics.contentType,
        body: await metrics.text(),
      }),
    },
  });
  log.info({ port: server.port }, 'http started');
  return server;
}
