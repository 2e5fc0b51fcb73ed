// Concerns in sentences: one place for status, the page, the report and alerts.
import { errorEntry, remedyFor } from '../errors/error-catalogue.js';
import type { Concern, ConcernKind } from '../situation/concerns.js';
import { needsPerson } from '../situation/concerns.js';
import type { Cause } from '../situation/causes.js';
import type { FormerProcess } from '../situation/configurations.js';
import type { NotedLoad } from '../state/freshness.js';
import type { Process } from '../state/processes.js';
import { isApprovable, type Gate } from '../state/gates/gates.js';
import type { LoadProblem, RunKind } from '../state/schema.js';
import { describeLoad, toLoadFacts } from '../sync/limits/load-age.js';
import { formatDuration, formatNumber, plural, present } from '../text/format.js';
import { nextOfVerdict, VERDICT_MEANINGS } from './bookings.js';
import { addressOfRun, joinTexts, text, type Action, type Part, type Point, type Text } from './document.js';
import { causeToPoint, DUE_IN_WORDS, recordsOf, statusInWords } from './failures.js';
import { describeHeld, gateToPoint } from './holds.js';
import { actionOnRun } from './runs.js';

/** A concern in sentences. Only `named` and `samples` may name a key, a host, or what another system said. */
interface Sentences {
  /** The word of the sign before it. */
  status: string;
  text: Text;
  details?: readonly Text[];
  named?: readonly Text[];
  samples?: readonly string[] | undefined;
  next?: Text | undefined;
  /** Buttons for its commands. */
  actions?: readonly (string | Action)[] | undefined;
}

type Describe = {
  [Kind in ConcernKind]: (concern: Extract<Concern, { kind: Kind }>, now: Date) => Sentences;
};

const MOST_NAMED = 3;
const MOST_STREAMS = 10;

/** As every surface shows it to an operator. */
export function concernToPoint(concern: Concern, now: Date): Point {
  if (concern.kind === 'records') return causeToPoint(concern.facts, now);
  const { details = [], named = [], actions = concern.commands, ...point } = describe(concern, now);
  return { ...point, details: [...details, ...named], commands: actions };
}

/** The text for other places: without a key, a host, or what another system said. */
export function concernToNotice(concern: Concern, now: Date): Pick<Point, 'text' | 'details'> {
  const { text: title, details = [], next } = describe(concern, now);
  return { text: title, details: present<Text>(details, next) };
}

function describe(concern: Concern, now: Date): Sentences {
  const sentences: (concern: never, now: Date) => Sentences = SENTENCES[concern.kind];
  return sentences(concern as never, now);
}

