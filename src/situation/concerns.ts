// From the situation to the concerns: what of it needs somebody, or is to be known. One pure function. Every surface shows
// these, so that none leaves out what another calls wrong.
//
// A concern keeps its id for as long as it lasts: what may change while it lasts, such as a number or a run, is not in the
// id. No id names a key.
import { isDrift, isRepaired } from '../state/drift/read-drift.js';
import type { InboxOfStream } from '../state/inbox/read-inbox.js';
import type { StandingFreeze } from '../state/freezes.js';
import type { Process } from '../state/processes.js';
import type { Restored } from '../state/databases.js';
import type { NotedLoad } from '../state/freshness.js';
import type { EndedBadly } from '../state/runs/ended-badly.js';
import type { RunHold } from '../state/runs/holds.js';
import type { Run } from '../state/runs/read-runs.js';
import type { DriftKind, LoadProblem, RunKind, Verdict } from '../state/schema.js';
import type { WhyReadOnly } from '../state/state-role.js';
import { present } from '../text/format.js';
import { NIGHTLY } from '../time/schedule.js';
import type { Cause } from './causes.js';
import { approveCommand, commandOfCause, needsOperator, rejectCommand } from './commands.js';
import { findConfigurations, type FormerProcess, type WaitingRun } from './configurations.js';
import { findUntaken, type Untaken } from './inbox.js';
import type { Grounds, QuotaFacts, ScheduleFacts, Situation } from './situation.js';

/**
 * `critical`: nothing is sent, or what is known cannot be relied on. `action`: somebody has to decide or correct something.
 * `notice`: it ends on its own, or may be left as it is.
 */
export type Severity = 'critical' | 'action' | 'notice';

/** A process that lives and sends nothing. */
export type StoppedProcess = Process & { stoppedSince: Date; errorCode: string; errorMessage: string };

/** The facts of a concern, by its kind. */
export interface ConcernFacts {
  state_restored: Restored;
  state_read_only: { why: WhyReadOnly };
  quota_unavailable: { code: string };
  sending_stopped: { code: string; processes: readonly StoppedProcess[] };
  /** The latest run, and the streams of all of them. */
  run_failed: { runId: number; runKind: RunKind; code: string | null; streams: readonly string[] };
  /** No sync of all streams of a schedule has succeeded, and one was due. `streams`: null for the nightly one. */
  no_success: { succeededAt: Date | null; streams: readonly string[] | null };
  /** Unfinished runs, and no process is alive. */
  no_process: { runIds: readonly number[] };
  /** The schedule is registered, and no worker is alive to start it. */
  no_worker: { nextDue: Date; streams: readonly string[] | null };
  /** Loads with one problem. */
  source_stale: { problem: LoadProblem; loads: readonly [NotedLoad, ...NotedLoad[]] };
  /** Holds of one stream and operation, the latest run first. */
  run_held: { holds: readonly [RunHold, ...RunHold[]] };
  /** Streams that are frozen alike, and what of them waits: records held, and keys in the inbox. `endsAt`: null when it has ended. */
  frozen: {
    streams: readonly string[];
    endsAt: Date | null;
    reason: string;
    frozenBy: StandingFreeze['frozenBy'] | null;
    held: number;
    waiting: number;
  };
  run_paused: { run: Run };
  run_waiting: WaitingRun;
  /** Processes of one command. */
  configuration_former: { processes: readonly [FormerProcess, ...FormerProcess[]] };
  records: Cause;
  drift: {
    stream: string;
    kinds: readonly { kind: DriftKind; count: number }[];
    objects: number;
    repairable: number;
  };
  bookings: {
    bookings: number;
    verdicts: readonly { verdict: Verdict; bookings: number; problems: number }[];
  };
  /** The oldest of them has waited for too long. */
  inbox: InboxOfStream;
  /** Streams in the inbox that are not in the configuration, or that no running worker has. */
  inbox_unknown: Untaken;
  /** `code`: why it is partial as a whole; null: records of the stream were not accepted. */
  run_partial: {
    runId: number;
    runKind: RunKind;
    code: string | null;
    streams: readonly string[];
    failed: number;
    dead: number;
    /** The stream's failed records that are in the inbox to be sent again. */
    sentAgain: number;
  };
  /** Processes that were killed, are frozen, or cannot reach the state. `isMissed`: something waits for them. */
  process_silent: { processes: readonly Process[]; isMissed: boolean };
  claims_orphaned: { records: number; until: Date | null };
  unsent: { records: number; runIds: readonly number[] };
  in_doubt: { count: number; latest: Date | null };
  former_objects: { objects: number };
}

