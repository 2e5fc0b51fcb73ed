// Sentences about why records are not in sync. A table has, for each status, the headline, the reason, the command that
// helps and the next step. Causes, single records and ends of waiting chains use the same table.
import { isGivenUpByCode, recordRemedy } from '../errors/error-catalogue.js';
import { causeOf, type Cause } from '../situation/causes.js';
import { heldBy, type CauseStatus, type Chain } from '../situation/chains.js';
import { approveCommand, commandFor, retryCommand } from '../situation/commands.js';
import { isApprovable, type Gate } from '../state/gates/gates.js';
import type { RecordStatus } from '../state/schema.js';
import { describeOpening } from '../sync/limits/hold-reason.js';
import { formatDuration, formatNumber, lines, plural, present } from '../text/format.js';
import {
  joinTexts,
  linkToRecord,
  section,
  text,
  withQuery,
  WORDS_OF_STATUSES,
  type Point,
  type Section,
  type Text,
} from './document.js';
import { endCommand } from './exceptions.js';
import { describeHeld } from './holds.js';

const MOST_NAMED = 3;

/** Returns the word that people read for a status, such as `given up` for `dead`. JSON has the status itself. */
export const statusInWords = (status: CauseStatus | 'unchanged'): string =>
  WORDS_OF_STATUSES[status] ?? status;

export const ofStream = (stream?: string) => (stream === undefined ? '' : ` of ${stream}`);

export const recordsOf = (count: number, stream?: string) => `${plural(count, 'record')}${ofStream(stream)}`;

interface StatusInWords {
  /** Returns true if the records stay as they are until an operator acts. */
  needsOperator?: (cause: Cause) => boolean;
  /** Names the records in the headline. Default: `2 records of rooms given up (refused_400): '1', '2'`. */
  what?: (cause: Cause, words: ReturnType<typeof wordsOf>) => string;
  /**
   * Words for the last record of a chain, after "which". Default: `is given up (refused_400): the name is too long`.
   */
  end?: (end: Chain['end']) => string;
  /** Returns why the records are not in sync. Used for statuses whose records have no error message. */
  reason?: (cause: Cause) => string;
  command: (cause: Cause) => string;
  next: (cause: Cause, command: string) => string;
}

const explainFirst = ({ stream, keys: [key = ''] }: Cause) => commandFor('slotsync explain', stream, key);
const syncStream = ({ stream }: Cause) => `slotsync sync ${stream}`;
const themOf = ({ records }: Cause) => (records === 1 ? 'it' : 'them');
/** Command for a single record, even if the cause has many, because an operator checks each before linking it. */
const linkCommandOf = ({ stream, keys: [key = ''] }: Cause) =>
  commandFor('slotsync match --link', stream, key);
const remedyOf = (cause: Cause) =>
  recordRemedy(cause.code, (option) => retryCommandOf(cause, option), linkCommandOf(cause));
const MISSING = (row: string, record: string) =>
  `${row} missing in the mirror, or no run has sent ${record} yet`;

