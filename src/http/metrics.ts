// Metrics of a worker for Prometheus: counters of this process, and gauges of the quota's store and the state.
//
// - Counters and histograms belong to this process: add them up over all workers.
// - Gauges of the quota's store and the state are equal at every worker: use the maximum. While a source does not
//   answer, `slotsync_source_up` is 0 and its gauges are left out.
// - Default metrics of prom-client keep their names process_* and nodejs_*, so that common dashboards find them.
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Meter } from '../process/meter.js';
import type { QuotaUsage } from '../destination/quota/limiter.js';
import { LANES } from '../destination/quota/quota-rules.js';
import { concerns, countConcerns } from '../documents/concerns/concerns.js';
import { readGrounds, readMoment } from '../situation/situation.js';
import { countBookings } from '../state/bookings/read-reservations.js';
import { readClock, type Queries } from '../state/database.js';
import { listVerifications } from '../state/drift.js';
import { answerOf, nameOfGate, readGates } from '../state/gates/gates.js';
import { readInboxAge } from '../state/inbox/read-inbox.js';
import { countConnections, isStopped } from '../state/processes.js';
import { countRecords } from '../state/records/read/count-records.js';
import { listDurations, listKindSuccesses, readBacklog, type KindSuccess } from '../state/runs/count-runs.js';
import { DRIFT_KINDS } from '../state/schema.js';
import { listStreams, readWholeSuccess } from '../state/streams.js';

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

// Gauges of a worker for Prometheus, in one table for each source. Each source has its own registry, so that its gauges
// can be left out while the source does not answer. Old values must not look like current ones.

export type GaugeFacts = Awaited<ReturnType<typeof readGaugeFacts>>;
/** Facts that count whole tables. A part is null if its query failed or took too long. */
export type CountedFacts = Awaited<ReturnType<typeof readCountedFacts>>;

/** Reads facts whose queries are fast. `streams` are the names of the configured streams. */
export async function readGaugeFacts(tx: Queries, streams: readonly string[]) {
  return {
    ...(await readMoment(tx)),
    configured: streams,
    verifications: await listVerifications(tx),
    backlog: await readBacklog(tx),
    inboxAge: await readInboxAge(tx),
    durations: await listDurations(tx),
    streamStates: await listStreams(tx),
  };
}

/** Reads facts that count whole tables. Each count is a savepoint, so that a slow or locked table affects no other. */
export async function readCountedFacts(tx: Queries, streams: readonly string[]) {
  const orNull = <T>(read: (part: Queries) => Promise<T>) => tx.transaction(read).catch(() => null);
  return {
    connections: await orNull(countConnections),
    runs: await orNull(async (part) => ({
      gates: await readGates(part),
      successes: [...(await listKindSuccesses(part)), await readSyncSuccess(part, streams)],
    })),
    bookings: await orNull(countBookings),
    records: await orNull(countRecords),
  };
}

export const readConcernCounts = async (tx: Queries, streams: readonly string[]) =>
  countConcerns(concerns(await readGrounds(tx, { streams })));

/** Returns the seconds since all streams were last synced as a whole. */
async function readSyncSuccess(tx: Queries, streams: readonly string[]): Promise<KindSuccess> {
  const [at, now] = [await readWholeSuccess(tx, streams), await readClock(tx)];
  return { kind: 'sync', ageSeconds: at && Math.max(0, (now.getTime() - at.getTime()) / 1000) };
}

/** A value, followed by the values of the labels. If several samples have equal labels, the largest is shown. */
type Sample = readonly [value: number, ...labels: readonly (string | number)[]];

/** Help and samples of each gauge, by name and labels, such as `slotsync_drift_objects{stream,kind}`. */
export type GaugeTable<Reading> = Readonly<
  Record<string, readonly [string, (reading: Reading) => readonly Sample[]]>
>;

/** Converts null, which means never, to +Inf, so that alerts on a maximum age also fire in that case. */
const orNever = (seconds: number | null) => seconds ?? Infinity;
const ageOf = ({ now }: GaugeFacts, at: Date | null | undefined) =>
  at ? Math.max(0, (now.getTime() - at.getTime()) / 1000) : Infinity;

function sumOf(samples: readonly Sample[]): Sample[] {
  const sums = new Map<string, Sample>();
  for (const [value, ...labels] of samples) {
    const [sum] = sums.get(JSON.stringify(labels)) ?? [0];
    sums.set(JSON.stringify(labels), [sum + value, ...labels]);
  }
  return [...sums.values()];
}

export const QUOTA: GaugeTable<
  Pick<QuotaUsage, 'rate' | 'allowed' | 'held' | 'cooling' | 'free' | 'pausedMs'> & {
    lanes: Readonly<Record<string, number>>;
  }
