// Concerns about runs and what they may send: missing syncs, old mirror loads, gates, freezes, and failed runs.
import { approveCommand, rejectCommand } from '../../situation/commands.js';
import type { StandingFreeze } from '../../state/freezes.js';
import type { NotedLoad } from '../../state/streams.js';
import { type Gate, isApprovable, waitsForOperator } from '../../state/gates/gates.js';
import type { LoadProblem } from '../../state/schema.js';
import { describeLoad, toLoadFacts } from '../../sync/limits/load-age.js';
import { counted, formatNumber, plural, present, sum } from '../../text/format.js';
import { type Text, text } from '../document.js';
import { recordsOf, statusInWords } from '../causes.js';
import { DUE_IN_WORDS } from '../failures.js';
import { describeHeld, gateToPoint } from '../holds.js';
import { actionOnRun } from '../runs.js';
import {
  ago,
  earliest,
  type Ground,
  groupBy,
  kind,
  linkToRunAtBegin,
  listStreams,
  meaningOf,
  MOST_NAMED,
  nameRun,
  nameSome,
  remedyOf,
} from './concern.js';

const HOUR = 60 * 60_000;

export const RUNS = {
  /** A schedule's sync of all its streams was due, but none succeeded. `streams` is null for the nightly schedule. */
  no_success: kind<{ succeededAt: Date | null; streams: readonly string[] | null }>({
    severity: 'critical',
    /**
     * The schedule decides when a success is due, as it may not be daily. `noSuccessHours`: only for the nightly sync.
     */
    find: ({ succeededAt, begunAt, nightly, schedules, hasOwnTimes, now }, { noSuccessHours }) => {
      if (noSuccessHours === false) return [];
      const isDue = (at: Date | null, dueAt: Date | null | undefined) =>
        !!dueAt && (at === null || at < dueAt);
      const since = succeededAt ?? begunAt ?? nightly?.registeredAt ?? null;
      const isLate =
        noSuccessHours === undefined
          ? isDue(succeededAt, nightly?.successDueAt)
          : since !== null && now.getTime() - since.getTime() >= noSuccessHours * HOUR;
      const late = schedules.filter(({ succeededAt: at, successDueAt }) => isDue(at, successDueAt));
      const commands = ['slotsync runs --kind sync'];
      return [
        ...(isLate && !hasOwnTimes
          ? [{ id: 'no_success sync', since, facts: { succeededAt, streams: null }, commands }]
          : []),
        ...late.map(({ streams, succeededAt: at, registeredAt }) => ({
          id: `no_success ${streams.join(' ')}`,
          since: at ?? begunAt ?? registeredAt,
          facts: { succeededAt: at, streams },
          commands,
        })),
      ];
    },
    alert: { condition: 'no_success', after: () => 0 },
    short: () => 'no successful sync',
    say: ({ succeededAt, streams }, { since, now }) => ({
      status: 'failed',
      text: `No successful sync ${streams === null ? '' : `of ${nameSome(streams)} `}for ${since ? ago(since, now) : 'a long time'}`,
      details: [succeededAt ? text`The last: ${{ minute: succeededAt }}.` : 'No sync has succeeded yet.'],
    }),
  }),

  /** Streams whose mirror load is too old or otherwise wrong. Streams with the same problem are one concern. */
  source_stale: kind({
    severity: 'action',
    find: ({ loads, configured }) => {
      const stale = loads.flatMap(({ problem, ...load }) =>
        problem !== null && configured?.includes(load.stream) !== false ? [{ ...load, problem }] : [],
      );
      return groupBy(stale, ({ problem }) => `source_stale ${problem}`).map(([id, group, { problem }]) => ({
        id,
        since: earliest(group.map(({ readAt }) => readAt)),
        subject: group.map(({ stream }) => stream).join(', '),
        facts: { problem, loads: group },
        commands: ['slotsync check', 'slotsync sync'],
      }));
    },
    alert: { condition: 'source_stale', after: () => 0 },
    short: () => 'load of the mirror',
    say: ({ problem, loads }, { now }) => {
      const [load] = loads;
      const facts = toLoadFacts({ ...load, readAt: problem === 'too_old' ? now : load.readAt });
      const isOne = new Set(loads.map(({ loadedAt }) => loadedAt?.getTime())).size === 1;
      return {
        status: 'failed',
        text: `The load of the mirror ${facts && isOne ? describeLoad(facts) : `is ${IN_WORDS[problem]}`}: ${nameSome(loads.map(({ stream }) => stream))}`,
        details: [
          ...loads
            .slice(0, isOne ? 1 : MOST_NAMED)
            .map(
              ({ stream, loadedAt, readAt }) =>
                text`${isOne ? 'Loaded' : `${stream}: loaded`} ${loadedAt ? { minute: loadedAt } : 'at an unknown time'}; read ${{ minute: readAt }}.`,
            ),
          `${describeSent(loads)}, and runs do not count as succeeded.`,
        ],
        named: load.message === null ? [] : [`Why: ${load.message}.`],
        next: remedyOf('source_stale'),
      };
    },
  }),

  /** Streams that cannot be planned, or a failed run that only reads. `runId` is the latest such run, or null. */
  run_failed: kind({
    severity: 'action',
    find: (ground) => {
      const failed = findProblems(ground).filter(({ status }) => status === 'failed');
      return groupBy(failed, ({ kind: of, code }) => `run_failed ${of ?? 'stream'} ${code ?? 'unknown'}`).map(
        ([id, problems]) => {
          const { runId, kind: runKind, code } = latestOf(problems);
          const streams = streamsOf(problems);
          const command = runId === null ? ['slotsync sync', ...streams].join(' ') : `slotsync runs ${runId}`;
          return {
            id,
            since: earliest(problems.map(({ since }) => since)),
            subject: runId === null ? streams.join(' ') : `run ${runId}`,
            facts: { runId, runKind, code, streams },
            commands: [command],
          };
        },
      );
    },
    alert: { condition: 'run_failed', after: ({ runs }) => runs.includes('failed') && 0 },
    short: (all) => plural(all.length, 'failed run'),
    say: ({ runId, runKind, code, streams }) => ({
      status: 'failed',
      text:
        runId === null || runKind === null
          ? `${nameSome(streams)} cannot be read: ${code ?? 'unknown'}`
          : text`${nameRun(runId, runKind)} failed: ${code ?? 'unknown'}`,
      details: [...listStreams(streams), ...meaningOf(code)],
      next: remedyOf(code),
    }),
  }),

  /**
   * A closed gate. A gate with an operator's answer is only a notice: a run uses an approval, and a rejection holds
   * until the keys change. Gates that a freeze closed belong to the concern of the freeze.
   */
  gate: kind({
    severity: 'action',
    find: ({ gates, configured }) =>
      gates
        .filter(({ reason }) => reason !== 'frozen')
        .map((gate) => {
          const { stream, operation, reason, since } = gate;
          const isConfigured = configured?.includes(stream) !== false;
          const isWaiting = waitsForOperator(gate);
          return {
            id: `gate ${stream} ${operation} ${reason}`,
            severity: isWaiting ? 'action' : 'notice',
            since,
            subject: stream,
            facts: { ...gate, isConfigured },
            commands: isWaiting ? commandsOfGate(gate, isConfigured) : [],
          };
        }),
    alert: {
      condition: 'run_held',
      after: ({ runs }, { severity }) => severity !== 'notice' && runs.includes('held') && 0,
    },
    short: (all) => plural(all.length, 'hold'),
    listedBy: 'slotsync failures --status held',
    say: ({ isConfigured, ...gate }, { since }) => {
      const { stream } = gate;
      const { details, next, commands, ...point } = gateToPoint(gate);
      const isAnswered = !waitsForOperator(gate);
      return {
        ...point,
        text: text`${linkToRunAtBegin(gate.runId)} holds ${describeHeld(gate)}`,
        details: [
          text`${since && text`Held since ${{ minute: since }}. `}${
            isAnswered ? next : isConfigured ? describeGate(gate) : `${stream} is not in the configuration.`
          }`,
        ],
        named: details ?? [],
        next: !isConfigured
          ? `To send the records, add ${stream} to the configuration again. If ${stream} was renamed: slotsync rename-stream ${stream} <new>`
          : isAnswered
            ? undefined
            : next,
        actions: isConfigured ? commands : undefined,
      };
    },
  }),

  /**
   * Freezes in force, with the number of held records and of keys in the inbox. Freezes with the same end, reason and
   * author are one concern. A freeze needs no operator, so it is only a notice. `streams` is null if all streams are
   * frozen.
   */
  frozen: kind({
    severity: 'notice',
    find: ({ freezes, gates, inbox }) => {
      const alike = ({ endsAt, isDeclared, reason, frozenBy, streams, exceptStreams }: StandingFreeze) =>
        JSON.stringify([endsAt, isDeclared, reason, frozenBy, streams === null && exceptStreams]);
      const inForce = freezes.filter(({ isInForce }) => isInForce);
      return groupBy(inForce, alike).map(([, group, { endsAt, reason, isDeclared, exceptStreams }]) => {
        const streams = group[0].streams && group.flatMap((freeze) => freeze.streams ?? []);
        const isMeant = ({ stream }: { stream: string }) =>
          streams ? streams.includes(stream) : !exceptStreams.includes(stream);
        const held = gates.filter((gate) => gate.reason === 'frozen' && isMeant(gate));
        return {
          id: `frozen ${group[0].id}`,
          since: earliest(group.map(({ beginsAt }) => beginsAt)),
          subject: (streams ?? ['all streams']).join(' '),
          facts: {
            streams,
            exceptStreams,
            endsAt,
            reason,
            isDeclared,
            held: sum(held.map(({ count }) => count)),
            waiting: sum(inbox.streams.filter(isMeant).map(({ waiting }) => waiting)),
          },
          commands: isDeclared ? [] : [['slotsync unfreeze', ...(streams ?? [])].join(' ')],
        };
      });
    },
    say: ({ streams, exceptStreams, endsAt, reason, isDeclared, held, waiting }, { since }) => {
      const counted = present(
        held > 0 && `${plural(held, 'record')} held`,
        waiting > 0 && `${plural(waiting, 'key')} in the inbox`,
      ).join(' and ');
      const others = exceptStreams.length === 0 ? '' : ` but ${nameSome(exceptStreams)}`;
      return {
        status: 'paused',
        text: text`${streams === null ? `All streams${others}` : streams.join(', ')}: frozen until ${{ minute: endsAt }}, nothing is written`,
        details: present<Text>(
          counted === '' ? 'No changes wait yet.' : `Waiting: ${counted}. A freeze causes no alert.`,
          isDeclared && 'Set by `freeze` in the configuration.',
        ),
        named: [text`${since && text`Since ${{ minute: since }}. `}Reason: ${reason}`],
      };
    },
  }),

  /** Streams that need a whole sync for the same reason. A worker starts the sync, unless an operator cancelled it. */
  due: kind({
    severity: 'notice',
    find: ({ known }) =>
      groupBy(known.due, ({ reason }) => `due ${reason}`).map(([id, group, { reason }]) => {
        const streams = group.map(({ stream }) => stream);
        return {
          id,
          since: earliest(group.map(({ since }) => since)),
          subject: streams.join(' '),
          facts: { streams, reason },
          commands: [['slotsync sync', ...streams].join(' ')],
        };
      }),
    say: ({ streams, reason }, { since }) => ({
      status: 'pending',
      text: text`${nameSome(streams)} ${streams.length === 1 ? 'is' : 'are'} due for a whole sync${since && text` since ${{ minute: since }}`}: ${DUE_IN_WORDS[reason]}`,
      details: [
        reason === 'cancelled'
          ? 'The schedule or the command starts the sync; no worker does.'
          : 'A worker starts the sync. Without a worker, run the command.',
      ],
    }),
  }),

  run_paused: kind({
    severity: 'action',
    find: ({ unfinished }) =>
      unfinished
        .filter(({ pausedAt }) => pausedAt !== null)
        .map((run) => ({
          id: `run_paused ${run.id}`,
          since: run.pausedAt,
          subject: `run ${run.id}`,
          facts: { run },
          commands: [`slotsync resume ${run.id}`],
        })),
    short: (all) => plural(all.length, 'paused run'),
    say: ({ run }) => ({
      status: 'paused',
      text: text`${nameRun(run.id, run.kind)} has been paused since ${run.pausedAt && { minute: run.pausedAt }}`,
      actions: [actionOnRun(run, 'resume', 'Resume')],
    }),
  }),

  /** A partial run. `code`: reason for the whole run. Null if records of the stream were not accepted. */
  run_partial: kind({
    severity: 'notice',
    find: (ground) => {
      const partial = findProblems(ground).filter(({ status }) => status === 'partial');
      const isOfRecords = ({ failed, dead }: Problem) => failed + dead > 0;
      const asWhole = partial.filter(
        (one) => !isOfRecords(one) && one.code !== null && !CONCERNS_OF_THEIR_OWN.includes(one.code),
      );
      return [
        ...groupBy(partial.filter(isOfRecords), (one) => `run_partial ${one.kind} ${one.stream}`),
        ...groupBy(asWhole, (one) => `run_partial ${one.kind} ${one.code}`),
      ].map(([id, problems]) => {
        const { runId, kind: runKind, stream, failed, dead, code: ofLatest } = latestOf(problems);
        const code = failed + dead > 0 ? null : ofLatest;
        /** Number of failed records of the stream that are in the inbox to be sent again. */
        const sentAgain = sum(ground.causes.map((cause) => (cause.stream === stream ? cause.inInbox : 0)));
        return {
          id,
          since: earliest(problems.map(({ since }) => since)),
          subject: runId === null ? (stream ?? '') : `run ${runId}`,
          facts: { runId, runKind, code, streams: streamsOf(problems), failed, dead, sentAgain },
          commands: present<string>(
            code === null && `slotsync failures ${stream ?? ''}`.trim(),
            runId !== null && `slotsync runs ${runId}`,
          ),
        };
      });
    },
    alert: { condition: 'run_partial', after: ({ runs }) => runs.includes('partial') && 0 },
    say: ({ runId, runKind, code, streams, failed, dead, sentAgain }) => {
      const [stream = ''] = streams;
      const subject = runId === null || runKind === null ? nameSome(streams) : nameRun(runId, runKind);
      const counts = present(
        failed > 0 && `${formatNumber(failed)} failed`,
        dead > 0 && `${formatNumber(dead)} ${statusInWords('dead')}`,
      );
      return {
        status: 'partial',
        text: text`${subject} is partial: ${code ?? `${recordsOf(failed + dead, stream)} not accepted`}`,
        details: present<string>(
          code === null ? `${stream}: ${counts.join(', ')}.` : [...listStreams(streams), ...meaningOf(code)],
          code === null &&
            sentAgain > 0 &&
            counted`${sentAgain} record{|s} of ${stream} {is|are} in the inbox, and a worker sends them again.`,
        ),
        next: code === null ? undefined : remedyOf(code),
      };
    },
  }),
};