const SENTENCES: Describe = {
  state_restored: ({ facts: { since, why } }) => ({
    status: 'failed',
    text: 'The state was restored: what the service holds is not known',
    details: [
      text`The state ${why}${since && text`, noticed ${{ minute: since }}`}.`,
      'What was sent since its backup is not known. Until it is verified, no run counts as succeeded.',
    ],
  }),

  state_read_only: ({ facts: { why } }) => ({
    status: 'stopped',
    text: 'The state database is read-only: nothing is sent until it can be written',
    details: [
      why === 'standby'
        ? 'It is a standby. STATE_DATABASE_URL has to name the primary, or the standby be promoted.'
        : 'default_transaction_read_only is set for the server or the database.',
    ],
  }),

  quota_unavailable: ({ facts: { code } }) => ({
    status: 'stopped',
    text: `The store of the quota does not answer (${code}): nothing is sent until it does`,
  }),

  sending_stopped: ({ since, facts: { code, processes } }, now) => ({
    status: 'stopped',
    text: text`Nothing has been sent since ${since && { minute: since }}: ${code}`,
    details: [
      `${plural(processes.length, 'process', 'processes')}: ${errorEntry(code).meaning}.`,
      ...(resumesAlone(code)
        ? ['It is tried again at widening gaps, and sending resumes automatically.']
        : []),
    ],
    named: processes.map(
      (process) =>
        text`${nameProcess(process)}, for ${ago(process.stoppedSince, now)}: ${process.errorMessage}`,
    ),
    next: remedyOf(code),
  }),

  no_process: ({ facts: { runIds } }) => ({
    status: 'stopped',
    text: text`${joinTexts(runIds.slice(0, MOST_NAMED).map(linkToRunAtBegin), ', ')}${runIds.length > MOST_NAMED && ` and ${runIds.length - MOST_NAMED} more`} ${runIds.length === 1 ? 'is' : 'are'} unfinished, and no process works on ${runIds.length === 1 ? 'it' : 'them'}`,
  }),

  no_worker: ({ facts: { nextDue, streams } }) => ({
    status: 'stopped',
    text: text`No worker is running to start the ${streams === null ? 'nightly sync' : `sync of ${shorten(streams)}`}, due next ${{ minute: nextDue }}`,
  }),

  source_stale: ({ facts: { problem, loads } }, now) => {
    const [load] = loads;
    const streams = shorten(loads.map(({ stream }) => stream));
    const facts = toLoadFacts({ ...load, readAt: problem === 'too_old' ? now : load.readAt });
    const isOne = new Set(loads.map(({ loadedAt }) => loadedAt?.getTime())).size === 1;
    return {
      status: 'failed',
      text: `The load of the mirror ${facts && isOne ? describeLoad(facts) : `is ${IN_WORDS[problem]}`}: ${streams}`,
      details: [
        ...loads
          .slice(0, isOne ? 1 : MOST_NAMED)
          .map(
            (one) =>
              text`${isOne ? 'Loaded' : `${one.stream}: loaded`} ${one.loadedAt ? text`${{ minute: one.loadedAt }}` : 'at a time that is not known'}; read ${{ minute: one.readAt }}.`,
          ),
        `${describeSent(loads)}, and no run counts as succeeded.`,
      ],
      named: load.message === null ? [] : [`Why: ${load.message}.`],
      next: remedyOf('source_stale'),
    };
  },

  no_success: ({ since, facts: { succeededAt, streams } }, now) => ({
    status: 'failed',
    text: `No successful sync ${streams === null ? '' : `of ${shorten(streams)} `}for ${since ? ago(since, now) : 'a long time'}`,
    details: [succeededAt ? text`The last: ${{ minute: succeededAt }}.` : 'None has succeeded yet.'],
  }),

  run_failed: ({ facts: { runId, runKind, code, streams } }) => ({
    status: 'failed',
    text:
      runId === null || runKind === null
        ? `${shorten(streams)} cannot be read: ${code ?? 'unknown'}`
        : text`${nameRun(runId, runKind)} failed: ${code ?? 'unknown'}`,
    details: [...namesOf(streams), ...meaningOf(code)],
    next: remedyOf(code),
  }),

  run_partial: ({ facts: { runId, runKind, code, streams, failed, dead, sentAgain } }) => {
    const [stream = ''] = streams;
    const subject = runId === null || runKind === null ? shorten(streams) : nameRun(runId, runKind);
    if (code !== null)
      return {
        status: 'partial',
        text: text`${subject} is partial: ${code}`,
        details: [...namesOf(streams), ...meaningOf(code)],
        next: remedyOf(code),
      };
    const parts = present(
      failed > 0 && `${formatNumber(failed)} failed`,
      dead > 0 && `${formatNumber(dead)} ${statusInWords('dead')}`,
    );
    return {
      status: 'partial',
      text: text`${subject} is partial: ${recordsOf(failed + dead, stream)} not accepted`,
      details: [
        `${stream}: ${parts.join(', ')}.`,
        ...(sentAgain > 0
          ? [
              `${recordsOf(sentAgain, stream)} ${sentAgain === 1 ? 'is' : 'are'} in the inbox, and sent again automatically.`,
            ]
          : []),
      ],
    };
  },

  gate: ({ since, facts: { isConfigured, ...gate } }) => {
    const { stream, runId, operation, count } = gate;
    const { status, details = [], samples, next, commands } = gateToPoint(gate);
    const isAnswered = gate.approval !== null || gate.rejectedAt !== null;
    const held = describeHeld({ stream, operation, count });
    return {
      status: status ?? 'held',
      text: text`${linkToRunAtBegin(runId)} holds ${held}`,
      details: [
        text`${since && text`Held since ${{ minute: since }}. `}${
          isAnswered ? next : isConfigured ? describeGate(gate) : `${stream} is not in the configuration.`
        }`,
      ],
      named: details,
      samples,
      next: isConfigured
        ? isAnswered
          ? undefined
          : next
        : `To have it sent, put ${stream} back. If ${stream} was renamed: slotsync rename-stream ${stream} <new>`,
      actions: isConfigured ? commands : undefined,
    };
  },

  frozen: ({ since, facts: { streams, exceptStreams, endsAt, reason, isDeclared, held, waiting } }) => {
    const counted = present(
      held > 0 && `${plural(held, 'record')} held`,
      waiting > 0 && `${plural(waiting, 'key')} in the inbox`,
    ).join(' and ');
    const others = exceptStreams.length === 0 ? '' : ` but ${shorten(exceptStreams)}`;
    return {
      status: 'paused',
      text: text`${streams === null ? `All streams${others}` : streams.join(', ')}: frozen until ${{ minute: endsAt }}, nothing is written`,
      details: present<Text>(
        counted === '' ? 'Nothing waits yet.' : `What waits: ${counted}. It causes no alert.`,
        isDeclared && 'The configuration says so: `freeze`.',
      ),
      named: [text`${since && text`Since ${{ minute: since }}. `}Reason: ${reason}`],
    };
  },

  due: ({ since, facts: { streams, reason } }) => {
    const are = streams.length === 1 ? 'is' : 'are';
    return {
      status: 'pending',
      text: text`${shorten(streams)} ${are} due for a whole sync${since && text` since ${{ minute: since }}`}: ${DUE_IN_WORDS[reason]}`,
      details: [
        reason === 'cancelled'
          ? 'No worker starts the sync. The schedule does, or the command.'
          : 'A worker starts the sync. Without a worker, run the command.',
      ],
    };
  },

  run_paused: ({ facts: { run } }) => ({
    status: 'paused',
    text: text`${nameRun(run.id, run.kind)} has been paused since ${run.pausedAt && { minute: run.pausedAt }}`,
    actions: [actionOnRun(run, 'resume', 'Resume')],
  }),

  run_waiting: ({ facts: { id, streams, isFormer } }) => ({
    status: 'paused',
    text: text`${linkToRunAtBegin(id)} (${streams.join(', ')}) waits: no process at work has its configuration`,
    next: isFormer
      ? `The configuration was changed after the run was started. To replace the run: slotsync cancel ${id}, then slotsync sync`
      : 'To have it worked: restart the worker with the present configuration, or slotsync sync',
  }),

  configuration_former: ({ facts: { processes } }, now) => ({
    status: 'stopped',
    text: `${plural(processes.length, 'process', 'processes')} (${processes[0].command}) ${processes.length === 1 ? 'has' : 'have'} a former configuration: restart ${processes.length === 1 ? 'it' : 'them'}`,
    named: processes.map((process) => text`${describeFormer(process, now)}.`),
  }),

  records: ({ facts: cause }) => ({
    status: cause.status,
    text: `${recordsOf(cause.records, cause.stream)}: ${describeStatus(cause)}`,
    details:
      cause.waiting > 0
        ? [
            `${plural(cause.waiting, 'record')} ${cause.waiting === 1 ? 'waits' : 'wait'} for ${cause.records === 1 ? 'it' : 'them'}.`,
          ]
        : [],
  }),

  drift: ({ facts: { stream, kinds, objects } }) => ({
    status: 'changed',
    text: `${plural(objects, 'object')} of ${stream} ${objects === 1 ? 'drifts' : 'drift'} at the service`,
    details: [
      `Not as last accepted: ${kinds.map(({ kind, count }) => `${formatNumber(count)} ${kind}`).join(', ')}.`,
    ],
  }),

  bookings: ({ facts: { bookings, verdicts } }) => ({
    status: 'changed',
    text: text`${{ text: plural(bookings, 'booking'), href: '/bookings' }} ${bookings === 1 ? 'does' : 'do'} not agree`,
    details: verdicts.map(
      ({ verdict, bookings: count, problems }) =>
        `${verdict}: ${plural(count, 'booking')} ${VERDICT_MEANINGS[verdict]}${problems > 0 ? `; ${formatNumber(problems)} with a problem in the mirror` : ''}; ${nextOfVerdict(verdict)}`,
    ),
  }),

  inbox: ({ facts: { stream, waiting, inFlight, oldestSeconds } }) => ({
    status: 'pending',
    text: `A change of ${stream} has waited for ${formatDuration(oldestSeconds)}`,
    details: [`${plural(waiting, 'key')} waiting, ${formatNumber(inFlight)} in progress.`],
  }),

  inbox_unknown: ({ facts: { why, streams, count } }) => ({
    status: 'pending',
    text: `Changes wait for streams that ${why === 'not_configured' ? 'are not in the configuration' : 'no running worker has'}`,
    details: [`${plural(count, 'stream')}; no worker takes their changes.`],
    named: namesOf(streams, count),
    next:
      why === 'not_configured'
        ? undefined
        : 'Restart the worker: it was started with another configuration than the present one.',
  }),

  triggers_gone: ({ facts: { streams } }) => ({
    status: 'failed',
    text: `The triggers of ${shorten(streams)} are gone or disabled: changes are found by the next sync only`,
    details: ['A table that is dropped and made anew loses its triggers.'],
  }),

  process_silent: ({ facts: { processes, isMissed } }) => {
    const more = processes.length - MOST_NAMED;
    return {
      status: 'not seen',
      text: `${plural(processes.length, 'process was', 'processes were')} killed, ${processes.length === 1 ? 'is' : 'are'} frozen, or cannot reach the state`,
      named: [
        ...processes
          .slice(0, MOST_NAMED)
          .map(
            (process) =>
              text`${isMissed ? 'Not seen since' : 'Last seen'} ${process.seenAt}: ${nameProcess(process)}.`,
          ),
        ...(more > 0
          ? [`${plural(more, 'process', 'processes')} more ${more === 1 ? 'was' : 'were'} seen before that.`]
          : []),
      ],
    };
  },

  claims_orphaned: ({ facts: { records, until } }) => ({
    status: 'pending',
    text: text`${plural(records, 'record')} ${records === 1 ? 'waits' : 'wait'} for the claim of a process that is gone${until && text`, until ${until} at the latest`}`,
  }),

  in_doubt: ({ facts: { count, latest } }) => ({
    status: 'pending',
    text: text`${plural(count, 'object')} will be checked again (an answer was lost, or the object was refused alone)${latest && text`, the last after ${latest}`}`,
  }),

  former_objects: ({ facts: { objects } }) => ({
    status: 'changed',
    text: `${plural(objects, 'former object')} of records whose external id changed ${objects === 1 ? 'is' : 'are'} not deactivated`,
  }),
};