const STATUSES: Readonly<Record<CauseStatus, StatusInWords>> = {
  dead: { needsOperator: () => true, command: (cause) => retryCommandOf(cause), next: remedyOf },
  deferred: { command: syncStream, next: remedyOf },

  failed: {
    needsOperator: ({ code }) => code === 'external_id_shared',
    what: ({ inInbox, records }, { subject, are, why, examples, usual }) =>
      inInbox === records ? `${subject} ${are} in the inbox to be sent again${why}${examples}` : usual,
    end: (end) => `failed${whyOf(end)}`,
    command: syncStream,
    next: (cause, command) => {
      // These records are sent once more: an operator retried them, or nothing else of their batch was accepted.
      if (cause.inInbox > 0) return nextInInbox(cause, command);
      return isGivenUpByCode(cause.code)
        ? `No action needed: the next sync sends ${themOf(cause)} again. To send now: ${command}`
        : remedyOf(cause);
    },
  },

  pending: {
    command: () => 'slotsync status',
    next: (_, command) =>
      `No action needed while a process works on the run. To see whether a process works: ${command}`,
  },

  held: {
    what: ({ gate, records }, { named, are, usual }) =>
      gate === null
        ? usual
        : `${describeHeld({ ...gate, count: records })} ${are} held in run ${gate.runId}${named}`,
    end: ({ gate, code }) => `is held in run ${gate?.runId} (${code})`,
    command: ({ stream, gate }) => {
      if (gate === null || gate.reason === 'frozen' || gate.approval) return 'slotsync status';
      return isApprovable(gate) ? approveCommand(gate) : `slotsync sync ${stream}`;
    },
    next: ({ gate }, command) => {
      const opening = gate ? describeOpening(gate) : undefined;
      if (gate && !isApprovable(gate) && opening !== undefined) return opening;
      if (gate?.approval)
        return (
          (gate.facts.waitsForWrites && opening) ||
          'No action needed: it is approved, and the next whole sync sends it'
        );
      if (gate?.rejectedAt)
        return `No action needed: an operator rejected it, until its records change. To approve it nevertheless: ${command}`;
      return opening === undefined
        ? `If this is intended: ${command}`
        : `${opening}; or if this is intended: ${command}`;
    },
  },

  excepted: {
    what: ({ records }, { subject, are, examples }) =>
      `${subject} ${are} left as ${records === 1 ? 'it is' : 'they are'} by an exception${examples}`,
    end: () => 'is left as it is by an exception',
    command: ({ stream, keys: [key = ''] }) => endCommand(stream, key),
    next: (_, command) => `No action needed while the exception stands. To end it: ${command}`,
  },

  absent: {
    needsOperator: () => true,
    what: ({ stream, records }, { subject, examples }) =>
      records === 1
        ? `${subject} has no record`
        : `${plural(records, 'key')} of ${stream} have no record${examples}`,
    end: () => `has no record: ${MISSING('its row is', 'it')}`,
    reason: (cause) => MISSING(cause.records === 1 ? 'its row is' : 'their rows are', themOf(cause)),
    command: explainFirst,
    next: (_, command) =>
      `Add the row, or correct the rows that refer to it; the next run sends them. For details: ${command}`,
  },

  cycle: {
    needsOperator: () => true,
    what: ({ records }, { subject, examples }) =>
      `${subject} ${records === 1 ? 'refers to itself' : `are part of a circular reference${examples}`}`,
    end: () => 'is part of a circular reference',
    command: explainFirst,
    next: (_, command) =>
      `Correct one row, so that it no longer refers to the others. To see a row: ${command}`,
  },

  synced: {
    what: ({ records }, { subject, examples }) =>
      `${subject} ${records === 1 ? 'was' : 'were'} accepted meanwhile${examples}`,
    end: () => 'was accepted meanwhile',
    command: ({ waitingByStream }) => ['slotsync sync', ...Object.keys(waitingByStream)].join(' '),
    next: (_, command) =>
      `No action needed: the next sync sends the waiting records. To send now: ${command}`,
  },

  retired: {
    reason: ({ records }) => `${records === 1 ? 'its row is' : 'their rows are'} gone from the mirror`,
    command: explainFirst,
    next: (_, command) =>
      `Restore the row, or correct the rows that refer to it; the next run sends them. For details: ${command}`,
  },
};

/** Returns true if the records of the cause stay as they are until an operator acts. */
export const needsOperator = (cause: Cause): boolean =>
  cause.isConfigured === false || STATUSES[cause.status].needsOperator?.(cause) === true;

export const commandOfCause = (cause: Cause): string =>
  cause.isConfigured === false
    ? commandFor('slotsync forget', cause.stream, cause.keys[0] ?? '')
    : STATUSES[cause.status].command(cause);

export function nextOfCause(cause: Cause): string {
  const { stream, status, records } = cause;
  const command = commandOfCause(cause);
  if (cause.isConfigured === false)
    return (
      `${stream} is not in the configuration, so its records are neither sent nor deactivated. Add the stream again, and the next run ` +
      `continues with it. To delete the stored data of ${records === 1 ? 'the record' : 'one record'}, and leave its object at the service: ${command}`
    );
  return STATUSES[status].next(cause, command);
}