export type ConcernKind = keyof ConcernFacts;

interface ConcernOf<Kind extends ConcernKind> {
  id: string;
  kind: Kind;
  severity: Severity;
  /** Since when it is so; null: that is not known. */
  since: Date | null;
  /** The stream, run or process that it is about. Empty: all of it. */
  subject: string;
  facts: ConcernFacts[Kind];
  /** Commands that an operator runs. */
  commands: readonly string[];
}

export type Concern = { [Kind in ConcernKind]: ConcernOf<Kind> }[ConcernKind];

/** From when on something counts; false: never. */
export interface Limits {
  /** Unset: from two hours after a nightly sync was due. */
  noSuccessHours?: number | false | undefined;
  inboxMinutes: number | false;
}

/** As the configuration has it where it says nothing else. */
export const DEFAULT_LIMITS: Limits = { inboxMinutes: 60 };

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const SEVERITIES: readonly Severity[] = ['critical', 'action', 'notice'];
/** A worker that was killed is worth a look for this long, where others have taken over what it had. */
const SILENT_SHOWN_MS = 24 * HOUR;

/** The ground of alerts; with the whole situation, also notices that never become one. */
type Ground = Grounds & Partial<Leftovers> & { quota?: QuotaFacts | null };
type Leftovers = Pick<Situation, 'inDoubt' | 'formerObjects' | 'orphanedClaims'>;

/** Everything that concerns somebody, the most severe first. */
export function concerns(situation: Ground, limits: Limits = DEFAULT_LIMITS): Concern[] {
  return [
    ...findReadOnly(situation),
    ...findRestored(situation),
    ...findQuota(situation),
    ...findStopped(situation),
    ...findUnworked(situation),
    ...findNoSuccess(situation, limits),
    ...findStaleLoads(situation),
    ...findFailed(situation),
    ...findHeld(situation),
    ...findFrozen(situation),
    ...findPaused(situation),
    ...findConfiguration(situation),
    ...findRecords(situation),
    ...findDrift(situation),
    ...findBookings(situation),
    ...findInbox(situation, limits),
    ...findPartial(situation),
    ...findLeft(situation),
  ].toSorted((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity));
}

/** Whether somebody has to decide or correct something. */
export const needsPerson = ({ severity }: Pick<Concern, 'severity'>): boolean => severity !== 'notice';

function findReadOnly({ whyReadOnly: why }: Grounds): Concern[] {
  return why === null ? [] : [concern('state_read_only', 'critical', { why })];
}

function findRestored({ known: { restored } }: Grounds): Concern[] {
  if (restored === null) return [];
  const commands = ['slotsync verify --repair'];
  return [concern('state_restored', 'critical', restored, { since: restored.since, commands })];
}

function findQuota({ quota }: { quota?: QuotaFacts | null }): Concern[] {
  if (!quota || !('unknown' in quota)) return [];
  return [concern('quota_unavailable', 'critical', { code: quota.unknown })];
}

export const isStopped = (process: Process): process is StoppedProcess =>
  process.isAlive && process.stoppedSince !== null;

function findStopped({ processes }: Grounds): Concern[] {
  return groupBy(processes.filter(isStopped), ({ errorCode }) => `sending_stopped ${errorCode}`).map(
    ([id, stopped, { errorCode: code }]) => {
      const since = earliest(stopped.map(({ stoppedSince }) => stoppedSince));
      return concern(
        'sending_stopped',
        'critical',
        { code, processes: stopped },
        { id, since, subject: code },
      );
    },
  );
}