> = {
  'slotsync_quota_slots{state}': [
    'Slots: held by a request, cooling for a second after it, free',
    ({ held, cooling, free }) => [
      [held, 'held'],
      [cooling, 'cooling'],
      [free, 'free'],
    ],
  ],
  'slotsync_quota_held{lane}': [
    'Slots held by a request',
    ({ lanes }) => Object.entries(lanes).map(([lane, count]) => [count, lane]),
  ],
  slotsync_quota_rate: ['Requests a second of the organization', ({ rate }) => [[rate]]],
  slotsync_quota_allowed: ['Of the rate allowed now; less after a 429', ({ allowed }) => [[allowed]]],
  slotsync_quota_paused_seconds: ['Until the pause after a 429 ends', ({ pausedMs }) => [[pausedMs / 1000]]],
};

const EMPTY_LANES = LANES.map((lane): Sample => [0, lane]);
const aliveOf = ({ processes }: GaugeFacts) => processes.filter(({ isAlive }) => isAlive);
const labelsOfProcess = ({ command, host, pid }: GaugeFacts['processes'][number]) =>
  [command, host, pid] as const;
const labelsOfRun = ({ kind, status, pausedAt }: GaugeFacts['unfinished'][number]) =>
  [kind, pausedAt ? 'paused' : status] as const;

export const STATE: GaugeTable<GaugeFacts> = {
  'slotsync_queue_jobs{lane}': [
    'Runs to be planned, and batches queued or in flight',
    ({ backlog }) => [...EMPTY_LANES, ...backlog.map(({ lane, jobs }): Sample => [jobs, lane])],
  ],
  'slotsync_queue_oldest_seconds{lane}': [
    'Age of the oldest of these jobs',
    ({ backlog }) => [
      ...EMPTY_LANES,
      ...backlog.map(({ lane, oldestSeconds }): Sample => [oldestSeconds, lane]),
    ],
  ],
  slotsync_inbox_changes: ['Changes that no run has taken', ({ inboxAge }) => [[inboxAge.changes]]],
  slotsync_inbox_oldest_seconds: [
    'Age of the oldest of these changes',
    ({ inboxAge }) => [[inboxAge.oldestSeconds]],
  ],
  'slotsync_run_duration_seconds{kind,status}': [
    'Duration of the latest finished run',
    ({ durations }) => durations.map(({ kind, status, seconds }) => [seconds, kind, status]),
  ],
  'slotsync_unfinished_runs{kind,status}': [
    'Runs that have not ended: planning, running, paused',
    ({ unfinished }) => sumOf(unfinished.map((run) => [1, ...labelsOfRun(run)])),
  ],
  'slotsync_unfinished_run_oldest_seconds{kind,status}': [
    'Age of the oldest of these runs',
    (facts) => facts.unfinished.map((run) => [ageOf(facts, run.requestedAt), ...labelsOfRun(run)]),
  ],
  'slotsync_last_success_seconds{stream}': [
    'Since a whole sync of the stream ended without a failed record; +Inf: never',
    (facts) =>
      facts.configured.map((name) => {
        const state = facts.streamStates.find(({ stream }) => stream === name);
        return [ageOf(facts, state?.syncedAt), name];
      }),
  ],
  'slotsync_drift_objects{stream,kind}': [
    'Objects that a verify noted, by kind: those that drift, and extra and stored_otherwise, which are no drift',
    ({ configured, drift }) => [
      ...configured.flatMap((stream) => DRIFT_KINDS.map((kind) => [0, stream, kind] as const)),
      ...drift.map(({ stream, kind, count }) => [count, stream, kind] as const),
    ],
  ],
  'slotsync_verified_age_seconds{stream}': [
    'Since the last whole verify of the stream began; +Inf: never',
    (facts) =>
      facts.configured.map((name) => {
        const pass = facts.verifications.find(({ stream }) => stream === name);
        return [ageOf(facts, pass?.verifiedAt), name];
      }),
  ],
  'slotsync_processes{command,state}': [
    'Processes that work the queue: alive, or silent for 30 seconds because they were killed or are cut off',
    ({ processes }) =>
      sumOf(
        processes.flatMap(({ command, isAlive }): Sample[] => [
          [isAlive ? 1 : 0, command, 'alive'],
          [isAlive ? 0 : 1, command, 'silent'],
        ]),
      ),
  ],
  // Containers on a host may have equal process ids. Of two such processes, the one that sends nothing is shown.
  'slotsync_sending_stopped{command,host,pid}': [
    '1 if the process sends nothing, else 0',
    (facts) => aliveOf(facts).map((process) => [isStopped(process) ? 1 : 0, ...labelsOfProcess(process)]),
  ],
  'slotsync_sending_stopped_seconds{command,host,pid,code}': [
    'Since the process stopped sending, and why',
    (facts) =>
      aliveOf(facts)
        .filter(isStopped)
        .map((process) => [
          ageOf(facts, process.stoppedSince),
          ...labelsOfProcess(process),
          process.errorCode,
        ]),
  ],
  slotsync_service_last_answer_seconds: [
    'Since a request of any process ended, answered or not; +Inf: never',
    (facts) => [[ageOf(facts, facts.binding?.answeredAt)]],
  ],
  slotsync_service_last_success_seconds: [
    'Since a request of any process was answered with 2xx; +Inf: never',
    (facts) => [[ageOf(facts, facts.binding?.succeededAt)]],
  ],
  'slotsync_load_age_seconds{stream}': [
    'Age of the load of the mirror that a plan read last; +Inf: its time is not known',
    (facts) =>
      facts.loads.map(({ stream, loadedAt, problem }) => {
        const isKnown = problem !== 'unreadable' && problem !== 'future';
        return [isKnown ? ageOf(facts, loadedAt) : Infinity, stream];
      }),
  ],
  'slotsync_source_stale{stream}': [
    '1 if that load had a problem when it was read, else 0',
    ({ loads }) => loads.map(({ stream, problem }) => [problem === null ? 0 : 1, stream]),
  ],
};

