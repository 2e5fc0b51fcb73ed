// What a monitoring system can ask a worker, in Prometheus's terms. The one place that knows prom-client.
//
// Counted by this process; sum over the workers:
//   slotsync_requests_total{endpoint,status}       requests to the service; status is the answer's, or `interrupted`,
//                                                  `unreachable`, `lost`
//   slotsync_request_seconds{endpoint}             histogram: from sending to the answer's headers
//   slotsync_quota_wait_seconds{lane}              histogram: how long a request waited for its slot
//   slotsync_records_total{stream,outcome}         records that got an outcome: synced, unchanged, deferred, failed, dead
// The same at every worker, read from the quota's store; take the maximum:
//   slotsync_quota_slots{state}                    held (on the wire), cooling (in the second after), free
//   slotsync_quota_held{lane}                      held, by lane
//   slotsync_quota_rate, slotsync_quota_allowed    the quota, and what of it is allowed at present (less after a 429)
//   slotsync_quota_paused_seconds                  until a pause after a 429 ends; 0: none
// The same at every worker, read from the state; take the maximum:
//   slotsync_queue_jobs{lane}                      runs to be planned, and batches in the queue or in work
//   slotsync_queue_oldest_seconds{lane}            since the oldest of them was asked for or planned; 0: none
//   slotsync_inbox_changes                         changes that no run has taken
//   slotsync_inbox_oldest_seconds                  since the oldest of them was noted; 0: none
//   slotsync_run_duration_seconds{kind,status}     how long the latest finished run of this kind and status took
//   slotsync_last_success_seconds{stream}          since a run that covered the stream ended well for it; +Inf: never
// Of the reading itself:
//   slotsync_source_up{source}                     1 when `quota` or `state` answered; at 0 its values above are left out
// And prom-client's own process_* and nodejs_* under their usual names, so that usual dashboards find them.
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Meter } from '../meter.js';
import type { StateReading } from '../state/metrics-readings.js';

/** What of the quota's usage is shown. */
export interface QuotaReading {
  rate: number;
  allowed: number;
  held: number;
  cooling: number;
  free: number;
  lanes: Readonly<Record<string, number>>;
  pausedMs: number;
}

export interface MetricsSources {
  /** Lanes that are shown also while nothing is in them. */
  lanes: readonly string[];
  /** Both asked at each scrape: they keep their answers and their time themselves. */
  quota: () => Promise<QuotaReading>;
  state: () => Promise<StateReading>;
}

export type Metrics = ReturnType<typeof createMetrics>;

