// The report of a period or a run, as sections that text, Markdown and HTML show alike.
import { remedyFor } from '../error-catalogue.js';
import { formatDuration, formatMinute, formatNumber, formatTime, plural } from '../format.js';
import type { ReportReading } from '../readings/report.js';
import { describeSamples } from './holds.js';
import {
  approveCommand,
  commandOfCause,
  describeAwaitingApproval,
  describeCause,
  describeRestored,
  describeSettled,
  describeUnsent,
  describeUnsettled,
  needsOperator,
} from './failures.js';
import { nextOfVerdict, VERDICT_MEANINGS } from './bookings.js';
import { lines } from './print.js';
import { failedRuns } from './run.js';
import { describeAnswer } from './status.js';
import type { Cell } from './table.js';
import { describeStoredOtherwise } from './verify.js';

/** A part of a report. It has paragraphs, then points, then a table. */
export interface ReportSection {
  title: string;
  paragraphs: readonly string[];
  points: readonly ReportPoint[];
  table?: ReportTable | undefined;
}

/** A fact, its details line by line, and what an operator runs. */
export interface ReportPoint {
  text: string;
  details?: readonly string[];
  commands?: readonly string[];
}

export interface ReportTable {
  headings: readonly string[];
  rows: readonly (readonly Cell[])[];
}

export interface MorningReport {
  title: string;
  /** Which service, which period and why this one. */
  about: readonly string[];
  sections: readonly ReportSection[];
}

/** Named one by one, of each kind. */
const MOST_CAUSES = 8;

/** Every time is shown in the time zone. */
export function composeReport(reading: ReportReading, timeZone: string): MorningReport {
  const { binding, run } = reading;
  return {
    title: run ? `Report of run ${run.id}` : 'Report',
    about: lines(
      binding
        ? `Organization ${binding.organizationId} at ${binding.baseUrl}.`
        : 'Not bound to a service yet; the first sync binds it.',
      describePeriod(reading, timeZone),
    ),
    sections: [
      needsAPerson(reading, timeZone),
      changed(reading),
      runs(reading, timeZone),
      held(reading),
      notInSync(reading, timeZone),
      drift(reading, timeZone),
      bookings(reading),
      requests(reading, timeZone),
    ].filter((section) => section !== undefined),
  };
}

const REASONS: Record<ReportReading['period']['because'], string> = {
  since: 'as asked for',
  run: 'from its request to its end',
  nightly: 'since the last nightly sync was due',
  day: 'the last 24 hours, because no nightly sync was due yet',
};

function describePeriod({ period, run }: ReportReading, timeZone: string): string {
  const { from, to, because } = period;
  const why = run && run.finishedAt === null ? 'from its request until now' : REASONS[because];
  return `From ${formatMinute(from, timeZone)} to ${formatMinute(to, timeZone)}: ${why}.`;
}

/** In the order of urgency. */
function needsAPerson(reading: ReportReading, timeZone: string): ReportSection {
  const { sendingStopped, holds, causes, verified, discrepancies, processes, unfinished } = reading;
  const repairable = verified.reduce((sum, stream) => sum + stream.repairable, 0);
  const bookingsApart = discrepancies.reduce((sum, { bookings: count }) => sum + count, 0);
  const { restored } = reading.known;
  const points: ReportPoint[] = [
    ...(restored ? [{ text: describeRestored(restored, timeZone) }] : []),
    ...sendingStopped.map(({ stoppedSince, errorCode, command, host }) => ({
      text: `Sending stopped since ${formatTime(stoppedSince, timeZone)}: ${errorCode} (${command} on ${host}). ${remedyFor(errorCode)}`,
    })),
    ...failedRuns(reading.endedBadly).map(({ runId, kind, errorCode }) => ({
      text: `Run ${runId} (${kind}) failed: ${errorCode ?? 'unknown'}. ${remedyFor(errorCode)}`,
      commands: [`slotsync runs ${runId}`],
    })),
    ...unfinished
      .filter(({ pausedAt }) => pausedAt !== null)
      .map(({ id, kind, pausedAt }) => ({
        text: `Run ${id} (${kind}) is paused since ${formatMinute(pausedAt as Date, timeZone)}.`,
        commands: [`slotsync resume ${id}`],
      })),
    ...unfinished
      .filter(({ pausedAt }) => pausedAt === null && !processes.some(({ isAlive }) => isAlive))
      .map(({ id, kind }) => ({
        text: `Run ${id} (${kind}) is unfinished, and no process is known to work on it.`,
        commands: ['slotsync worker'],
      })),
    ...holds.map(({ stream, runId, count, operation, approvable, reason }) =>
      approvable
        ? {
            text: `Held: ${stream}: ${plural(count, 'record')} (${operation}).`,
            commands: [
              approveCommand({ runId, stream, operation }),
              `slotsync reject ${runId} --stream ${stream} --operation ${operation}`,
            ],
          }
        : { text: `Held: ${stream}: ${reason}` },
    ),
    ...causes
      .filter(needsOperator)
      .slice(0, MOST_CAUSES)
      .map((cause) => {
        const { headline, reason } = describeCause(cause, { timeZone, now: new Date() });
        return { text: `${headline}.`, details: lines(reason), commands: [commandOfCause(cause)] };
      }),
    ...(repairable > 0
      ? [
          {
            text: `${plural(repairable, 'object')} at the service ${repairable === 1 ? 'differs' : 'differ'} from what was accepted.`,
            commands: ['slotsync verify --repair'],
          },
        ]
      : []),
    ...(bookingsApart > 0
      ? [
          {
            text: `${plural(bookingsApart, 'booking')} ${bookingsApart === 1 ? 'does' : 'do'} not agree.`,
            commands: ['slotsync reconcile'],
          },
        ]
      : []),
  ];
  return {
    title: 'Needs a person',
    paragraphs: points.length === 0 ? ['Nothing.'] : [],
    points,
  };
}