type Counted<Name extends keyof CountedFacts> = GaugeTable<NonNullable<CountedFacts[Name]>>;

export const COUNTED: { readonly [Name in keyof CountedFacts]: Counted<Name> } = {
  records: {
    'slotsync_state_records{stream,status}': [
      'Records by status',
      (counts) => [
        ...counts.flatMap(({ stream }): Sample[] => [
          [0, stream, 'failed'],
          [0, stream, 'dead'],
        ]),
        ...counts.map(({ stream, status, count }) => [count, stream, status] as const),
      ],
    ],
  },
  runs: {
    'slotsync_held_records{stream,operation,answer}': [
      "Records that a closed gate keeps back, by the name of the gate and an operator's answer",
      ({ gates }) =>
        sumOf(gates.map((gate) => [gate.count, gate.stream, nameOfGate(gate), answerOf(gate) ?? 'none'])),
    ],
    'slotsync_run_last_success_seconds{kind}': [
      'Since a run of the kind succeeded, of sync since every stream was synced whole; +Inf: never',
      ({ successes }) => successes.map(({ kind, ageSeconds }) => [orNever(ageSeconds), kind]),
    ],
  },
  bookings: {
    'slotsync_bookings{verdict}': [
      'Bookings by the verdict of the last comparison',
      (counts) => counts.map(({ verdict, count }) => [count, verdict]),
    ],
    slotsync_booking_problems: [
      'Bookings with something wrong in the mirror, whatever their verdict',
      (counts) => [[counts.reduce((sum, { problems }) => sum + problems, 0)]],
    ],
  },
  connections: {
    'slotsync_state_connections{duty}': [
      "Connections of all processes to the state's database, by what they are for",
      (counts) => counts.map(({ duty, count }) => [count, duty]),
    ],
  },
};

export const CONCERNS: GaugeTable<Awaited<ReturnType<typeof readConcernCounts>>> = {
  'slotsync_concerns{kind,severity}': [
    'Concerns by kind and severity, as status lists them',
    (counts) => counts.map(({ kind, severity, count }) => [count, kind, severity]),
  ],
};

/** Returns a function that renders facts as Prometheus text. Values of an earlier call are not repeated. */
export function renderGauges<Reading>(table: GaugeTable<Reading>): (reading: Reading) => Promise<string> {
  const registry = new Registry();
  const gauges = Object.entries(table).map(([nameAndLabels, [help, samplesOf]]) => {
    const [name = '', list] = nameAndLabels.split(/[{}]/);
    const labelNames = list?.split(',') ?? [];
    const gauge = new Gauge({ name, help, labelNames, registers: [registry] });
    return (reading: Reading) => {
      const largest = new Map<string, number>();
      for (const [value, ...values] of samplesOf(reading)) {
        const key = JSON.stringify(values);
        largest.set(key, Math.max(value, largest.get(key) ?? value));
        const labels = Object.fromEntries(labelNames.map((label, at) => [label, String(values[at])]));
        gauge.set(labels, largest.get(key) ?? value);
      }
    };
  });
  return (reading) => {
    registry.resetMetrics();
    for (const show of gauges) show(reading);
    return registry.metrics();
  };
}