/** A loop that ended is not begun again; whatever else stops sending is tried again. */
export const resumesAlone = (code: string): boolean => code !== 'worker_ended';

const describeStatus = ({ status, code }: Cause) =>
  `${statusInWords(status)}${code === null ? '' : ` (${code})`}`;

const remedyOf = (code: string | null) => {
  const remedy = remedyFor(code);
  return remedy === '' ? undefined : remedy;
};

const meaningOf = (code: string | null) => (code === null ? [] : [`${code}: ${errorEntry(code).meaning}.`]);

/** `count`: of all of them, where `streams` are only some. */
function namesOf(streams: readonly string[], count = streams.length): string[] {
  if (streams.length === 0) return [];
  const named = streams.slice(0, MOST_STREAMS);
  const more = count > named.length ? ` and ${formatNumber(count - named.length)} more` : '';
  return [`Streams: ${named.join(', ')}${more}.`];
}

const shorten = (streams: readonly string[]) =>
  streams.length > MOST_NAMED
    ? `${streams.slice(0, MOST_NAMED).join(', ')} and ${formatNumber(streams.length - MOST_NAMED)} more`
    : streams.join(', ');

/** Without what the service has said, and without the reason of a freeze. */
function describeGate(gate: Pick<Gate, 'reason' | 'facts'>): string {
  if (!isApprovable(gate)) {
    const why = gate.reason === 'forbidden' ? 'The service forbids the request' : 'Its source has no row';
    return `${why}. An approval does not open the gate.`;
  }
  return gate.facts.load
    ? 'Nothing of it is sent until the mirror is loaded and synced again, or an operator approves it.'
    : 'Nothing of it is sent until an operator approves it.';
}