function nextInInbox(cause: Cause, command: string): string {
  const { inInbox, records } = cause;
  const sent =
    inInbox === records
      ? `${records === 1 ? 'it is' : 'they are'} in the inbox, and a worker sends ${themOf(cause)} again`
      : `a worker sends the ${formatNumber(inInbox)} of them that ${inInbox === 1 ? 'is' : 'are'} in the inbox again, and the next sync the others`;
  return `No action needed: ${sent}. To send now: ${command}`;
}

const isRetryable = ({ status, isConfigured }: Cause): boolean =>
  isConfigured !== false && (status === 'dead' || status === 'failed');

/** Returns the `slotsync retry` command that covers exactly the records of the cause. */
function retryCommandOf(
  { stream, status, code, records, keys: [localKey = ''] }: Cause,
  option?: string,
): string {
  if (records === 1) return retryCommand({ stream, localKey }, option);
  // `slotsync retry --retire-former` chooses its records itself, so the command names no status and no code.
  const choice = option ?? lines(`--status ${status}`, code !== null && `--code ${code}`).join(' ');
  return `slotsync retry ${stream} ${choice}`;
}

/** Returns the words that a headline is made of. If the cause has no keys, the headline names no key. */
function wordsOf({ stream, status, code, records, keys }: Cause) {
  const isOne = records === 1 && keys.length > 0;
  const some = keys.slice(0, MOST_NAMED).map((name) => `'${name}'`);
  const named = some.length === 0 ? '' : `: ${some.join(', ')}${records > some.length ? ', …' : ''}`;
  const subject = isOne ? `${stream} '${keys[0]}'` : recordsOf(records, stream);
  const why = code === null ? '' : ` (${code})`;
  const examples = isOne ? '' : named;
  const usual = `${subject}${isOne ? ':' : ''} ${statusInWords(status)}${why}${examples}`;
  return { subject, are: records === 1 ? 'is' : 'are', why, named, examples, usual };
}

/** Example: `departments '3': given up (refused_400) → 36 records wait for it (35 of courses, 1 of rooms)`. */
export function headlineOf(cause: Cause): string {
  const { status, records, waiting, waitingByStream } = cause;
  const words = wordsOf(cause);
  const what = STATUSES[status].what?.(cause, words) ?? words.usual;
  if (waiting === 0) return what;
  const byStream = Object.entries(waitingByStream).toSorted(([x, a], [y, b]) => b - a || (x < y ? -1 : 1));
  const [[stream] = ['']] = byStream;
  const isOne = byStream.length === 1;
  const each = byStream.map(([name, count]) => `${formatNumber(count)} of ${name}`).join(', ');
  const wait = `${waiting === 1 ? 'waits' : 'wait'} for ${records === 1 ? 'it' : 'them'}`;
  return `${what} → ${recordsOf(waiting, isOne ? stream : undefined)} ${wait}${isOne ? '' : ` (${each})`}`;
}

export function reasonOf(cause: Cause): string | undefined {
  const { status, message, messages, keys } = cause;
  const { reason } = STATUSES[status];
  if (reason) return reason(cause);
  if (message === null) return undefined;
  if (messages <= 1) return message;
  return `${formatNumber(messages)} different reasons; that of '${keys[0]}': ${message}`;
}

/** Section with the first `most` causes, and the number of causes that were left out. */
export function causesSection(
  causes: readonly Cause[],
  { most = Infinity, now }: { most?: number; now: Date },
): Section {
  const more = causes.length - most;
  return section('causes', 'Causes, with most waiting records first', {
    points: [
      causes.slice(0, most).map((cause) => causeToPoint(cause, now)),
      more > 0 && { text: plural(more, 'more cause'), commands: ['slotsync failures'] },
    ],
  });
}

