// What `status` reads and prints: the destination, records by status, unfinished runs, what is held or waits, and the
// quota.
import type { Schedule } from '../cron-schedule.js';
import type { QuotaUsage } from '../destination/quota/limiter.js';
import { codeOf } from '../errors.js';
import { readReservationsWatermark } from '../state/bookings/reservations-watermark.js';
import type { Queries, State } from '../state/database.js';
import { listRequestSizes } from '../state/request-sizes.js';
import { readBinding, type Binding } from '../state/destination-binding.js';
import { listWatermarks } from '../state/inbox/poll-watermarks.js';
import { readInbox } from '../state/inbox/read-inbox.js';
import { countDrift } from '../state/drift/read-drift.js';
import { listVerifications } from '../state/drift/verifications.js';
import {
  countInDoubt,
  countRecords,
  countUnsettled,
  listRecordedStreams,
} from '../state/records/count-records.js';
import { countFormerObjects } from '../state/records/former-objects.js';
import { listOpenApprovals } from '../state/runs/approvals.js';
import { readHolds } from '../state/runs/holds.js';
import { NIGHTLY, readSchedule } from '../state/runs/nightly-occurrences.js';
import { listRuns, listUnfinishedRuns, readProgress } from '../state/runs/read-runs.js';
import type { DriftKind, RunKind } from '../state/schema.js';
import { describeFormerObjects, describeUnsettled } from './failures.js';
import { formatDuration, formatInZone, formatNumber, formatTime, plural, table } from './format.js';
import { describeApproval, describeHolds } from './holds.js';
import { lines, printLine } from './print.js';
import { runsTable, runToJson } from './run.js';

const STATUSES = ['synced', 'retired', 'deferred', 'failed', 'dead', 'pending'] as const;

type StatusReading = Awaited<ReturnType<typeof readStatus>>;

/** Everything `status` shows, with runs of these kinds. */
export async function readStatus(
  state: State,
  deps: {
    kinds: readonly RunKind[];
    configuredStreams: () => Promise<string[]>;
    quotaUsage: (owner: Binding) => Promise<QuotaUsage>;
  },
) {
  const { db } = state;
  const binding = await readBinding(state);
  const schedule = await readSchedule(db, NIGHTLY);
  const unfinished = (await listUnfinishedRuns(db)).filter(({ kind }) => deps.kinds.includes(kind));
  const streams = await readInbox(db);
  // The configuration is loaded only to compare it with streams that are in the inbox.
  const configured = streams.length === 0 ? [] : await deps.configuredStreams().catch(() => undefined);
  return {
    binding,
    nightly: schedule && { ...schedule, nextDue: await readNextDue(schedule) },
    records: await countRecords(db),
    unfinished: await Promise.all(
      unfinished.map(async (run) => ({ run, progress: await readProgress(db, run.id) })),
    ),
    runs: await listRuns(db, 5, deps.kinds),
    unsettled: await countUnsettled(db),
    inDoubt: await countInDoubt(db),
    formerObjects: await countFormerObjects(db),
    verified: await readVerified(db),
    requestSizes: await listRequestSizes(db),
    holds: await readHolds(db),
    approvals: await listOpenApprovals(db),
    inbox: {
      streams,
      /** Streams in the inbox that are not configured; null: the configuration could not be read. */
      unknown: configured
        ? streams.map(({ stream }) => stream).filter((name) => !configured.includes(name))
        : null,
      watermarks: await listWatermarks(db),
      reservations: await readReservationsWatermark(db),
    },
    /** `unknown`: the code of the failure to read it. */
    quota: binding && (await deps.quotaUsage(binding).catch((error) => ({ unknown: codeOf(error) }))),
  };
}

const isRepairable = (kind: DriftKind) => kind !== 'extra' && kind !== 'wrong_type';

