// Health, metrics and the page of a worker over HTTP. Facts are cached for a second, and counts of whole tables for 15
// seconds, so that frequent requests cause no load. Each answer has a time limit.
import type { Limiter } from '../destination/quota/limiter.js';
import { errorEntry } from '../errors/error-catalogue.js';
import { codeOf } from '../errors/errors.js';
import { createTurns } from '../process/lifecycle.js';
import type { Logger } from '../process/logger.js';
import { type Queries, type State, inSnapshot } from '../state/database.js';
import { cacheReading } from './cached-reading.js';
import { readConcernCounts, readCountedFacts, readGaugeFacts, createMetrics } from './metrics.js';
import { json, startHttpServer, type Handler, type Routes } from './http-server.js';

const READING = { keepMs: 1000, withinMs: 1500 };
/** Limits for counts of whole tables. A slow statement is aborted alone, and a slow count is cached longer. */
const COUNTING = { keepMs: 15_000, keepTimes: 10, withinMs: 6000, statementMs: 3000 };

interface WorkerHttpDeps {
  host: string;
  port: number;
  state: () => Promise<State>;
  log: Logger;
  limiter: () => Promise<Limiter>;
  streams: () => Promise<readonly string[]>;
}

/** Creates the metrics, which count from now on. `serve` opens the port later. */
export function createWorkerHttp({ host, port, state, log, limiter, streams }: WorkerHttpDeps) {
  const read = async <T>(limitMs: number, facts: (tx: Queries, streams: readonly string[]) => Promise<T>) => {
    const names = await streams();
    return inSnapshot((await state()).db, (tx) => facts(tx, names), { limitMs });
  };
  const turns = createTurns();
  /** Runs the counts one after the other, so that a scrape uses few connections to the state. */
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

    /** Serves /healthz, /readyz, /metrics and the page. Throws UsageError if the port cannot be opened. */
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

/** Milliseconds without an answer of the state after which a restart is due: connections may hang. */
const UNREACHED_MS = 5 * 60_000;

export interface HealthDeps {
  phase: () => 'starting' | 'running' | 'stopping' | 'ended';
  /** Returns since when and why the process sends nothing. Null if it sends. */
  sendingStopped: () => { since: Date; code: string } | null;
  /** Each check resolves when its part answers, and has its own time limit. */
  checks: { readonly state: () => Promise<unknown>; readonly [part: string]: () => Promise<unknown> };
  /** A monotonic clock in milliseconds. */
  clock?: () => number;
}

/**
 * Handlers for the two checks of an orchestrator. Liveness: should the process be restarted? A process without its
 * state for minutes does no work that a restart could interrupt. Readiness: can the process work now?
 */
export function createHealth({ phase, sendingStopped, checks, clock = () => performance.now() }: HealthDeps) {
  /** Time of the first failed check in a row. Undefined if the last check succeeded. */
  let unreachedSince: number | undefined;
  return {
    /** Returns 200 while the process works. The answer itself shows that the event loop is not blocked. */
    async liveness(): Promise<Response> {
      await checks.state().then(
        () => (unreachedSince = undefined),
        () => (unreachedSince ??= clock()),
      );
      const now = phase();
      const alive = now !== 'ended' && clock() - (unreachedSince ?? clock()) <= UNREACHED_MS;
      return json(alive ? 200 : 503, { alive, phase: now });
    },

    /** Returns 200 if the process can work, otherwise 503 with the error code of each part that is not ready. */
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
