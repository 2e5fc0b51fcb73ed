// The gauges of a worker: what it reads of the quota's store and of the state. Each source has a registry of its own, so
// that its gauges can be left out while it does not answer: old values must not pass for current ones.
import { Gauge, Registry } from 'prom-client';
import type { QuotaUsage } from '../destination/quota/limiter.js';
import { factsOfGate } from '../situation/chains.js';
import { nameOfGate } from '../state/gates/gates.js';
import { isStopped } from '../state/processes.js';
import { DRIFT_KINDS } from '../state/schema.js';
import type { CountedFacts, GaugeFacts } from '../situation/metrics.js';

/** The figures of the quota's usage that are shown. */
export interface QuotaReading extends Pick<
  QuotaUsage,
  'rate' | 'allowed' | 'held' | 'cooling' | 'free' | 'pausedMs'
> {
  lanes: Readonly<Record<string, number>>;
}

/** `name`: with its labels, such as `slotsync_drift_objects{stream,kind}`. */
type Define = (name: string, help: string) => Gauge;

/** The gauges of one source. */
export interface GaugeSet<Reading> {
  source: string;
  /** Them as text, with what was read and nothing of before. */
  text(reading: Reading): Promise<string>;
}

function gaugesOf<Reading>(
  source: string,
  define: (gauge: Define) => (reading: Reading) => void,
): GaugeSet<Reading> {
  const registry = new Registry();
  const show = define((nameAndLabels, help) => {
    const [name = '', labels] = nameAndLabels.split(/[{}]/);
    return new Gauge({ name, help, labelNames: labels?.split(',') ?? [], registers: [registry] });
  });
  return {
    source,
    text(reading) {
      registry.resetMetrics();
      show(reading);
      return registry.metrics();
    },
  };
}

/** Never is +Inf, so that an alert on an age also finds what never was. */
const orNever = (seconds: number | null) => seconds ?? Infinity;

export const quotaGauges = () =>
  gaugesOf<QuotaReading>('quota', (gauge) => {
    const slots = gauge(
      'slotsync_quota_slots{state}',
      'Slots: held by a request, cooling for a second after it, free',
    );
    const held = gauge('slotsync_quota_held{lane}', 'Slots held by a request');
    const rate = gauge('slotsync_quota_rate', 'Requests a second of the organization');
    const allowed = gauge('slotsync_quota_allowed', 'Of the rate allowed now; less after a 429');
    const paused = gauge('slotsync_quota_paused_seconds', 'Until the pause after a 429 ends');
    return (usage) => {
      for (const name of ['held', 'cooling', 'free'] as const) slots.set({ state: name }, usage[name]);
      for (const [lane, count] of Object.entries(usage.lanes)) held.set({ lane }, count);
      rate.set(usage.rate);
      allowed.set(usage.allowed);
      paused.set(usage.pausedMs / 1000);
    };
  });

