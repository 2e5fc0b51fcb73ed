// From what the state says to the causes that people are told of. A cause keeps its name for as long as it lasts, so that
// it is told once: what may change while it lasts, such as a number, is not in the name. No cause names a key.
import { errorEntry, remedyFor } from '../error-catalogue.js';
import { formatDuration, formatMinute, plural } from '../format.js';
import type { ConditionsReading } from '../readings/conditions.js';
import { approveCommand } from '../report/failures.js';
import { describeHeld } from '../report/holds.js';
import type { AlertCause } from '../state/alerts.js';
import type { EndedBadly } from '../state/runs/ended-badly.js';
import type { RunHold } from '../state/runs/holds.js';
import type { ParsedConfig } from '../streams/config-schema.js';

export type AlertRules = ParsedConfig['alerts'];

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const MOST_STREAMS = 10;

/** Every cause that is there now. Times are shown in the time zone; `streams` are those of the configuration. */
export function findCauses(
  reading: ConditionsReading,
  rules: AlertRules,
  { timeZone, streams }: { timeZone: string; streams: readonly string[] },
): AlertCause[] {
  return [
    ...(rules.runs.includes('failed') ? findFailed(reading) : []),
    ...(rules.runs.includes('partial') ? findPartial(reading) : []),
    ...(rules.runs.includes('held') ? findHeld(reading) : []),
    ...findStopped(reading, rules, timeZone),
    ...findNoSuccess(reading, rules, timeZone),
    ...findDrift(reading, rules),
    ...findInbox(reading, rules, streams),
    ...findRestored(reading),
  ];
}

function findFailed({ endedBadly }: ConditionsReading): AlertCause[] {
  const groups = groupBy(
    endedBadly.filter(({ status }) => status === 'failed'),
    ({ kind, errorCode }) => `run_failed ${kind} ${errorCode ?? 'unknown'}`,
  );
  return groups.map(([cause, rows, { runId, kind, errorCode }]) => ({
    cause,
    condition: 'run_failed',
    message: {
      title: `Run ${runId} (${kind}) failed: ${errorCode ?? 'unknown'}`,
      details: [...ofStreams(rows), ...explainCode(errorCode)],
      commands: [`slotsync runs ${runId}`],
    },
  }));
}

function findPartial({ endedBadly, sentAgain }: ConditionsReading): AlertCause[] {
  const partial = endedBadly.filter(({ status }) => status === 'partial');
  const byStream = groupBy(
    partial.filter(({ failed, dead }) => failed + dead > 0),
    ({ kind, stream }) => `run_partial ${kind} ${stream}`,
  ).map(([cause, , { runId, kind, stream, failed, dead }]): AlertCause => {
    const parts = [failed > 0 && `${failed} failed`, dead > 0 && `${dead} dead`].filter(Boolean).join(', ');
    return {
      cause,
      condition: 'run_partial',
      message: {
        title: `Run ${runId} (${kind}) is partial: ${plural(failed + dead, 'record')} of ${stream} not accepted`,
        details: [`${stream}: ${parts}.`, ...describeSentAgain(stream, sentAgain)],
        commands: [`slotsync failures ${stream}`, `slotsync runs ${runId}`],
      },
    };
  });
  const asAWhole = groupBy(
    // A state that was restored is a cause of its own.
    partial.filter(({ errorCode }) => errorCode !== null && errorCode !== 'state_restored'),
    ({ kind, errorCode }) => `run_partial ${kind} ${errorCode}`,
  ).map(([cause, rows, { runId, kind, errorCode }]): AlertCause => ({
    cause,
    condition: 'run_partial',
    message: {
      title: `Run ${runId} (${kind}) is partial: ${errorCode}`,
      details: [...ofStreams(rows), ...explainCode(errorCode)],
      commands: [`slotsync runs ${runId}`],
    },
  }));
  return [...byStream, ...asAWhole];
}

