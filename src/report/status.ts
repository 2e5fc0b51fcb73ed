// What `status` prints: the destination, processes, records by status, unfinished runs, what is held or waits, and the quota.
import { errorEntry } from '../error-catalogue.js';
import { formatDuration, formatMinute, formatNumber, formatTime, plural } from '../format.js';
import type { StatusReading } from '../readings/status.js';
import type { Process } from '../state/processes.js';
import {
  describeFormerObjects,
  describeRestored,
  describeSettled,
  describeUnsent,
  describeUnsettled,
  headlineOf,
} from './failures.js';
import { describeFormer, describeWaitingRun } from './configurations.js';
import { describeApproval, describeHolds } from './holds.js';
import { lines } from './print.js';
import { runsTable, runToJson } from './run.js';
import { table } from './table.js';
import { describeStoredOtherwise } from './verify.js';

/** Named at a glance. */
const MOST_CAUSES = 3;
const MOST_SILENT = 3;
const SILENT_SHOWN_MS = 24 * 3600 * 1000;
const STATUSES = ['synced', 'retired', 'deferred', 'failed', 'dead', 'pending'] as const;

/** `queue`: where other programs put their jobs. */
export function statusToJson({ binding, nightly, runs, inbox, ...rest }: StatusReading, queue: unknown) {
  return {
    destination: binding ?? null,
    nightly: nightly ?? null,
    runs: runs.map(runToJson),
    inbox: { ...inbox, queue },
    ...rest,
  };
}

interface Times {
  timeZone: string;
  now: Date;
}

/** Blocks of lines, what is wrong first. Times are shown in the time zone. */
export function describeStatus(reading: StatusReading, timeZone: string): string[] {
  const { binding, nightly, unfinished, runs, approvals, inbox, quota, requestSizes } = reading;
  const times = { timeZone, now: new Date() };
  const isAtWork = reading.processes.some(({ isAlive }) => isAlive);
  const waiting = new Set(reading.configurations.waiting.map(({ id }) => id));
  const blocks = [
    lines(
      binding
        ? `Organization ${binding.organizationId} at ${binding.baseUrl}, since ${formatMinute(binding.boundAt, timeZone)}.`
        : 'Not bound to a service yet; the first sync binds it.',
      describeLastAnswer(reading, times),
    ),
    ...describeWrong(reading, times),
    lines(
      unfinished.map((one) => describeUnderWay(one, isAtWork && !waiting.has(one.run.id), timeZone)),
      runs.length > 0 && runsTable(runs, timeZone),
      nightly && describeNightly(reading, nightly, timeZone),
      approvals.map((approval) => describeApproval(approval, timeZone)),
    ),
    describeRecords(reading),
    describeVerified(reading.verified, timeZone),
    describeInbox(inbox, timeZone),
    lines(quota && describeQuota(quota)),
    lines(requestSizes.length > 0 && describeRequestSizes(requestSizes)),
  ];
  return blocks
    .filter((block) => block.length > 0)
    .flatMap((block, at) => (at === 0 ? block : ['', ...block]));
}

/** What an operator has to know or to do first, a block each. */
function describeWrong(reading: StatusReading, times: Times): string[][] {
  const { holds, inDoubt, formerObjects, known } = reading;
  return [
    lines(known.restored && describeRestored(known.restored, times.timeZone)),
    describeSending(reading, times),
    ...describeHolds(holds).map((hold) => [hold]),
    lines(
      describeCauses(reading),
      describeInDoubt(inDoubt, times.timeZone),
      describeFormerObjects(formerObjects),
    ),
  ];
}

function describeUnderWay(
  { run: { id, kind, status, pausedAt }, progress }: StatusReading['unfinished'][number],
  isAtWork: boolean,
  timeZone: string,
): string {
  const paused =
    pausedAt && `, paused since ${formatMinute(pausedAt, timeZone)}; to continue: slotsync resume ${id}`;
  const done = `${formatNumber(progress.done)} of ${plural(progress.total, 'record')}`;
  return `${isAtWork || pausedAt ? 'Under way' : 'Unfinished'}: run ${id} (${kind}, ${status}${paused ?? ''}): ${done}.`;
}

function describeRecords({ records, unsettled, holds, known }: StatusReading): string[] {
  if (records.length === 0) return lines(holds.length === 0 && describeSettled(known));
  const streams = [...new Set(records.map(({ stream }) => stream))];
  const countOf = (stream: string, status: string) =>
    records.find((row) => row.stream === stream && row.status === status)?.count ?? 0;
  const rows = streams.map((stream) => [stream, ...STATUSES.map((status) => countOf(stream, status))]);
  return lines(
    table(['records', ...STATUSES], rows),
    unsettled === 0 && holds.length === 0 && describeSettled(known),
  );
}