function describeSent(loads: readonly NotedLoad[]): string {
  const held = loads.filter(({ holds }) => holds);
  if (held.length === 0) return 'It is sent nevertheless';
  if (held.length === loads.length) return 'What would be sent is held';
  return `What would be sent of ${shorten(held.map(({ stream }) => stream))} is held, the rest is sent`;
}

const IN_WORDS: Record<LoadProblem, string> = {
  too_old: 'too old',
  older: 'older than the one before it',
  future: 'in the future',
  unreadable: 'of no known time',
};

const linkToRunAtBegin = (runId: number): Part => ({ text: `Run ${runId}`, href: addressOfRun(runId) });

const nameRun = (runId: number, kind: RunKind): Text => text`${linkToRunAtBegin(runId)} (${kind})`;

const nameProcess = ({ command, host, pid }: Pick<Process, 'command' | 'host' | 'pid'>) =>
  `${command} on ${host}, process ${pid}`;

/** `worker on host, process 12, has another configuration (rooms), loaded … (3 d ago): restart it`. */
export function describeFormer(process: FormerProcess, now: Date): Text {
  const { configurationLoadedAt: loadedAt, configurationChangedAt: changedAt, differing } = process;
  const loaded = text`loaded ${loadedAt} (${ago(loadedAt, now)} ago)`;
  return differing.length > 0
    ? text`${nameProcess(process)}, has another configuration (${differing.join(', ')}), ${loaded}: restart it`
    : text`${nameProcess(process)}, has the configuration ${loaded}; its files have changed since ${changedAt}: restart it`;
}