/** Error codes of partial runs that other concerns report already: a restored state, and an old load of the mirror. */
const CONCERNS_OF_THEIR_OWN = ['state_restored', 'source_stale'];

type Problem = ReturnType<typeof findProblems>[number];

/**
 * Returns current problems of streams, and of runs that only read. If only part of a stream was synced, its problem
 * with records ends when no record of the stream is failed or given up. `stream` is null for a reconcile, which has no
 * streams.
 */
function findProblems({ streamStates, badReadings, configured, causes }: Ground) {
  const hasFailures = (name: string) =>
    causes.some(({ stream, status }) => stream === name && (status === 'failed' || status === 'dead'));
  const ofStreams = streamStates.flatMap(({ stream, problem }) => {
    if (!problem || configured?.includes(stream) === false) return [];
    const { status, code, runId, runKind, failed, dead, isWhole } = problem;
    if (status === 'partial' && !isWhole && failed + dead > 0 && !hasFailures(stream)) return [];
    return [{ runId, kind: runKind, status, code, stream, failed, dead, since: new Date(problem.since) }];
  });
  const ofReadings = badReadings.flatMap(({ id, kind: of, status, errorCode: code, finishedAt, streams }) => {
    const found = { runId: id, kind: of, status, code, failed: 0, dead: 0, since: finishedAt };
    return (streams.length === 0 ? [null] : streams).map((stream) => ({ ...found, stream }));
  });
  return [...ofStreams, ...ofReadings];
}