/** The causes that most records wait for, at a glance; what is held is named with its run. */
function describeCauses({ unsettled, causes, known, unfinished }: StatusReading): string[] {
  if (unsettled === 0) return [];
  // What a run under way has not sent is named with it.
  const unsent = unfinished.length === 0 ? describeUnsent(known) : undefined;
  const named = causes.filter(({ status }) => status !== 'held');
  const more = named.length - MOST_CAUSES;
  return lines(
    `${describeUnsettled(unsettled)}: slotsync failures`,
    named.slice(0, MOST_CAUSES).map((cause) => `  ${headlineOf(cause)}`),
    more > 0 && `  … and ${plural(more, 'more cause', 'more causes')}`,
    unsent,
  );
}

/** `Sending stopped since …: service_unreachable: …`. */
export function describeStopped(
  { since, code, message }: { since: Date; code: string; message: string },
  timeZone: string,
): string {
  return `Sending stopped since ${formatTime(since, timeZone)}: ${code}: ${message}`;
}

/** A loop that ended is not begun again; whatever else stops sending is tried again. */
export const resumesAlone = (code: string) => code !== 'worker_ended';

/** Why nothing is sent: processes that send nothing, and those that are gone. */
export function describeSending(
  { processes, sendingStopped, orphanedClaims, leftRuns, configurations }: StatusReading,
  { timeZone, now }: Times,
): string[] {
  const isMissed = leftRuns.length > 0 || orphanedClaims.records > 0;
  // Where others have taken over what it had, a command that was killed is over, and a worker is worth a look for a day.
  const isShown = ({ command, seenAt }: StatusReading['processes'][number]) =>
    isMissed || (command === 'worker' && now.getTime() - seenAt.getTime() < SILENT_SHOWN_MS);
  const silent = processes
    .filter((process) => !process.isAlive && isShown(process))
    .toSorted((a, b) => b.seenAt.getTime() - a.seenAt.getTime());
  const since = isMissed ? 'Not seen since' : 'Last seen';
  const more = silent.length - MOST_SILENT;
  return lines(
    sendingStopped.flatMap(({ stoppedSince: since, errorCode: code, errorMessage: message, ...process }) => [
      `${describeStopped({ since, code, message }, timeZone)} (for ${ago(since, now)}; ${nameProcess(process)}).`,
      `  → ${resumesAlone(code) ? 'It is tried again at widening gaps, and sending resumes automatically. ' : ''}${errorEntry(code).remedy}`,
    ]),
    silent
      .slice(0, MOST_SILENT)
      .map(
        (process) =>
          `${since} ${formatTime(process.seenAt, timeZone)}: ${nameProcess(process)}. It was killed, is frozen, or cannot reach the state.`,
      ),
    more > 0 &&
      `${plural(more, 'process', 'processes')} more ${more === 1 ? 'was' : 'were'} seen before that.`,
    orphanedClaims.records > 0 &&
      `${plural(orphanedClaims.records, 'record')} ${orphanedClaims.records === 1 ? 'waits' : 'wait'} for the claim of a process that is gone, until ${formatTime(orphanedClaims.until, timeZone)} at the latest.`,
    leftRuns.map(
      (id) =>
        `Run ${id} is unfinished, and no process is known to work on it: slotsync worker, or slotsync sync`,
    ),
    configurations.waiting.map(describeWaitingRun),
    configurations.former.map((one) => `${describeFormer(one, { timeZone, now })}.`),
  );
}

function describeLastAnswer({ binding }: StatusReading, { timeZone, now }: Times): string | undefined {
  const { answeredAt = null, answer = null, succeededAt = null } = binding ?? {};
  if (answeredAt === null) return undefined;
  const isSuccess = answeredAt.getTime() === succeededAt?.getTime();
  const succeeded = succeededAt
    ? `; the last success ${formatTime(succeededAt, timeZone)}`
    : '; none succeeded yet';
  return `Last answer of the service: ${describeAnswer(answer)}, ${ago(answeredAt, now)} ago (${formatTime(answeredAt, timeZone)})${isSuccess ? '' : succeeded}.`;
}

const ago = (at: Date, now: Date) => formatDuration(Math.max(0, (now.getTime() - at.getTime()) / 1000));

const nameProcess = ({ command, host, pid }: Pick<Process, 'command' | 'host' | 'pid'>) =>
  `${command} on ${host}, process ${pid}`;

const ANSWERS: Readonly<Record<string, string>> = {
  unreachable: 'none, it could not be reached',
  lost: 'none, it was lost after sending',
};
export const describeAnswer = (answer: string | null) => ANSWERS[answer ?? ''] ?? `HTTP ${answer}`;