function describeSentAgain(stream: string | null, sentAgain: ConditionsReading['sentAgain']): string[] {
  const { count = 0 } = sentAgain.find((one) => one.stream === stream) ?? {};
  if (count === 0) return [];
  return [
    `${plural(count, 'record')} of ${stream} ${count === 1 ? 'is' : 'are'} in the inbox, and sent again automatically.`,
  ];
}

function findHeld({ holds }: ConditionsReading): AlertCause[] {
  // The latest run comes first.
  const groups = groupBy(
    holds.toReversed(),
    ({ stream, operation }: RunHold) => `run_held ${stream} ${operation}`,
  );
  return groups.map(([cause, , hold]) => {
    const { runId, kind, stream, operation, approvable } = hold;
    return {
      cause,
      condition: 'run_held',
      message: {
        title: `Run ${runId} (${kind}) holds ${describeHeld(hold)}`,
        details: [
          approvable
            ? 'Nothing of it is sent until an operator approves it.'
            : 'No approval releases it; the status says what does.',
        ],
        commands: approvable
          ? [approveCommand(hold), `slotsync reject ${runId} --stream ${stream} --operation ${operation}`]
          : ['slotsync status'],
      },
    };
  });
}

function findStopped(
  { sendingStopped, now }: ConditionsReading,
  { sendingStoppedMinutes: minutes }: AlertRules,
  timeZone: string,
): AlertCause[] {
  if (minutes === false) return [];
  const long = sendingStopped.filter(
    ({ stoppedSince }) => secondsFrom(stoppedSince, now) >= minutes * MINUTE,
  );
  return groupBy(long, ({ errorCode }) => `sending_stopped ${errorCode}`).map(
    ([cause, processes, { errorCode }]) => {
      const since = new Date(Math.min(...processes.map(({ stoppedSince }) => stoppedSince.getTime())));
      return {
        cause,
        condition: 'sending_stopped',
        message: {
          title: `Sending stopped since ${formatMinute(since, timeZone)}: ${errorCode}`,
          details: [
            `${plural(processes.length, 'process', 'processes')}: ${errorEntry(errorCode).meaning}.`,
            'It is tried again at widening gaps, and sending resumes automatically.',
            ...remedyOf(errorCode),
          ],
          commands: ['slotsync status'],
        },
      };
    },
  );
}

function findNoSuccess(
  { succeededAt, begunAt, scheduledAt, dueAt, now }: ConditionsReading,
  { noSuccessHours }: AlertRules,
  timeZone: string,
): AlertCause[] {
  const since = succeededAt ?? begunAt ?? scheduledAt;
  if (since === null || noSuccessHours === false) return [];
  // A schedule says itself when the next success is due: not every pattern is of every day.
  const isLate =
    noSuccessHours === undefined
      ? dueAt !== null && (succeededAt === null || succeededAt < dueAt)
      : secondsFrom(since, now) >= noSuccessHours * HOUR;
  if (!isLate) return [];
  const last =
    succeededAt === null ? 'None has succeeded yet.' : `The last: ${formatMinute(succeededAt, timeZone)}.`;
  return [
    {
      cause: 'no_success sync',
      condition: 'no_success',
      message: {
        title: `No successful sync for ${formatDuration(secondsFrom(since, now))}`,
        details: [last],
        commands: ['slotsync status', 'slotsync runs --kind sync'],
      },
    },
  ];
}

function findDrift({ drift }: ConditionsReading, { driftObjects }: AlertRules): AlertCause[] {
  if (driftObjects === false) return [];
  return groupBy(drift, ({ stream }) => `drift ${stream}`).flatMap(([cause, kinds, { stream }]) => {
    const objects = kinds.reduce((sum, { count }) => sum + count, 0);
    if (objects < driftObjects) return [];
    const counts = kinds.map(({ kind, count }) => `${count} ${kind}`).join(', ');
    return [
      {
        cause,
        condition: 'drift' as const,
        message: {
          title: `${plural(objects, 'object')} of ${stream} ${objects === 1 ? 'drifts' : 'drift'} at the service`,
          details: [`Not as last accepted: ${counts}.`],
          commands: [`slotsync verify ${stream}`, `slotsync verify ${stream} --repair`],
        },
      },
    ];
  });
}