/** Runs that no process works on, and a schedule that no worker follows. */
function findUnworked(situation: Grounds): Concern[] {
  const { processes } = situation;
  const next = listSchedules(situation).toSorted((a, b) => a.nextDue.getTime() - b.nextDue.getTime())[0];
  const since = latest(processes.map(({ seenAt }) => seenAt));
  const commands = ['slotsync worker'];
  const runIds = findUnworkedRuns(situation);
  const hasWorker = processes.some(({ isAlive, command }) => isAlive && command === 'worker');
  return present<Concern>(
    runIds.length > 0 && concern('no_process', 'critical', { runIds }, { since, commands }),
    next &&
      !hasWorker &&
      concern(
        'no_worker',
        'action',
        { nextDue: next.nextDue, streams: ownStreams(next) },
        { since: since ?? next.registeredAt, commands },
      ),
  );
}

/** Unfinished runs, while no process is alive. */
function findUnworkedRuns({ unfinished, processes }: Grounds): number[] {
  if (processes.some(({ isAlive }) => isAlive)) return [];
  return unfinished.flatMap((run) => (run.pausedAt === null ? [run.id] : []));
}

/** A schedule says itself when the next success is due: not every pattern is of every day. The hours are of the nightly one. */
function findNoSuccess(situation: Grounds, { noSuccessHours }: Limits): Concern[] {
  if (noSuccessHours === false) return [];
  const { succeededAt, begunAt, nightly, schedules, hasOwnTimes, now } = situation;
  const whole = {
    id: 'no_success sync',
    streams: null,
    schedule: nightly,
    succeededAt,
    hours: noSuccessHours,
  };
  const found = [
    ...(hasOwnTimes ? [] : [whole]),
    ...schedules.map((schedule) => ({
      id: `no_success ${schedule.streams.join(' ')}`,
      streams: ownStreams(schedule),
      schedule,
      succeededAt: schedule.succeededAt,
      hours: undefined,
    })),
  ];
  return found.flatMap(({ id, streams, schedule, succeededAt: at, hours }) => {
    const since = at ?? begunAt ?? schedule?.registeredAt ?? null;
    const dueAt = schedule?.successDueAt ?? null;
    const isLate =
      hours === undefined
        ? dueAt !== null && (at === null || at < dueAt)
        : since !== null && now.getTime() - since.getTime() >= hours * HOUR;
    const commands = ['slotsync runs --kind sync'];
    return isLate && since !== null
      ? [concern('no_success', 'critical', { succeededAt: at, streams }, { id, since, commands })]
      : [];
  });
}

const listSchedules = ({ nightly, schedules }: Grounds) => [...(nightly ? [nightly] : []), ...schedules];

/** The streams of a schedule of their own; null: it is the nightly one. */
const ownStreams = ({ name, streams }: ScheduleFacts) => (name === NIGHTLY ? null : streams);

/** Streams of one load have the problem together. */
function findStaleLoads({ loads, configured }: Grounds): Concern[] {
  const stale = loads.flatMap(({ problem, ...load }) =>
    problem !== null && configured?.includes(load.stream) !== false ? [{ ...load, problem }] : [],
  );
  return groupBy(stale, ({ problem }) => `source_stale ${problem}`).map(([id, group, { problem }]) =>
    concern(
      'source_stale',
      'action',
      { problem, loads: group },
      {
        id,
        since: earliest(group.map(({ readAt }) => readAt)),
        subject: group.map(({ stream }) => stream).join(', '),
        commands: ['slotsync check', 'slotsync sync'],
      },
    ),
  );
}

function findFailed({ endedBadly }: Grounds): Concern[] {
  const failed = endedBadly.filter(({ status }) => status === 'failed');
  return groupBy(failed, ({ kind, errorCode }) => `run_failed ${kind} ${errorCode ?? 'unknown'}`).map(
    ([id, rows, { runId, kind: runKind, errorCode: code }]) =>
      concern(
        'run_failed',
        'action',
        { runId, runKind, code, streams: streamsOf(rows) },
        { id, subject: `run ${runId}`, commands: [`slotsync runs ${runId}`] },
      ),
  );
}

const isFrozen = ({ operation }: Pick<RunHold, 'operation'>) => operation === 'frozen';

