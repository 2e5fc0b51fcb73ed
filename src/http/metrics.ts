// Metrics of a worker for Prometheus: counters of this process, and gauges of the quota's store and the state.
//
// - Counters and histograms belong to this process: add them up over all workers.
// - Gauges of the quota's store and the state are equal at every worker: use the maximum. While a source does not
//   answer, `slotsync_source_up` is 0 and its gauges are left out.
// - Default metrics of prom-client keep their names process_* and nodejs_*, so that common dashboards find them.
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Meter } from '../process/meter.js';
import {
  CONCERNS,
  COUNTED,
  type readConcernCounts,
  QUOTA,
  renderGauges,
  STATE,
  type CountedFacts,
  type GaugeFacts,
  type GaugeTable,
} from './gauges.js';

/** Functions that are called at each scrape. They cache their results and limit the time themselves. */
interface MetricsSources {
  quota: () => Promise<Parameters<(typeof QUOTA)[string][1]>[0]>;
  state: () => Promise<GaugeFacts>;
  counts: () => Promise<CountedFacts>;
  concerns: () => ReturnType<typeof readConcernCounts>;
}

const WAIT_BUCKETS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
const REQUEST_BUCKETS = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

export function createMetrics({ quota, state, counts, concerns }: MetricsSources) {
  const own = new Registry();
  collectDefaultMetrics({ register: own });

  const counter = (name: string, help: string, labelNames: string[]) =>
    new Counter({ name, help, labelNames, registers: [own] });
  const histogram = (name: string, help: string, labelNames: string[], buckets: number[]) =>
    new Histogram({ name, help, labelNames, buckets, registers: [own] });
  const requests = counter(
    'slotsync_requests_total',
    'Requests to the service; without an answer, status is interrupted, unreachable or lost',
    ['endpoint', 'status'],
  );
  const requestSeconds = histogram(
    'slotsync_request_seconds',
    'From sending to the headers of the answer',
    ['endpoint'],
    REQUEST_BUCKETS,
  );
  const waits = histogram(
    'slotsync_quota_wait_seconds',
    'How long a request waited for its slot',
    ['lane'],
    WAIT_BUCKETS,
  );
  const records = counter(
    'slotsync_records_total',
    'Records by outcome: synced, unchanged, deferred, failed, dead',
    ['stream', 'outcome'],
  );
  const connections = new Gauge({
    name: 'slotsync_service_connections',
    help: 'Open connections of this process to the service; not known through a proxy',
    registers: [own],
  });
  const up = new Gauge({
    name: 'slotsync_source_up',
    help: 'Whether what gauges are read from answered in time: quota, state, records, runs, bookings, connections, concerns',
    labelNames: ['source'],
    registers: [own],
  });

  const meter: Meter = {
    waited: (lane, seconds) => waits.observe({ lane }, seconds),
    requested(endpoint, status, seconds) {
      requests.inc({ endpoint, status: String(status) });
      if (typeof status === 'number') requestSeconds.observe({ endpoint }, seconds);
    },
    connected: (open) => connections.set(open),
    settled(stream, outcomes) {
      for (const [outcome, count] of Object.entries(outcomes)) {
        if (count > 0) records.inc({ stream, outcome }, count);
      }
    },
  };

  /** Renders the gauges of a source, or no text if the source does not answer, so that old values are not shown. */
  const source = <Reading>(name: string, table: GaugeTable<Reading>, read: () => Promise<Reading | null>) => {
    const render = renderGauges(table);
    return async () => {
      const reading = await read().catch(() => null);
      up.set({ source: name }, reading === null ? 0 : 1);
      return reading === null ? '' : render(reading);
    };
  };
  const counted = (name: keyof CountedFacts) =>
    source(name, COUNTED[name] as GaugeTable<unknown>, async () => (await counts())[name] ?? null);
  const sources = [
    source('quota', QUOTA, quota),
    source('state', STATE, state),
    ...(Object.keys(COUNTED) as (keyof CountedFacts)[]).map(counted),
    source('concerns', CONCERNS, concerns),
  ];

  return {
    meter,
    contentType: own.contentType,

    async text(): Promise<string> {
      const read = await Promise.all(sources.map((textOf) => textOf()));
      return [await own.metrics(), ...read].filter((text) => text !== '').join('\n');
    },
  };
}