/** Other programs may add any name: those that are not configured are one cause. */
function findInbox(
  { inbox }: ConditionsReading,
  { inboxMinutes: minutes }: AlertRules,
  streams: readonly string[],
): AlertCause[] {
  if (minutes === false) return [];
  const old = inbox.filter(({ oldestSeconds }) => oldestSeconds >= minutes * MINUTE);
  const known = old.filter(({ stream }) => streams.includes(stream));
  const unknown = old.length - known.length;
  return [
    ...known.map(({ stream, waiting, inFlight, oldestSeconds }): AlertCause => ({
      cause: `inbox ${stream}`,
      condition: 'inbox',
      message: {
        title: `A change of ${stream} has waited for ${formatDuration(oldestSeconds)}`,
        details: [`${plural(waiting, 'key')} waiting, ${inFlight} in progress.`],
        commands: ['slotsync status'],
      },
    })),
    ...(unknown === 0
      ? []
      : [
          {
            cause: 'inbox (not configured)',
            condition: 'inbox' as const,
            message: {
              title: 'Changes wait for streams that are not in the configuration',
              details: [`${plural(unknown, 'stream')}; no worker takes their changes.`],
              commands: ['slotsync status'],
            },
          },
        ]),
  ];
}

function findRestored({ restored }: ConditionsReading): AlertCause[] {
  if (restored === null) return [];
  return [
    {
      cause: 'state_restored',
      condition: 'state_restored',
      message: {
        title: 'The state was restored: what the service holds is not known',
        details: [`The state ${restored.why}.`, 'Until it is verified, no run counts as succeeded.'],
        commands: ['slotsync verify --repair'],
      },
    },
  ];
}

/** What is still to be known when a cause is over: it may have ended without everything being in sync. */
export function describeAfterwards(
  { unsettled, lostWhileStopped: lost }: ConditionsReading,
  condition: AlertCause['condition'],
): string[] {
  return [
    ...(condition === 'sending_stopped' && lost > 0
      ? [
          `${plural(lost, 'process', 'processes')} that sent nothing ${lost === 1 ? 'was' : 'were'} killed, or cut off: slotsync status`,
        ]
      : []),
    ...(unsettled > 0
      ? [`${plural(unsettled, 'record')} ${unsettled === 1 ? 'is' : 'are'} not in sync: slotsync failures`]
      : []),
  ];
}

function explainCode(code: string | null): string[] {
  if (code === null) return [];
  return [`${code}: ${errorEntry(code).meaning}.`, ...remedyOf(code)];
}

const remedyOf = (code: string) => [remedyFor(code)].filter((remedy) => remedy !== '');

function ofStreams(rows: readonly EndedBadly[]): string[] {
  const names = [...new Set(rows.flatMap(({ stream }) => (stream === null ? [] : [stream])))];
  if (names.length === 0) return [];
  const more = names.length > MOST_STREAMS ? ` and ${names.length - MOST_STREAMS} more` : '';
  return [`Streams: ${names.slice(0, MOST_STREAMS).join(', ')}${more}.`];
}

const secondsFrom = (at: Date, now: Date) => Math.max(0, (now.getTime() - at.getTime()) / 1000);

/** Groups with their name, all of the group, and its last. */
function groupBy<T>(all: readonly T[], nameOf: (one: T) => string): [name: string, group: T[], last: T][] {
  const groups = new Map<string, T[]>();
  for (const one of all) groups.set(nameOf(one), [...(groups.get(nameOf(one)) ?? []), one]);
  return [...groups].map(([name, group]) => [name, group, group.at(-1) as T]);
}