/** List entry of a cause. On the page, users who may act see a button that retries its records. */
export function causeToPoint(cause: Cause, now: Date): Point {
  const { stream, status, code, records, keys } = cause;
  const links = keys.map((key): Text => linkToRecord(stream, key));
  const more = records > keys.length && ', …';
  const line = headlineOf(records > 1 ? { ...cause, keys: [] } : cause);
  return {
    status,
    // Names no key if there are several records, because the details below link each key.
    text: text`${line}, ${sinceOf(cause, now)}`,
    line,
    details: present<Text>(reasonOf(cause), records > 1 && text`${joinTexts(links, ', ')}${more}`),
    next: nextOfCause(cause),
    commands: isRetryable(cause)
      ? [
          {
            command: commandOfCause(cause),
            href: withQuery('/failures/retry', { stream, status, code }),
            label: 'Retry …',
            about: recordsOf(records, stream),
          },
        ]
      : [],
  };
}

/** Returns text such as `since 2026-11-22 07:12 CET (3 h)`. */
function sinceOf({ since, status, attempts }: Cause, now: Date): Text {
  const ago = formatDuration(Math.max(1, (now.getTime() - since.getTime()) / 1000));
  // Each attempt overwrites the time of a failed record, so the record may have failed earlier.
  const tried = status === 'failed' && attempts > 1 && ` or earlier, ${plural(attempts, 'attempt')}`;
  return text`since ${{ minute: since }} (${ago})${tried}`;
}

/** Example: `rooms 'A', which waits for departments '3', which is given up (refused_400): the name is too long`. */
export function describeChain({ via, between, end }: Chain): string {
  const more = between - via.length;
  const on = via.map(({ stream, localKey }) => `${stream} '${localKey}', which waits for `).join('');
  const through = more > 0 ? `${formatNumber(more)} more, the last of which waits for ` : '';
  const which = STATUSES[end.status].end?.(end) ?? `is ${statusInWords(end.status)}${whyOf(end)}`;
  return `${on}${through}${end.stream} '${end.localKey}', which ${which}`;
}

const whyOf = ({ code, message }: Chain['end']) =>
  lines(code !== null && ` (${code})`, message !== null && `: ${message}`).join('');

export const nextOfHeld = (gate: Gate, localKey: string): string =>
  nextOfCause(causeOf({ stream: gate.stream, gate, ...heldBy(gate), records: 1, keys: [localKey] }));

/** A record that is not in sync. A field is undefined if the caller did not look it up. */
interface UnsettledRecord extends Pick<Cause, 'stream'> {
  localKey: string;
  errorCode: string | null;
  status?: RecordStatus;
  isInInbox?: boolean;
  isConfigured?: boolean | null;
  chain?: Chain | undefined;
}

/** Returns the next step for a record as a sentence: a run sends the record, or an operator runs the named command. */
export function nextStep(record: UnsettledRecord): string {
  const { stream, localKey, errorCode, status = 'dead', isInInbox, isConfigured = null, chain } = record;
  const one = { records: 1, waitingByStream: { [stream]: 1 } };
  if (!chain || isConfigured === false) {
    const own = { stream, status, code: errorCode, inInbox: isInInbox ? 1 : 0, isConfigured };
    return nextOfCause(causeOf({ ...one, ...own, keys: [localKey] }));
  }
  const { end } = chain;
  const ofEnd = { ...end, keys: [end.localKey], isConfigured: end.isConfigured ?? null };
  const next = nextOfCause(causeOf({ ...one, ...ofEnd }));
  if (end.status === 'synced' || end.status === 'cycle') return next;
  const endName = `${end.stream} '${end.localKey}'`;
  return `It is sent once ${endName} is accepted. For ${endName}: ${next.charAt(0).toLowerCase()}${next.slice(1)}`;
}

/** Returns the next step for a key that records wait for although the state has no record of the key. */
export const nextOfAbsent = (stream: string, key: string): string =>
  nextOfCause(causeOf({ stream, status: 'absent', code: null, records: 1, keys: [key] }));
