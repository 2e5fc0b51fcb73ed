// What `status` prints: the destination, records by status, unfinished runs, what is held or waits, and the quota.
import type { QuotaUsage } from '../destination/quota/limiter.js';
import type { ReservationsWatermark } from '../state/bookings/reservations-watermark.js';
import type { Binding } from '../state/destination-binding.js';
import type { InboxOfStream } from '../state/inbox/read-inbox.js';
import type { Watermark } from '../state/inbox/poll-watermarks.js';
import type { countRecords } from '../state/records/count-records.js';
import type { Approval } from '../state/runs/approvals.js';
import type { RunHold } from '../state/runs/holds.js';
import type { RegisteredSchedule } from '../state/runs/nightly-occurrences.js';
import type { readProgress, Run } from '../state/runs/read-runs.js';
import { describeUnsettled } from './failures.js';
import { formatDuration, formatInZone, formatNumber, formatTime, plural, table } from './format.js';
import { describeApproval, describeHolds } from './holds.js';
import { printLine } from './print.js';
import { runsTable, runToJson } from './run.js';

const STATUSES = ['synced', 'retired', 'deferred', 'failed', 'dead', 'pending'] as const;

export interface StatusReading {
  binding: (Binding & { boundAt: Date }) | undefined;
  nightly: (RegisteredSchedule & { nextDue: Date }) | undefined;
  records: Awaited<ReturnType<typeof countRecords>>;
  unfinished: { run: Run; progress: Awaited<ReturnType<typeof readProgress>> }[];
  runs: Run[];
  unsettled: number;
  holds: RunHold[];
  approvals: Approval[];
  inbox: InboxReading;
  quota: QuotaStatus | undefined;
}

export interface InboxReading {
  streams: InboxOfStream[];
  /** Streams in the inbox that are not configured; null: the configuration could not be read. */
  unknown: string[] | null;
  watermarks: Watermark[];
  reservations: ReservationsWatermark | undefined;
}

/** `unknown`: the code of the failure to read it. */
export type QuotaStatus = QuotaUsage | { unknown: string };

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

export function printStatus(reading: StatusReading): void {
  const { binding, nightly, records, unfinished, runs, unsettled, holds, approvals, inbox, quota } = reading;
  printLine(
    binding
      ? `Organization ${binding.organizationId} at ${binding.baseUrl}, since ${formatTime(binding.boundAt)}.\n`
      : 'Not bound to a service yet; the first sync binds it.\n',
  );
  const streams = [...new Set(records.map(({ stream }) => stream))];
  const countOf = (stream: string, status: string) =>
    records.find((row) => row.stream === stream && row.status === status)?.count ?? 0;
  const rows = streams.map((stream) => [stream, ...STATUSES.map((status) => countOf(stream, status))]);
  if (rows.length > 0) printLine(`${table(['records', ...STATUSES], rows)}\n`);
  for (const { run, progress } of unfinished) {
    printLine(
      `Under way: run ${run.id} (${run.kind}, ${run.status}${describePause(run)}): ${formatNumber(progress.done)} of ${plural(progress.total, 'record')}.`,
    );
  }
  if (nightly) printLine(`${describeNightly(nightly)}\n`);
  for (const line of describeHolds(holds)) printLine(`${line}\n`);
  for (const approval of approvals) printLine(`${describeApproval(approval)}\n`);
  const inboxLines = describeInbox(inbox);
  if (inboxLines.length > 0) printLine(`${inboxLines.join('\n')}\n`);
  if (quota) printLine(`${describeQuota(quota)}\n`);
  if (runs.length > 0) printLine(`${runsTable(runs)}\n`);
  printLine(`${describeUnsettled(unsettled)}${unsettled === 0 ? '.' : ': slotsync failures'}`);
}

function describePause({ id, pausedAt }: Run): string {
  return pausedAt ? `, paused since ${formatTime(pausedAt)}; to go on: slotsync resume ${id}` : '';
}

function describeNightly({ lastDue, nextDue, timezone }: NonNullable<StatusReading['nightly']>): string {
  const last = lastDue ? `the last was due ${formatInZone(lastDue, timezone)}` : 'none was due yet';
  return `Next nightly sync: ${formatInZone(nextDue, timezone)} (${timezone}), if a worker is running; ${last}.`;
}

function describeInbox({ streams, unknown, watermarks, reservations }: InboxReading): string[] {
  const waiting = streams.map(({ stream, waiting: keys, later, inFlight, oldestSeconds }) => {
    const tried = later > 0 ? `; ${formatNumber(later)} of them failed and wait for their next attempt` : '';
    const isUnknown = unknown?.includes(stream) ?? false;
    const warning = isUnknown ? '; this stream is not in the configuration, so no worker takes them' : '';
    const oldest = `the oldest for ${formatDuration(oldestSeconds)}`;
    return `Inbox: ${stream}: ${plural(keys, 'key')} waiting, ${formatNumber(inFlight)} in progress, ${oldest}${tried}${warning}.`;
  });
  const polled = watermarks.map(
    ({ stream, cursor, movedAt }) =>
      `Polled: ${stream} up to ${cursor}; the watermark last moved at ${formatTime(movedAt)}.`,
  );
  const readUpTo = reservations && formatTime(new Date(reservations.readUpTo * 1000));
  return [
    ...waiting,
    ...polled,
    ...(readUpTo === undefined ? [] : [`Bookings: changes at the service are read up to ${readUpTo}.`]),
  ];
}

function describeQuota(quota: QuotaStatus): string {
  if ('unknown' in quota)
    return `quota: its store does not answer (${quota.unknown}); nothing is sent until it does`;
  const { allowed, rate, held, cooling, granted, throttled, waiting, usedByOthers } = quota;
  const lanes = Object.entries(waiting).filter(([, processes]) => processes > 0);
  const queued =
    lanes.length === 0
      ? 'no requests waiting'
      : `requests waiting in ${lanes.map(([lane, processes]) => `${lane} (${plural(processes, 'process', 'processes')})`).join(', ')}`;
  const reduced = allowed < rate ? `, reduced to ${allowed} after 429 answers` : '';
  const others = usedByOthers > 0 ? `; other clients use about ${usedByOthers} of ${rate}` : '';
  return [
    `quota: ${held + cooling} of ${rate} in use${reduced}, ${queued}`,
    `  requests: ${formatNumber(granted)} sent, ${formatNumber(throttled)} refused with 429${others}`,
  ].join('\n');
}
