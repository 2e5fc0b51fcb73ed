// The metrics of a worker for Prometheus: what this process counts, and the gauges of what it reads.
//
// - Counters and histograms are of this process: sum over the workers.
// - Gauges of the quota's store and of the state are the same at every worker: take the maximum. While a source does not
//   answer, `slotsync_source_up` is 0 and its gauges are left out.
// - prom-client's own process_* and nodejs_* keep their usual names, so that usual dashboards find them.
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

/** All are read at each scrape: they cache and limit the time themselves. */
interface MetricsSources {
  quota: () => Promise<Parameters<(typeof QUOTA)[string][1]>[0]>;
  state: () => Promise<GaugeFacts>;
  counts: () => Promise<CountedFacts>;
  concerns: () => ReturnType<typeof readConcernCounts>;
}

const WAIT_BUCKETS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
const REQUEST_BUCKETS = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** A registry of its own and everything in it. Starts to measure the process. */
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

  /** Renders the gauges of a source; as no text when it does not answer, so that old values do not pass for current ones. */
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

    /** Everything as Prometheus text. */
    async text(): Promise<string> {
      const read = await Promise.all(sources.map((textOf) => textOf()));
      return [await own.metrics(), ...read].filter((text) => text !== '').join('\n');
    },
  };
}