const OPERATIONS = ['create', 'update', 'retire', 'repair'] as const;
const ACCEPTED = { create: 'created', update: 'updated', retire: 'retired' } as const;
const OUTCOMES = ['unchanged', 'deferred', 'failed', 'dead'] as const;

function changed({ streams }: ReportReading): ReportSection {
  const columns = [
    ...OPERATIONS.map((name) => ({
      heading: `to ${name}`,
      of: (row: (typeof streams)[number]) => row.planned[name],
    })),
    ...(['create', 'update', 'retire'] as const).map((name) => ({
      heading: ACCEPTED[name],
      of: (row: (typeof streams)[number]) => row.accepted[name],
    })),
    {
      heading: 'synced, operation not known',
      of: (row: (typeof streams)[number]) => row.unclassified,
    },
    ...OUTCOMES.map((name) => ({
      heading: name,
      of: (row: (typeof streams)[number]) => row.outcomes[name],
    })),
  ].filter(({ of }) => streams.some((row) => of(row) > 0));
  return {
    title: 'What changed',
    paragraphs:
      streams.length === 0
        ? ['No run planned or sent anything.']
        : [
            '“To create” and so on is what the runs planned; “created”, “updated” and “retired” is what the service accepted. Runs that began before count as a whole.',
          ],
    points: [],
    table:
      streams.length === 0
        ? undefined
        : {
            headings: ['stream', ...columns.map(({ heading }) => heading)],
            rows: streams.map((row) => [row.stream, ...columns.map(({ of }) => of(row))]),
          },
  };
}

function runs({ runs: listed, runCounts }: ReportReading, timeZone: string): ReportSection {
  const rows = listed.map(({ id, kind, requestedAt, finishedAt, pausedAt, status, errorCode }) => [
    id,
    kind,
    formatMinute(requestedAt, timeZone),
    finishedAt ? formatDuration((finishedAt.getTime() - requestedAt.getTime()) / 1000) : '–',
    `${pausedAt && !finishedAt ? 'paused' : status}${errorCode === null ? '' : `: ${errorCode}`}`,
  ]);
  const kinds = [...new Set(runCounts.map(({ kind }) => kind))];
  const counts = kinds.map((kind) => {
    const ofKind = runCounts.filter((one) => one.kind === kind);
    return `${kind}: ${ofKind.map(({ status, runs: number }) => `${formatNumber(number)} ${status}`).join(', ')}`;
  });
  return {
    title: 'Runs',
    paragraphs: [counts.length === 0 ? 'None.' : `${counts.join('; ')}.`],
    points: [],
    table: rows.length === 0 ? undefined : { headings: ['run', 'kind', 'started', 'took', 'status'], rows },
  };
}