/** Nobody has to act for what waits for the end of a freeze, so it is said here alone. Then a worker plans it. */
function findFrozen({ freezes, holds, inbox }: Grounds): Concern[] {
  const inForce = freezes.filter(({ isInForce }) => isInForce);
  const frozen = groupBy(inForce, ({ endsAt, frozenBy, reason }) =>
    JSON.stringify([endsAt, frozenBy, reason]),
  );
  const ended = holds.filter(
    (hold) => isFrozen(hold) && !inForce.some(({ stream }) => stream === hold.stream),
  );
  const waitingOf = (streams: readonly string[]) => ({
    streams,
    held: sum(holds.map((hold) => (isFrozen(hold) && streams.includes(hold.stream) ? hold.count : 0))),
    waiting: sum(inbox.streams.map(({ stream, waiting }) => (streams.includes(stream) ? waiting : 0))),
  });
  return [
    ...frozen.map(([, group, { beginsAt: since, endsAt, reason, frozenBy }]) => {
      const facts = { ...waitingOf(group.map(({ stream }) => stream)), endsAt, reason, frozenBy };
      const commands = frozenBy === 'command' ? [['slotsync unfreeze', ...facts.streams].join(' ')] : [];
      const subject = facts.streams.join(' ');
      return concern('frozen', 'notice', facts, { id: `frozen ${subject}`, since, subject, commands });
    }),
    ...groupBy(ended, ({ stream }) => stream).map(
      ([
        subject,
        ,
        {
          facts: { frozen: reason = '' },
        },
      ]) => {
        const facts = { ...waitingOf([subject]), endsAt: null, reason, frozenBy: null };
        const commands = [`slotsync sync ${subject}`];
        return concern('frozen', 'notice', facts, { id: `frozen ${subject}`, subject, commands });
      },
    ),
  ];
}

/** Nobody has to act while the run of an approval does what was held. */
function findHeld({ holds }: Grounds): Concern[] {
  const forApproval = holds.filter((hold) => !isFrozen(hold));
  return groupBy(forApproval, ({ stream, operation }) => `run_held ${stream} ${operation}`).map(
    ([id, group]) => {
      const [hold] = group;
      const isApproved = group.every(({ approvedFor }) => approvedFor !== null);
      return concern(
        'run_held',
        isApproved ? 'notice' : 'action',
        { holds: group },
        {
          id,
          since: earliest(group.map(({ requestedAt }) => requestedAt)),
          subject: hold.stream,
          commands: isApproved ? [] : present(hold.approvable && approveCommand(hold), rejectCommand(hold)),
        },
      );
    },
  );
}

function findPaused({ unfinished }: Grounds): Concern[] {
  return unfinished
    .filter(({ pausedAt }) => pausedAt !== null)
    .map((run) =>
      concern(
        'run_paused',
        'action',
        { run },
        {
          id: `run_paused ${run.id}`,
          since: run.pausedAt,
          subject: `run ${run.id}`,
          commands: [`slotsync resume ${run.id}`],
        },
      ),
    );
}

function findConfiguration({ processes, unfinished }: Grounds): Concern[] {
  const { waiting, former } = findConfigurations(processes, unfinished);
  const loadedAt = latest(processes.flatMap((process) => process.configurationLoadedAt ?? []));
  return [
    ...waiting.map((run) =>
      concern('run_waiting', 'action', run, {
        id: `run_waiting ${run.id}`,
        subject: `run ${run.id}`,
        commands: run.isFormer ? [`slotsync cancel ${run.id}`, 'slotsync sync'] : ['slotsync sync'],
      }),
    ),
    ...groupBy(former, ({ command }) => `configuration_former ${command}`).map(([id, group]) =>
      concern(
        'configuration_former',
        'action',
        { processes: group },
        {
          id,
          since: earliest(group.flatMap((process) => process.configurationChangedAt ?? [])) ?? loadedAt,
          subject: group[0].command,
        },
      ),
    ),
  ];
}