const latestOf = (problems: readonly [Problem, ...Problem[]]) =>
  problems.reduce((last, one) => ((one.runId ?? 0) > (last.runId ?? 0) ? one : last));

const streamsOf = (problems: readonly Problem[]) => [
  ...new Set(problems.flatMap(({ stream }) => stream ?? [])),
];

function describeSent(loads: readonly NotedLoad[]): string {
  const held = loads.filter(({ holds }) => holds);
  if (held.length === 0) return 'Changes are sent nevertheless';
  if (held.length === loads.length) return 'Changes are held';
  return `Changes of ${nameSome(held.map(({ stream }) => stream))} are held, other changes are sent`;
}

const IN_WORDS: Record<LoadProblem, string> = {
  too_old: 'too old',
  older: 'older than the one before it',
  future: 'in the future',
  unreadable: 'of unknown time',
};

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

/** Describes a closed gate for alerts, without text of the service and without the reason of a freeze. */
function describeGate(gate: Gate): string {
  if (!isApprovable(gate)) {
    const why = gate.reason === 'forbidden' ? 'The service forbids the request' : 'Its source has no row';
    return `${why}. An approval cannot open the gate.`;
  }
  return gate.facts.load
    ? 'These records are sent when the mirror is loaded and synced again, or an operator approves them.'
    : 'These records are sent only when an operator approves them.';
}