function held({ holds }: ReportReading): ReportSection | undefined {
  if (holds.length === 0) return undefined;
  return {
    title: 'Held',
    paragraphs: [],
    points: holds.map(({ runId, stream, reason, ...hold }) => ({
      text: `Run ${runId}: ${stream}: ${reason}`,
      details: describeSamples(hold).map((line) => line.trim()),
    })),
  };
}

function notInSync(reading: ReportReading, timeZone: string): ReportSection {
  // What is held has a section of its own.
  const causes = reading.causes.filter(({ status }) => status !== 'held');
  const named = causes.slice(0, MOST_CAUSES);
  const more = causes.length - named.length;
  return {
    title: 'Not in sync',
    paragraphs: describeInSync(reading),
    points: [
      ...named.map((cause) => {
        const { headline, reason, since, next } = describeCause(cause, { timeZone, now: new Date() });
        return { text: `${headline}, ${since}.`, details: lines(reason, next) };
      }),
      ...(more > 0 ? [{ text: `${plural(more, 'more cause')}.`, commands: ['slotsync failures'] }] : []),
    ],
  };
}

/** Of what is held the last reading says nothing: a row that changed may be among it. */
function describeInSync({ unsettled, causes, known }: ReportReading): string[] {
  const of = unsettled > 0 ? describeUnsettled(unsettled) : describeAwaitingApproval(causes);
  return of === undefined ? [describeSettled(known)] : lines(`${of}.`, describeUnsent(known));
}

function drift({ verified, driftChanges }: ReportReading, timeZone: string): ReportSection {
  const rows = verified.map(({ stream, verifiedAt, objects, drift: drifting }) => [
    stream,
    verifiedAt ? formatMinute(verifiedAt, timeZone) : 'never verified',
    objects === null ? '–' : formatNumber(objects),
    verifiedAt || drifting > 0 ? formatNumber(drifting) : '–',
  ]);
  return {
    title: 'At the service',
    paragraphs: [
      verified.length === 0
        ? 'No record yet.'
        : `Drift in this period: ${formatNumber(driftChanges.found)} found, ${formatNumber(driftChanges.mended)} resolved.`,
    ],
    points: [
      ...(verified.some(({ verifiedAt }) => verifiedAt === null)
        ? ['Never verified: it is not known what the service holds now.']
        : []),
      ...describeStoredOtherwise(verified.reduce((sum, one) => sum + one.storedOtherwise, 0)),
    ].map((text) => ({ text, commands: ['slotsync verify'] })),
    table: rows.length === 0 ? undefined : { headings: ['stream', 'verified', 'objects', 'drift'], rows },
  };
}

function bookings({ discrepancies, verdictChanges }: ReportReading): ReportSection | undefined {
  if (discrepancies.length === 0 && verdictChanges === 0) return undefined;
  const changes = `Verdicts that changed in this period: ${formatNumber(verdictChanges)}.`;
  return {
    title: 'Bookings that do not agree',
    paragraphs: discrepancies.length === 0 ? ['None.', changes] : [changes],
    points: discrepancies.map(({ verdict, bookings: count, problems }) => ({
      text: `${verdict}: ${plural(count, 'booking')} ${VERDICT_MEANINGS[verdict]}${problems > 0 ? `; ${formatNumber(problems)} with a problem in the mirror` : ''}.`,
      details: [nextOfVerdict(verdict)],
    })),
  };
}

function requests(reading: ReportReading, timeZone: string): ReportSection {
  const { requests: sent, sendingStopped, binding } = reading;
  const { requests: total, throttled, fastest, fastestAt, perSecond, allowed } = sent;
  const { answeredAt = null, answer = null, succeededAt = null } = binding ?? {};
  const percent = (100 * total) / allowed;
  const share = percent > 0 && percent < 0.1 ? 'less than 0.1' : percent.toFixed(1);
  return {
    title: 'Requests',
    paragraphs: lines(
      `${plural(total, 'request')} of all processes: ${share} % of the quota of ${perSecond} a second over this period; ${formatNumber(throttled)} refused with 429.`,
      fastestAt !== null &&
        `Fastest second: ${plural(fastest, 'request')}, at ${formatTime(fastestAt, timeZone)}.`,
      answeredAt !== null &&
        `Last answer of the service: ${describeAnswer(answer)}, ${formatTime(answeredAt, timeZone)}; last success ${formatTime(succeededAt, timeZone)}.`,
      sendingStopped.length === 0 && answeredAt !== null && 'Sending is not stopped.',
    ),
    points: [],
  };
}