const WAIT_BUCKETS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
const REQUEST_BUCKETS = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** Registries of their own and everything in them. Starts to measure the process. */
export function createMetrics({ lanes, quota, state }: MetricsSources) {
  const own = new Registry();
  const ofQuota = new Registry();
  const ofState = new Registry();
  collectDefaultMetrics({ register: own });

  const counter = <L extends string>(name: string, help: string, labelNames: readonly L[]) =>
    new Counter({ name, help, labelNames, registers: [own] });
  const histogram = <L extends string>(
    name: string,
    help: string,
    labelNames: readonly L[],
    buckets: number[],
  ) => new Histogram({ name, help, labelNames, buckets, registers: [own] });
  const gaugeIn =
    (registry: Registry) =>
    <L extends string>(name: string, help: string, labelNames: readonly L[] = []) =>
      new Gauge({ name, help, labelNames, registers: [registry] });
  const quotaGauge = gaugeIn(ofQuota);
  const stateGauge = gaugeIn(ofState);

  const requests = counter('slotsync_requests_total', 'Requests to the service', ['endpoint', 'status']);
  const requestSeconds = histogram(
    'slotsync_request_seconds',
    'From sending to the headers of the answer',
    ['endpoint'],
    REQUEST_BUCKETS,
  );
  const waits = histogram(
    'slotsync_quota_wait_seconds',
    'Wait for a slot of the quota',
    ['lane'],
    WAIT_BUCKETS,
  );
  const records = counter('slotsync_records_total', 'Records that got an outcome', ['stream', 'outcome']);

  const quotaGauges = {
    slots: quotaGauge('slotsync_quota_slots', 'Slots of the quota', ['state']),
    held: quotaGauge('slotsync_quota_held', 'Slots with a request on the wire', ['lane']),
    rate: quotaGauge('slotsync_quota_rate', 'Requests a second of the organization'),
    allowed: quotaGauge('slotsync_quota_allowed', 'What of the rate is allowed at present'),
    paused: quotaGauge('slotsync_quota_paused_seconds', 'Until the pause after a 429 ends'),
  };
  const stateGauges = {
    jobs: stateGauge('slotsync_queue_jobs', 'Runs to be planned, and batches in the queue or in work', [
      'lane',
    ]),
    oldest: stateGauge('slotsync_queue_oldest_seconds', 'Since the oldest job was asked for or planned', [
      'lane',
    ]),
    inbox: stateGauge('slotsync_inbox_changes', 'Changes that no run has taken'),
    inboxOldest: stateGauge('slotsync_inbox_oldest_seconds', 'Since the oldest of them was noted'),
    duration: stateGauge('slotsync_run_duration_seconds', 'Duration of the latest finished run', [
      'kind',
      'status',
    ]),
    success: stateGauge('slotsync_last_success_seconds', 'Since a run ended well for the stream', ['stream']),
  };
  const up = gaugeIn(own)('slotsync_source_up', 'Whether the source of values answered', ['source']);

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

  function showQuota(usage: QuotaReading): void {
    const { held, cooling, free } = usage;
    for (const [name, slots] of Object.entries({ held, cooling, free })) {
      quotaGauges.slots.set({ state: name }, slots);
    }
    for (const [lane, slots] of Object.entries(usage.lanes)) quotaGauges.held.set({ lane }, slots);
    quotaGauges.rate.set(usage.rate);
    quotaGauges.allowed.set(usage.allowed);
    quotaGauges.paused.set(usage.pausedMs / 1000);
  }

  function showState({ backlog, inbox, runs, successes }: StateReading): void {
    stateGauges.inbox.set(inbox.changes);
    stateGauges.inboxOldest.set(inbox.oldestSeconds);
    for (const lane of lanes) {
      stateGauges.jobs.set({ lane }, 0);
      stateGauges.oldest.set({ lane }, 0);
    }
    for (const { lane, jobs, oldestSeconds } of backlog) {
      stateGauges.jobs.set({ lane }, jobs);
      stateGauges.oldest.set({ lane }, oldestSeconds);
    }
    for (const { kind, status, seconds } of runs) stateGauges.duration.set({ kind, status }, seconds);
    for (const { stream, ageSeconds } of successes) {
      stateGauges.success.set({ stream }, ageSeconds ?? Number.POSITIVE_INFINITY);
    }
  }

  /** The source's values as text. Yesterday's must not pass for today's: what could not be read is left out. */
  async function textOf<T>(
    source: string,
    registry: Registry,
    read: () => Promise<T>,
    show: (value: T) => void,
  ): Promise<string> {
    const answer = await read().then(
      (value) => ({ value }),
      () => undefined,
    );
    up.set({ source }, answer ? 1 : 0);
    if (!answer) return '';
    registry.resetMetrics();
    show(answer.value);
    return registry.metrics();
  }

  return {
    meter,
    contentType: own.contentType,

    /** Everything as Prometheus text. A source that does not answer is left out, and the rest is there. */
    async text(): Promise<string> {
      const read = await Promise.all([
        textOf('quota', ofQuota, quota, showQuota),
        textOf('state', ofState, state, showState),
      ]);
      return [await own.metrics(), ...read].filter((text) => text !== '').join('\n');
    },
  };
}
