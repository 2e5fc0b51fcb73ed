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
import { isApprovable, waitsForOperator, type Gate } from '../state/gates/gates.js';
import type { Run } from '../state/runs/read-runs.js';
import type { DriftKind, DueReason, LoadProblem, RunKind, Verdict } from '../state/schema.js';
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
  /** Streams that cannot be read or planned, or a run that only reads. `runId`: the latest run; null: none met it. */
  run_failed: {
    runId: number | null;
    runKind: RunKind | null;
    code: string | null;
    streams: readonly string[];
  };
  /** No sync of all streams of a schedule has succeeded, and one was due. `streams`: null for the nightly one. */
  no_success: { succeededAt: Date | null; streams: readonly string[] | null };
  /** Unfinished runs, and no process is alive. */
  no_process: { runIds: readonly number[] };
  /** The schedule is registered, and no worker is alive to start it. */
  no_worker: { nextDue: Date; streams: readonly string[] | null };
  /** Loads with one problem. */
  source_stale: { problem: LoadProblem; loads: readonly [NotedLoad, ...NotedLoad[]] };
  /** A closed gate. A gate that a freeze closed is one of the freeze. */
  gate: Gate & { isConfigured: boolean };
  /** Streams that are frozen alike, and what of them waits: records held, and keys in the inbox. `streams`: null for all. */
  frozen: Pick<StandingFreeze, 'streams' | 'exceptStreams' | 'endsAt' | 'reason' | 'isDeclared'> & {
    held: number;
    waiting: number;
  };
  /** Streams that need a whole sync for the same reason. */
  due: { streams: readonly string[]; reason: DueReason };
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
  /** Streams whose triggers were installed, and are gone or disabled. */
  triggers_gone: { streams: readonly string[] };
  /** `code`: why it is partial as a whole; null: records of the stream were not accepted. */
  run_partial: {
    runId: number | null;
    runKind: RunKind | null;
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
    ...findGates(situation),
    ...findFrozen(situation),
    ...findDue(situation),
    ...findPaused(situation),
    ...findConfiguration(situation),
    ...findRecords(situation),
    ...findDrift(situation),
    ...findBookings(situation),
    ...findInbox(situation, limits),
    ...findTriggers(situation),
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

/** A problem of a stream, or of a run that only reads, that stands. */
interface Problem {
  runId: number | null;
  kind: RunKind | null;
  status: 'failed' | 'partial';
  code: string | null;
  /** Null in a reconcile, which is of no stream. */
  stream: string | null;
  failed: number;
  dead: number;
  since: Date;
}

/** A problem that a part of a stream had with its records stands only while a record of the stream is failed or given up. */
function findProblems({ streamStates, badReadings, configured, causes }: ProblemGrounds): Problem[] {
  const hasFailures = (name: string) =>
    causes.some(({ stream, status }) => stream === name && (status === 'failed' || status === 'dead'));
  const ofStreams = streamStates.flatMap(({ stream, problem }) => {
    if (!problem || configured?.includes(stream) === false) return [];
    const { status, code, runId, runKind: kind, failed, dead, isWhole } = problem;
    const isOver = status === 'partial' && !isWhole && failed + dead > 0 && !hasFailures(stream);
    const since = new Date(problem.since);
    return isOver ? [] : [{ runId, kind, status, code, stream, failed, dead, since }];
  });
  const ofReadings = badReadings.flatMap(
    ({ id: runId, errorCode: code, finishedAt: since, streams, ...reading }) =>
      (streams.length === 0 ? [null] : streams).map((stream) => {
        const { kind, status } = reading;
        return { runId, kind, status, code, stream, failed: 0, dead: 0, since };
      }),
  );
  return [...ofStreams, ...ofReadings];
}

type ProblemGrounds = Pick<Grounds, 'streamStates' | 'badReadings' | 'configured' | 'causes'>;

function findFailed(situation: Grounds): Concern[] {
  const failed = findProblems(situation).filter(({ status }) => status === 'failed');
  return groupBy(failed, ({ kind, code }) => `run_failed ${kind ?? 'stream'} ${code ?? 'unknown'}`).map(
    ([id, rows]) => {
      const { runId, kind: runKind, code } = latestOf(rows);
      const streams = streamsOf(rows);
      return concern(
        'run_failed',
        'action',
        { runId, runKind, code, streams },
        {
          id,
          since: earliest(rows.map(({ since }) => since)),
          subject: runId === null ? streams.join(' ') : `run ${runId}`,
          commands: [runId === null ? ['slotsync sync', ...streams].join(' ') : `slotsync runs ${runId}`],
        },
      );
    },
  );
}

/** Freezes that are in force, each with the number of records that it keeps back: they need nobody, so they are no failures. */
function findFrozen({ freezes, gates, inbox }: Grounds): Concern[] {
  const inForce = freezes.filter(({ isInForce }) => isInForce);
  const alike = ({ endsAt, isDeclared, reason, frozenBy, streams, exceptStreams }: StandingFreeze) =>
    JSON.stringify([endsAt, isDeclared, reason, frozenBy, streams === null && exceptStreams]);
  return groupBy(inForce, alike).map(([, group, { endsAt, reason, isDeclared, exceptStreams }]) => {
    const own = group[0].streams && group.flatMap(({ streams }) => streams ?? []);
    const isMeant = (stream: string) => (own ? own.includes(stream) : !exceptStreams.includes(stream));
    const held = sum(
      gates.map((gate) => (gate.reason === 'frozen' && isMeant(gate.stream) ? gate.count : 0)),
    );
    const waiting = sum(inbox.streams.map(({ stream, waiting: keys }) => (isMeant(stream) ? keys : 0)));
    return concern(
      'frozen',
      'notice',
      { streams: own, exceptStreams, endsAt, reason, isDeclared, held, waiting },
      {
        id: `frozen ${group[0].id}`,
        since: earliest(group.map(({ beginsAt }) => beginsAt)),
        subject: (own ?? ['all streams']).join(' '),
        commands: isDeclared ? [] : [['slotsync unfreeze', ...(own ?? [])].join(' ')],
      },
    );
  });
}

/** A freeze of all streams or of this one is in force. */
const isFrozen = ({ freezes }: Pick<Grounds, 'freezes'>, stream: string) =>
  freezes.some(
    ({ isInForce, streams, exceptStreams }) =>
      isInForce && (streams ? streams.includes(stream) : !exceptStreams.includes(stream)),
  );

/** A gate that is answered needs nobody: an approval is used by its run, and a rejection stands until the keys change. */
function findGates({ gates, configured }: Grounds): Concern[] {
  return gates
    .filter(({ reason }) => reason !== 'frozen')
    .map((gate) => {
      const { stream, operation, reason, since } = gate;
      const isConfigured = configured?.includes(stream) !== false;
      const isWaiting = waitsForOperator(gate);
      return concern(
        'gate',
        isWaiting ? 'action' : 'notice',
        { ...gate, isConfigured },
        {
          id: `gate ${stream} ${operation} ${reason}`,
          since,
          subject: stream,
          commands: isWaiting ? commandsOfGate(gate, isConfigured) : [],
        },
      );
    });
}

function commandsOfGate(gate: Gate, isConfigured: boolean): string[] {
  const { stream, reason, facts } = gate;
  if (!isConfigured) return [`slotsync rename-stream ${stream} <new>`];
  const [former] = Object.keys(facts.formerStreams ?? {});
  return present<string>(
    former !== undefined && `slotsync rename-stream ${former} ${stream}`,
    (reason === 'empty_source' || reason === 'forbidden') && `slotsync sync ${stream}`,
    isApprovable(gate) && approveCommand(gate),
    rejectCommand(gate),
  );
}

/** A worker starts these syncs, unless an operator has cancelled them. */
function findDue({ known: { due } }: Grounds): Concern[] {
  return groupBy(due, ({ reason }) => `due ${reason}`).map(([id, group, { reason }]) => {
    const streams = group.map(({ stream }) => stream);
    return concern(
      'due',
      'notice',
      { streams, reason },
      {
        id,
        since: earliest(group.map(({ since }) => since)),
        subject: streams.join(' '),
        commands: [['slotsync sync', ...streams].join(' ')],
      },
    );
  });
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
  const isUnknown = ({ stream }: InboxOfStream) => unknown.some(({ streams }) => streams.includes(stream));
  const old = inbox.streams.filter(
    (waiting) =>
      !isUnknown(waiting) &&
      !isFrozen(situation, waiting.stream) &&
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
function findTriggers({ lostTriggers: streams }: Grounds): Concern[] {
  if (streams.length === 0) return [];
  const commands = [['slotsync triggers install', ...streams].join(' ')];
  return [concern('triggers_gone', 'action', { streams }, { subject: streams.join(', '), commands })];
}

function findPartial(situation: Grounds): Concern[] {
  const partial = findProblems(situation).filter(({ status }) => status === 'partial');
  const byStream = groupBy(
    partial.filter(({ failed, dead }) => failed + dead > 0),
    ({ kind, stream }) => `run_partial ${kind} ${stream}`,
  );
  const asWhole = groupBy(
    partial.filter(
      ({ code, failed, dead }) =>
        failed + dead === 0 && code !== null && !CONCERNS_OF_THEIR_OWN.includes(code),
    ),
    ({ kind, code }) => `run_partial ${kind} ${code}`,
  );
  return [...byStream, ...asWhole].map(([id, rows]) => {
    const { runId, kind: runKind, stream, failed, dead, ...latestRow } = latestOf(rows);
    const code = failed + dead > 0 ? null : latestRow.code;
    const sentAgain = sum(situation.causes.map((cause) => (cause.stream === stream ? cause.inInbox : 0)));
    return concern(
      'run_partial',
      'notice',
      { runId, runKind, code, streams: streamsOf(rows), failed, dead, sentAgain },
      {
        id,
        since: earliest(rows.map(({ since }) => since)),
        subject: runId === null ? (stream ?? '') : `run ${runId}`,
        commands: present<string>(
          code === null && `slotsync failures ${stream ?? ''}`.trim(),
          runId !== null && `slotsync runs ${runId}`,
        ),
      },
    );
  });
}

/** The row of the latest run. */
const latestOf = (rows: readonly [Problem, ...Problem[]]): Problem =>
  rows.reduce((last, row) => ((row.runId ?? 0) > (last.runId ?? 0) ? row : last));

/** Leftovers that are cleared up without anybody. */
function findLeft(situation: Ground): Concern[] {
  const { processes, orphanedClaims, inDoubt, formerObjects, now } = situation;
  const isMissed = (orphanedClaims?.records ?? 0) > 0 || findUnworkedRuns(situation).length > 0;
  const isShown = ({ command, seenAt }: Process) =>
    isMissed || (command === 'worker' && now.getTime() - seenAt.getTime() < SILENT_SHOWN_MS);
  const silent = processes
    .filter((process) => !process.isAlive && isShown(process))
    .toSorted((a, b) => b.seenAt.getTime() - a.seenAt.getTime());
  return present<Concern>(
    silent.length > 0 &&
      concern(
        'process_silent',
        'notice',
        { processes: silent, isMissed },
        { since: silent[0]?.seenAt ?? null },
      ),
    orphanedClaims && orphanedClaims.records > 0 && concern('claims_orphaned', 'notice', orphanedClaims),
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

const streamsOf = (rows: readonly Problem[]) => [
  ...new Set(rows.flatMap(({ stream }) => (stream === null ? [] : [stream]))),
];

const latest = (times: readonly Date[]) =>
  times.length === 0 ? null : times.reduce((one, other) => (one < other ? other : one));
const earliest = (times: readonly Date[]) =>
  times.length === 0 ? null : times.reduce((one, other) => (other < one ? other : one));

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