/** A record says what the service accepted; only a verify says what it holds. */
function describeVerified(verified: StatusReading['verified'], timeZone: string): string[] {
  if (verified.length === 0) return [];
  const rows = verified.map(({ stream, verifiedAt, objects, drift }) => [
    stream,
    verifiedAt ? formatMinute(verifiedAt, timeZone) : 'never verified',
    objects === null ? '–' : formatNumber(objects),
    verifiedAt || drift > 0 ? formatNumber(drift) : '–',
  ]);
  const isUnknown = verified.some(({ verifiedAt }) => !verifiedAt);
  const isDrifting = verified.some(({ drift }) => drift > 0);
  const canRepair = verified.some(({ repairable }) => repairable > 0);
  const storedOtherwise = verified.reduce((sum, one) => sum + one.storedOtherwise, 0);
  return lines(
    table(['at the service', 'verified', 'objects', 'drift'], rows),
    isUnknown && 'Never verified: it is not known what the service holds now: slotsync verify',
    isDrifting && 'To list what drifts: slotsync verify --extras',
    canRepair && 'To send again what differs: slotsync verify --repair',
    describeStoredOtherwise(storedOtherwise),
  );
}

/** What `batchSize: 'auto'` has learned. */
export function describeRequestSizes(sizes: StatusReading['requestSizes']): string {
  const rows = sizes.map(({ type, objects, reason }) => [type, formatNumber(objects), reason]);
  return table(['type', 'objects a request', 'because'], rows);
}

function describeInDoubt({ count, latest }: StatusReading['inDoubt'], timeZone: string): string[] {
  if (count === 0) return [];
  const until = latest === null ? '' : `, the last after ${formatTime(latest, timeZone)}`;
  return [
    `${plural(count, 'object')} will be looked at again (an answer was lost, or the object was refused alone)${until}.`,
  ];
}

function describeNightly(
  { processes }: Pick<StatusReading, 'processes'>,
  { lastDue, nextDue }: NonNullable<StatusReading['nightly']>,
  timeZone: string,
): string {
  const last = lastDue ? `the last was due ${formatMinute(lastDue, timeZone)}` : 'none was due yet';
  const hasWorker = processes.some(({ isAlive, command }) => isAlive && command === 'worker');
  const starts = hasWorker ? '' : ', but no worker is running to start it: slotsync worker';
  return `Next nightly sync: ${formatMinute(nextDue, timeZone)}${starts}; ${last}.`;
}

function describeInbox(
  { streams, unknown, watermarks, reservations }: StatusReading['inbox'],
  timeZone: string,
): string[] {
  const waiting = streams.map(({ stream, waiting: keys, later, inFlight, oldestSeconds }) => {
    const tried = later > 0 ? `; ${formatNumber(later)} of them failed and wait for their next attempt` : '';
    const isUnknown = unknown?.includes(stream) ?? false;
    const warning = isUnknown ? '; this stream is not in the configuration, so no worker takes them' : '';
    const oldest = `the oldest for ${formatDuration(oldestSeconds)}`;
    return `Inbox: ${stream}: ${plural(keys, 'key')} waiting, ${formatNumber(inFlight)} in progress, ${oldest}${tried}${warning}.`;
  });
  const polled = watermarks.map(
    ({ stream, cursor, movedAt }) =>
      `Polled: ${stream} up to ${cursor}; the watermark last moved at ${formatTime(movedAt, timeZone)}.`,
  );
  const readUpTo = reservations && formatTime(new Date(reservations.readUpTo * 1000), timeZone);
  const bookings = readUpTo && `Bookings: changes at the service are read up to ${readUpTo}.`;
  return lines(waiting, polled, bookings);
}

function describeQuota(quota: NonNullable<StatusReading['quota']>): string {
  if ('unknown' in quota)
    return `quota: its store does not answer (${quota.unknown}); nothing is sent until it does`;
  const { allowed, rate, held, cooling, granted, throttled, waiting, usedByOthers } = quota;
  const lanes = Object.entries(waiting)
    .filter(([, processes]) => processes > 0)
    .map(([lane, processes]) => `${lane} (${plural(processes, 'process', 'processes')})`);
  const queued = lanes.length === 0 ? 'no requests waiting' : `requests waiting in ${lanes.join(', ')}`;
  const reduced = allowed < rate ? `, reduced to ${allowed} after 429 answers` : '';
  const others = usedByOthers > 0 ? `; other clients use about ${usedByOthers} of ${rate}` : '';
  return [
    `quota: ${held + cooling} of ${rate} in use${reduced}, ${queued}`,
    `  requests: ${formatNumber(granted)} sent, ${formatNumber(throttled)} refused with 429${others}`,
  ].join('\n');
}