/** Holds are a concern of their own, and records on their way are no concern. */
function findRecords({ causes }: Grounds): Concern[] {
  return causes
    .filter((cause) => cause.status !== 'held' && !isOnItsWay(cause))
    .map((cause) =>
      concern('records', needsOperator(cause) ? 'action' : 'notice', cause, {
        id: ['records', cause.stream, cause.status, cause.code ?? ''].join(' ').trim(),
        since: cause.since,
        subject: cause.stream,
        commands: [commandOfCause(cause)],
      }),
    );
}

/** A run sends it, or a worker takes it from the inbox: it has not failed, and nobody has to act. */
export const isOnItsWay = ({ status, inInbox, records, isConfigured }: Cause): boolean =>
  isConfigured !== false && (status === 'pending' || (status === 'failed' && inInbox === records));

function findDrift({ drift }: Grounds): Concern[] {
  const drifting = drift.filter(({ kind }) => isDrift(kind));
  return groupBy(drifting, ({ stream }) => `drift ${stream}`).map(([id, counted, { stream }]) => {
    const objects = counted.reduce((sum, { count }) => sum + count, 0);
    const repairable = counted.reduce((sum, { kind, count }) => sum + (isRepaired(kind) ? count : 0), 0);
    const kinds = counted.map(({ kind, count }) => ({ kind, count }));
    return concern(
      'drift',
      'action',
      { stream, kinds, objects, repairable },
      {
        id,
        subject: stream,
        commands: present<string>(
          `slotsync verify ${stream}`,
          repairable > 0 && `slotsync verify ${stream} --repair`,
        ),
      },
    );
  });
}

function findBookings({ discrepancies }: Grounds): Concern[] {
  if (discrepancies.length === 0) return [];
  const verdicts = discrepancies.map(({ verdict, count, problems }) => ({
    verdict,
    bookings: count,
    problems,
  }));
  const bookings = discrepancies.reduce((sum, { count }) => sum + count, 0);
  return [concern('bookings', 'action', { bookings, verdicts }, { commands: ['slotsync reconcile'] })];
}

const INBOX_IDS = {
  not_configured: 'inbox (not configured)',
  unknown_to_workers: 'inbox (no worker has it)',
};

/** Other programs may add any name: those that nobody takes are one concern. Without a worker, only what is old is one. */
function findInbox(situation: Grounds, { inboxMinutes }: Limits): Concern[] {
  const { inbox, now } = situation;
  const sinceOf = ({ oldestSeconds }: { oldestSeconds: number }) =>
    new Date(now.getTime() - oldestSeconds * 1000);
  const unknown = findUntaken(situation).flatMap(({ why, ...of }) =>
    why === 'no_worker' ? [] : [{ why, ...of }],
  );
  const isFrozenNow = ({ stream }: InboxOfStream) =>
    situation.freezes.some((freeze) => freeze.isInForce && freeze.stream === stream);
  const isUnknown = ({ stream }: InboxOfStream) => unknown.some(({ streams }) => streams.includes(stream));
  const old = inbox.streams.filter(
    (waiting) =>
      !isUnknown(waiting) &&
      !isFrozenNow(waiting) &&
      inboxMinutes !== false &&
      waiting.oldestSeconds * 1000 >= inboxMinutes * MINUTE,
  );
  return [
    ...old.map((waiting) =>
      concern('inbox', 'action', waiting, {
        id: `inbox ${waiting.stream}`,
        since: sinceOf(waiting),
        subject: waiting.stream,
      }),
    ),
    ...unknown.map((untaken) =>
      concern('inbox_unknown', 'action', untaken, { id: INBOX_IDS[untaken.why], since: sinceOf(untaken) }),
    ),
  ];
}

/** A state that was restored, and a load that is too old. */
const CONCERNS_OF_THEIR_OWN = ['state_restored', 'source_stale'];