/** Per stream with records: when it was read back last, and how many of its objects drift. */
async function readVerified(db: Queries) {
  const [passes, drift] = [await listVerifications(db), await countDrift(db)];
  const names = new Set([...(await listRecordedStreams(db)), ...drift.map(({ stream }) => stream)]);
  return [...names].toSorted().map((stream) => {
    const pass = passes.find((one) => one.stream === stream);
    return {
      stream,
      verifiedAt: pass ? new Date(pass.verifiedAt) : null,
      objects: pass?.objects ?? null,
      drift: drift.reduce((sum, one) => sum + (one.stream === stream ? one.count : 0), 0),
      /** Of those: what a repair sends again. */
      repairable: drift.reduce(
        (sum, one) => sum + (one.stream === stream && isRepairable(one.kind) ? one.count : 0),
        0,
      ),
    };
  });
}

async function readNextDue(schedule: Schedule): Promise<Date> {
  const { nextDue } = await import('../cron-schedule.js');
  return nextDue(schedule, new Date());
}

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
  const { inDoubt, formerObjects, verified, requestSizes } = reading;
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
  if (verified.length > 0) printLine(`${describeVerified(verified)}\n`);
  for (const { run, progress } of unfinished) {
    const { id, kind, pausedAt } = run;
    const paused = pausedAt && `, paused since ${formatTime(pausedAt)}; to go on: slotsync resume ${id}`;
    const done = `${formatNumber(progress.done)} of ${plural(progress.total, 'record')}`;
    printLine(`Under way: run ${id} (${kind}, ${run.status}${paused ?? ''}): ${done}.`);
  }
  if (nightly) printLine(`${describeNightly(nightly)}\n`);
  for (const line of describeHolds(holds)) printLine(`${line}\n`);
  for (const approval of approvals) printLine(`${describeApproval(approval)}\n`);
  const waiting = describeInbox(inbox);
  if (waiting.length > 0) printLine(`${waiting.join('\n')}\n`);
  if (quota) printLine(`${describeQuota(quota)}\n`);
  if (requestSizes.length > 0) printLine(`${describeRequestSizes(requestSizes)}\n`);
  if (runs.length > 0) printLine(`${runsTable(runs)}\n`);
  for (const line of describeInDoubt(inDoubt)) printLine(line);
  for (const line of describeFormerObjects(formerObjects)) printLine(line);
  if (records.length === 0) return printLine('No record yet: slotsync plan, then slotsync sync');
  printLine(`${describeUnsettled(unsettled)}${unsettled === 0 ? '.' : ': slotsync failures'}`);
}

/** A record says what the service accepted; only a verify says what it holds. */
function describeVerified(verified: StatusReading['verified']): string {
  const rows = verified.map(({ stream, verifiedAt, objects, drift }) => [
    stream,
    verifiedAt ? formatTime(verifiedAt) : 'never verified',
    objects === null ? '–' : formatNumber(objects),
    verifiedAt || drift > 0 ? formatNumber(drift) : '–',
  ]);
  const isUnknown = verified.some(({ verifiedAt }) => !verifiedAt);
  const isDrifting = verified.some(({ drift }) => drift > 0);
  const canRepair = verified.some(({ repairable }) => repairable > 0);
  return lines(
    table(['at the service', 'verified', 'objects', 'drift'], rows),
    isUnknown && 'Never verified: it is not known what the service holds now: slotsync verify',
    isDrifting && 'To list what drifts: slotsync verify --extras',
    canRepair && 'To send again what differs: slotsync verify --repair',
  ).join('\n');
}

/** What `batchSize: 'auto'` has learned. */
export function describeRequestSizes(sizes: StatusReading['requestSizes']): string {
  const rows = sizes.map(({ type, objects, reason }) => [type, formatNumber(objects), reason]);
  return table(['type', 'objects a request', 'because'], rows);
}

function describeInDoubt({ count, latest }: StatusReading['inDoubt']): string[] {
  if (count === 0) return [];
  const until = latest === null ? '' : `, the last after ${formatTime(latest)}`;
  return [
    `${plural(count, 'object')} will be looked at again (an answer was lost, or the object was refused alone)${until}.`,
  ];
}

function describeNightly({ lastDue, nextDue, timezone }: NonNullable<StatusReading['nightly']>): string {
  const last = lastDue ? `the last was due ${formatInZone(lastDue, timezone)}` : 'none was due yet';
  return `Next nightly sync: ${formatInZone(nextDue, timezone)} (${timezone}), if a worker is running; ${last}.`;
}

function describeInbox({ streams, unknown, watermarks, reservations }: StatusReading['inbox']): string[] {
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