const ago = (time: Date, now: Date) => formatDuration(Math.max(0, (now.getTime() - time.getTime()) / 1000));

/** The words of a line for several concerns of a kind, with their number. */
const SHORT: { [Kind in ConcernKind]?: (facts: never[]) => string } = {
  state_restored: () => 'state restored',
  state_read_only: () => 'state is read-only',
  quota_unavailable: () => 'quota does not answer',
  sending_stopped: () => 'sending stopped',
  no_process: () => 'no process works',
  no_worker: () => 'no worker',
  no_success: () => 'no successful sync',
  source_stale: () => 'load of the mirror',
  run_failed: (all) => plural(all.length, 'failed run'),
  gate: (all) => plural(all.length, 'hold'),
  run_paused: (all) => plural(all.length, 'paused run'),
  run_waiting: (all) => plural(all.length, 'waiting run'),
  configuration_former: (all) => plural(all.length, 'process to restart', 'processes to restart'),
  records: (all: { records: number; stream: string }[]) =>
    plural(sum(all.map(({ records }) => records)), 'record to correct', 'records to correct'),
  drift: (all: { objects: number }[]) =>
    `drift of ${plural(sum(all.map(({ objects }) => objects)), 'object')}`,
  bookings: (all: { bookings: number }[]) => plural(sum(all.map(({ bookings }) => bookings)), 'booking'),
  inbox: (all) => `old changes of ${plural(all.length, 'stream')}`,
  inbox_unknown: () => 'changes of unknown streams',
};

const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0);

const WIDTH = 80;

/** In one line, what needs a person; or that nothing does. */
export function describeWhoseTurn(all: readonly Concern[]): string {
  const mine = all.filter(needsPerson);
  if (mine.length === 0) return 'Nothing needs a person.';
  const kinds = [...new Set(mine.map(({ kind }) => kind))];
  const parts = kinds.map((kind) => {
    const facts = mine.filter((concern) => concern.kind === kind).map((concern) => concern.facts);
    return SHORT[kind]?.(facts as never[]) ?? kind;
  });
  const whole = (shown: number) => {
    const more = parts.length - shown;
    return `Needs a person: ${parts.slice(0, shown).join(', ')}${more > 0 ? `, ${more} more` : ''}.`;
  };
  const shown = parts.findLastIndex((_, index) => whole(index + 1).length <= WIDTH) + 1;
  return whole(Math.max(1, shown));
}