/** The records that were not accepted are concerns themselves, for as long as they are not in sync. */
function findPartial({ endedBadly, causes }: Grounds): Concern[] {
  const partial = endedBadly.filter(({ status }) => status === 'partial');
  const byStream = groupBy(
    partial.filter(({ failed, dead }) => failed + dead > 0),
    ({ kind, stream }) => `run_partial ${kind} ${stream}`,
  );
  const asWhole = groupBy(
    partial.filter(({ errorCode }) => errorCode !== null && !CONCERNS_OF_THEIR_OWN.includes(errorCode)),
    ({ kind, errorCode }) => `run_partial ${kind} ${errorCode}`,
  );
  return [
    ...byStream.map(([id, , { runId, kind: runKind, stream, failed, dead }]) => {
      const sentAgain = causes.reduce((sum, cause) => sum + (cause.stream === stream ? cause.inInbox : 0), 0);
      const streams = stream === null ? [] : [stream];
      return concern(
        'run_partial',
        'notice',
        { runId, runKind, code: null, streams, failed, dead, sentAgain },
        {
          id,
          subject: `run ${runId}`,
          commands: [`slotsync failures ${streams.join('')}`.trim(), `slotsync runs ${runId}`],
        },
      );
    }),
    ...asWhole.map(([id, rows, { runId, kind: runKind, errorCode: code }]) =>
      concern(
        'run_partial',
        'notice',
        { runId, runKind, code, streams: streamsOf(rows), failed: 0, dead: 0, sentAgain: 0 },
        { id, subject: `run ${runId}`, commands: [`slotsync runs ${runId}`] },
      ),
    ),
  ];
}

/** Leftovers that are cleared up without anybody. */
function findLeft(situation: Ground): Concern[] {
  const { processes, known, orphanedClaims, inDoubt, formerObjects, now } = situation;
  const isMissed = (orphanedClaims?.records ?? 0) > 0 || findUnworkedRuns(situation).length > 0;
  const isShown = ({ command, seenAt }: Process) =>
    isMissed || (command === 'worker' && now.getTime() - seenAt.getTime() < SILENT_SHOWN_MS);
  const silent = processes
    .filter((process) => !process.isAlive && isShown(process))
    .toSorted((a, b) => b.seenAt.getTime() - a.seenAt.getTime());
  const unsent = known.unsent.filter(({ isUnderWay }) => !isUnderWay);
  const unsentFacts = {
    records: unsent.reduce((sum, { records }) => sum + records, 0),
    runIds: unsent.map(({ runId }) => runId),
  };
  return present<Concern>(
    silent.length > 0 &&
      concern(
        'process_silent',
        'notice',
        { processes: silent, isMissed },
        { since: silent[0]?.seenAt ?? null },
      ),
    orphanedClaims && orphanedClaims.records > 0 && concern('claims_orphaned', 'notice', orphanedClaims),
    unsent.length > 0 && concern('unsent', 'notice', unsentFacts, { commands: ['slotsync plan'] }),
    inDoubt && inDoubt.count > 0 && concern('in_doubt', 'notice', inDoubt),
    formerObjects !== undefined &&
      formerObjects > 0 &&
      concern(
        'former_objects',
        'notice',
        { objects: formerObjects },
        { commands: ['slotsync retry --all --retire-former'] },
      ),
  );
}

/** By its kind unless it has an id. */
function concern<Kind extends ConcernKind>(
  kind: Kind,
  severity: Severity,
  facts: ConcernFacts[Kind],
  { id = kind, since = null, subject = '', commands = [] }: Partial<ConcernOf<Kind>> = {},
): Concern {
  return { id, kind, severity, since, subject, facts, commands } as Concern;
}

const streamsOf = (rows: readonly EndedBadly[]) => [
  ...new Set(rows.flatMap(({ stream }) => (stream === null ? [] : [stream]))),
];

const latest = (times: readonly Date[]) =>
  times.length === 0 ? null : new Date(Math.max(...times.map((time) => time.getTime())));
const earliest = (times: readonly Date[]) =>
  times.length === 0 ? null : new Date(Math.min(...times.map((time) => time.getTime())));

const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0);

type Group<T> = [name: string, group: readonly [T, ...T[]], last: T];

/** Groups with their name, all of the group, and its last. */
function groupBy<T>(all: readonly T[], nameOf: (element: T) => string): Group<T>[] {
  const groups = new Map<string, [T, ...T[]]>();
  for (const element of all) {
    const group = groups.get(nameOf(element));
    if (group) group.push(element);
    else groups.set(nameOf(element), [element]);
  }
  return [...groups].map(([name, group]) => [name, group, group.at(-1) ?? group[0]]);
}
