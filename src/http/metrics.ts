// The metrics of a worker for Prometheus. The one place that knows prom-client.
//
// - Counters and histograms are of this process: sum over the workers.
// - Gauges of the quota's store and of the state are the same at every worker: take the maximum. While `quota` or `state`
//   does not answer, `slotsync_source_up` is 0 and its gauges are left out.
// - prom-client's own process_* and nodejs_* keep their usual names, so that usual dashboards find them.
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { QuotaUsage } from '../destination/quota/limiter.js';
import type { Meter } from '../meter.js';
import type { StateReading } from '../state/metrics-readings.js';
import { DRIFT_KINDS } from '../state/schema.js';

/** What is shown of the quota's usage. */
export interface QuotaReading extends Pick<
  QuotaUsage,
  'rate' | 'allowed' | 'held' | 'cooling' | 'free' | 'pausedMs'
> {
  lanes: Readonly<Record<string, number>>;
}

interface MetricsSources {
  /** Lanes that are shown also while they are empty. */
  lanes: readonly string[];
  /** Both are read at each scrape: they cache and limit the time themselves. */
  quota: () => Promise<QuotaReading>;
  state: () => Promise<StateReading>;
}

const WAIT_BUCKETS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
const REQUEST_BUCKETS = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** Registries of their own and everything in them. Starts to measure the process. */
export function createMetrics({ lanes, quota, state }: MetricsSources) {
  const own = new Registry();
  const ofQuota = new Registry();
  const ofState = new Registry();
  collectDefaultMetrics({ register: own });

  const counter = (name: string, help: string, labelNames: string[]) =>
    new Counter({ name, help, labelNames, registers: [own] });
  const histogram = (name: string, help: string, labelNames: string[], buckets: number[]) =>
    new Histogram({ name, help, labelNames, buckets, registers: [own] });
  const gauge = (registry: Registry, name: string, help: string, labelNames: string[] = []) =>
    new Gauge({ name, help, labelNames, registers: [registry] });

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
  const up = gauge(own, 'slotsync_source_up', 'Whether quota or state answered', ['source']);

  const slots = gauge(
    ofQuota,
    'slotsync_quota_slots',
    'Slots: held by a request, cooling for a second after it, free',
    ['state'],
  );
  const held = gauge(ofQuota, 'slotsync_quota_held', 'Slots held by a request', ['lane']);
  const rate = gauge(ofQuota, 'slotsync_quota_rate', 'Requests a second of the organization');
  const allowed = gauge(ofQuota, 'slotsync_quota_allowed', 'Of the rate allowed now; less after a 429');
  const paused = gauge(ofQuota, 'slotsync_quota_paused_seconds', 'Until the pause after a 429 ends');

  const jobs = gauge(ofState, 'slotsync_queue_jobs', 'Runs to be planned, and batches queued or in flight', [
    'lane',
  ]);
  const oldest = gauge(ofState, 'slotsync_queue_oldest_seconds', 'Age of the oldest of these jobs', ['lane']);
  const inboxChanges = gauge(ofState, 'slotsync_inbox_changes', 'Changes that no run has taken');
  const inboxOldest = gauge(ofState, 'slotsync_inbox_oldest_seconds', 'Age of the oldest of these changes');
  const duration = gauge(ofState, 'slotsync_run_duration_seconds', 'Duration of the latest finished run', [
    'kind',
    'status',
  ]);
  const success = gauge(
    ofState,
    'slotsync_last_success_seconds',
    'Since a run ended well for the stream; +Inf: never',
    ['stream'],
  );

  const drifting = gauge(
    ofState,
    'slotsync_drift_objects',
    'Objects that a verify saw to differ from what was accepted last: changed, missing, inactive, wrong_type, extra',
    ['stream', 'kind'],
  );
  const verifiedAge = gauge(
    ofState,
    'slotsync_verified_age_seconds',
    'Since the last whole verify of the stream began; +Inf: never',
    ['stream'],
  );

  const meter: Meter = {
    waited: (lane, seconds) => waits.observe({ lane }, seconds),
    requested(endpoint, status, seconds) {
      requests.inc({ endpoint, status: String(status) });
      if (typeof status === 'number') requestSeconds.observe({ endpoint }, seconds);
    },
    settled(stream, counts) {
      for (const [outcome, count] of Object.entries(counts)) {
        if (count > 0) records.inc({ stream, outcome }, count);
      }
    },
  };

  async function showQuota(): Promise<void> {
    const usage = await quota();
    ofQuota.resetMetrics();
    for (const name of ['held', 'cooling', 'free'] as const) slots.set({ state: name }, usage[name]);
    for (const [lane, count] of Object.entries(usage.lanes)) held.set({ lane }, count);
    rate.set(usage.rate);
    allowed.set(usage.allowed);
    paused.set(usage.pausedMs / 1000);
  }

  async function showState(): Promise<void> {
    const { backlog, inbox, runs, successes, drift, verified } = await state();
    ofState.resetMetrics();
    inboxChanges.set(inbox.changes);
    inboxOldest.set(inbox.oldestSeconds);
    for (const lane of lanes) for (const empty of [jobs, oldest]) empty.set({ lane }, 0);
    for (const { lane, ...of } of backlog) {
      jobs.set({ lane }, of.jobs);
      oldest.set({ lane }, of.oldestSeconds);
    }
    for (const { kind, status, seconds } of runs) duration.set({ kind, status }, seconds);
    for (const { stream, ageSeconds } of successes) success.set({ stream }, ageSeconds ?? Infinity);
    for (const { stream } of verified) for (const kind of DRIFT_KINDS) drifting.set({ stream, kind }, 0);
    for (const { stream, kind, objects } of drift) drifting.set({ stream, kind }, objects);
    for (const { stream, ageSeconds } of verified) verifiedAge.set({ stream }, ageSeconds ?? Infinity);
  }

  /** The gauges of a source as text; empty when it does not answer, so that old values do not pass for current ones. */
  async function textOf(source: string, registry: Registry, show: () => Promise<void>): Promise<string> {
    try {
      await show();
      up.set({ source }, 1);
      return await registry.metrics();
    } catch {
      up.set({ source }, 0);
      return '';
    }
  }

  return {
    meter,
    contentType: own.contentType,

    /** Everything as Prometheus text. */
    async text(): Promise<string> {
      const read = await Promise.all([
        textOf('quota', ofQuota, showQuota),
        textOf('state', ofState, showState),
      ]);
      return [await own.metrics(), ...read].filter((text) => text !== '').join('\n');
    },
  };
}
