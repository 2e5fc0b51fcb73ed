// The metrics of a worker for Prometheus: what this process counts, and the gauges of what it reads.
//
// - Counters and histograms are of this process: sum over the workers.
// - Gauges of the quota's store and of the state are the same at every worker: take the maximum. While a source does not
//   answer, `slotsync_source_up` is 0 and its gauges are left out.
// - prom-client's own process_* and nodejs_* keep their usual names, so that usual dashboards find them.
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Meter } from '../process/meter.js';
import type { CountedFacts, GaugeFacts } from '../situation/metrics.js';
import {
  bookingGauges,
  connectionGauges,
  quotaGauges,
  recordGauges,
  runGauges,
  stateGauges,
  type GaugeSet,
  type QuotaReading,
} from './gauges.js';

interface MetricsSources {
  /** Lanes that are shown also while they are empty. */
  lanes: readonly string[];
  /** All are read at each scrape: they cache and limit the time themselves. */
  quota: () => Promise<QuotaReading>;
  state: () => Promise<GaugeFacts>;
  counts: () => Promise<CountedFacts>;
}

const WAIT_BUCKETS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
const REQUEST_BUCKETS = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** A registry of its own and everything in it. Starts to measure the process. */
export function createMetrics({ lanes, quota, state, counts }: MetricsSources) {
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
    help: 'Whether what gauges are read from answered in time: quota, state, records, runs, bookings, connections',
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

  /** The gauges of a source as text; empty when it does not answer, so that old values do not pass for current ones. */
  async function textOf<T>({ source, text }: GaugeSet<T>, read: () => Promise<T | null>): Promise<string> {
    const reading = await read().catch(() => null);
    up.set({ source }, reading === null ? 0 : 1);
    return reading === null ? '' : text(reading);
  }

  const [ofQuota, ofState] = [quotaGauges(), stateGauges(lanes)];
  const [ofRecords, ofRuns, ofBookings, ofConnections] = [
    recordGauges(),
    runGauges(),
    bookingGauges(),
    connectionGauges(),
  ];

  return {
    meter,
    contentType: own.contentType,

    /** Everything as Prometheus text. */
    async text(): Promise<string> {
      const read = await Promise.all([
        textOf(ofQuota, quota),
        textOf(ofState, state),
        textOf(ofRecords, async () => (await counts()).records),
        textOf(ofRuns, async () => (await counts()).runs),
        textOf(ofBookings, async () => (await counts()).bookings),
        textOf(ofConnections, async () => (await counts()).connections),
      ]);
      return [await own.metrics(), ...read].filter((text) => text !== '').join('\n');
    },
  };
}