/** `lanes`: those that are shown also while they are empty. */
export const stateGauges = (lanes: readonly string[]) =>
  gaugesOf<GaugeFacts>('state', (gauge) => {
    const jobs = gauge('slotsync_queue_jobs{lane}', 'Runs to be planned, and batches queued or in flight');
    const oldest = gauge('slotsync_queue_oldest_seconds{lane}', 'Age of the oldest of these jobs');
    const changes = gauge('slotsync_inbox_changes', 'Changes that no run has taken');
    const oldestChange = gauge('slotsync_inbox_oldest_seconds', 'Age of the oldest of these changes');
    const duration = gauge(
      'slotsync_run_duration_seconds{kind,status}',
      'Duration of the latest finished run',
    );
    const unfinished = gauge(
      'slotsync_unfinished_runs{kind,status}',
      'Runs that have not ended: planning, running, paused',
    );
    const oldestRun = gauge(
      'slotsync_unfinished_run_oldest_seconds{kind,status}',
      'Age of the oldest of these runs',
    );
    const success = gauge(
      'slotsync_last_success_seconds{stream}',
      'Since a whole sync of the stream ended without a failed record; +Inf: never',
    );
    const drifting = gauge(
      'slotsync_drift_objects{stream,kind}',
      'Objects that a verify noted, by kind: those that drift, and extra and stored_otherwise, which are no drift',
    );
    const verified = gauge(
      'slotsync_verified_age_seconds{stream}',
      'Since the last whole verify of the stream began; +Inf: never',
    );
    const processes = gauge(
      'slotsync_processes{command,state}',
      'Processes that work the queue: alive, or silent for 30 seconds because they were killed or are cut off',
    );
    const stopped = gauge(
      'slotsync_sending_stopped{command,host,pid}',
      '1 if the process sends nothing, else 0',
    );
    const stoppedFor = gauge(
      'slotsync_sending_stopped_seconds{command,host,pid,code}',
      'Since the process stopped sending, and why',
    );
    const answered = gauge(
      'slotsync_service_last_answer_seconds',
      'Since a request of any process ended, answered or not; +Inf: never',
    );
    const succeeded = gauge(
      'slotsync_service_last_success_seconds',
      'Since a request of any process was answered with 2xx; +Inf: never',
    );
    const load = gauge(
      'slotsync_load_age_seconds{stream}',
      'Age of the load of the mirror that a plan read last; +Inf: its time is not known',
    );
    const stale = gauge(
      'slotsync_source_stale{stream}',
      '1 if that load had a problem when it was read, else 0',
    );

    return (facts) => {
      const ageOf = (at: Date) => Math.max(0, (facts.now.getTime() - at.getTime()) / 1000);
      const ageOrNever = (at: Date | null | undefined) => (at ? ageOf(at) : Infinity);
      for (const lane of lanes) for (const empty of [jobs, oldest]) empty.set({ lane }, 0);
      for (const { lane, ...of } of facts.backlog) {
        jobs.set({ lane }, of.jobs);
        oldest.set({ lane }, of.oldestSeconds);
      }
      changes.set(facts.inboxAge.changes);
      oldestChange.set(facts.inboxAge.oldestSeconds);
      for (const { kind, status, seconds } of facts.durations) duration.set({ kind, status }, seconds);
      for (const { kind, status: own, pausedAt, requestedAt } of latestFirst(facts.unfinished)) {
        const labels = { kind, status: pausedAt ? 'paused' : own };
        unfinished.inc(labels);
        oldestRun.set(labels, ageOf(requestedAt)); // the oldest is set last
      }
      for (const stream of facts.configured) {
        const state = facts.streamStates.find((known) => known.stream === stream);
        success.set({ stream }, ageOrNever(state?.syncedAt));
        const pass = facts.verifications.find((verification) => verification.stream === stream);
        verified.set({ stream }, ageOrNever(pass?.verifiedAt));
        for (const kind of DRIFT_KINDS) drifting.set({ stream, kind }, 0);
      }
      for (const { stream, kind, count } of facts.drift) drifting.set({ stream, kind }, count);
      for (const { command } of facts.processes)
        for (const state of ['alive', 'silent']) processes.set({ command, state }, 0);
      for (const { isAlive, command } of facts.processes)
        processes.inc({ command, state: isAlive ? 'alive' : 'silent' });
      const alive = facts.processes.filter(({ isAlive }) => isAlive);
      for (const { command, host, pid } of alive) stopped.set({ command, host, pid }, 0);
      // Containers of one host may have the same process id: of two, the one that sends nothing is shown.
      for (const { command, host, pid, errorCode: code, stoppedSince } of alive.filter(isStopped)) {
        stopped.set({ command, host, pid }, 1);
        stoppedFor.set({ command, host, pid, code }, ageOf(stoppedSince));
      }
      answered.set(ageOrNever(facts.binding?.answeredAt));
      succeeded.set(ageOrNever(facts.binding?.succeededAt));
      for (const { stream, loadedAt, problem } of facts.loads) {
        const isKnown = problem !== 'unreadable' && problem !== 'future';
        load.set({ stream }, isKnown ? ageOrNever(loadedAt) : Infinity);
        stale.set({ stream }, problem === null ? 0 : 1);
      }
    };
  });

const latestFirst = (runs: GaugeFacts['unfinished']) =>
  runs.toSorted((a, b) => b.requestedAt.getTime() - a.requestedAt.getTime());

export const recordGauges = () =>
  gaugesOf<NonNullable<CountedFacts['records']>>('records', (gauge) => {
    const records = gauge('slotsync_state_records{stream,status}', 'Records by status');
    return (read) => {
      for (const { stream } of read)
        for (const status of ['failed', 'dead']) records.set({ stream, status }, 0);
      for (const { stream, status, count } of read) records.set({ stream, status }, count);
    };
  });

export const runGauges = () =>
  gaugesOf<NonNullable<CountedFacts['runs']>>('runs', (gauge) => {
    const held = gauge(
      'slotsync_held_records{stream,operation,answer}',
      "Records that a closed gate keeps back, by the name of the gate and an operator's answer",
    );
    const success = gauge(
      'slotsync_run_last_success_seconds{kind}',
      'Since a run of the kind succeeded, of sync since every stream was synced whole; +Inf: never',
    );
    return (read) => {
      for (const gate of read.gates)
        held.inc(
          { stream: gate.stream, operation: nameOfGate(gate), answer: factsOfGate(gate).answer ?? 'none' },
          gate.count,
        );
      for (const { kind, ageSeconds } of read.successes) success.set({ kind }, orNever(ageSeconds));
    };
  });

export const bookingGauges = () =>
  gaugesOf<NonNullable<CountedFacts['bookings']>>('bookings', (gauge) => {
    const bookings = gauge('slotsync_bookings{verdict}', 'Bookings by the verdict of the last comparison');
    const problems = gauge(
      'slotsync_booking_problems',
      'Bookings with something wrong in the mirror, whatever their verdict',
    );
    return (read) => {
      for (const { verdict, count } of read) bookings.set({ verdict }, count);
      problems.set(read.reduce((sum, one) => sum + one.problems, 0));
    };
  });

export const connectionGauges = () =>
  gaugesOf<NonNullable<CountedFacts['connections']>>('connections', (gauge) => {
    const connections = gauge(
      'slotsync_state_connections{duty}',
      "Connections of all processes to the state's database, by what they are for",
    );
    return (read) => {
      for (const { duty, count } of read) connections.set({ duty }, count);
    };
  });
