import type { Command } from 'commander';
import type { App } from '../app.js';
import type { QuotaUsage } from '../destination/quota/limiter.js';
import { codeOf } from '../errors.js';
import {
  readReservationsWatermark,
  type ReservationsWatermark,
} from '../state/bookings/reservations-watermark.js';
import { readBinding } from '../state/destination-binding.js';
import { listWatermarks, type Watermark } from '../state/inbox/poll-watermarks.js';
import { readInbox, type InboxOfStream } from '../state/inbox/read-inbox.js';
import { countRecords, countUnsettled } from '../state/records/count-records.js';
import { listOpenApprovals } from '../state/runs/approvals.js';
import { readHolds } from '../state/runs/holds.js';
import { readSchedule, type RegisteredSchedule } from '../state/runs/nightly-occurrences.js';
import {
  LISTED_KINDS,
  listRuns,
  listUnfinishedRuns,
  readProgress,
  type Run,
} from '../state/runs/read-runs.js';
import { RUN_KINDS, type RunKind } from '../state/schema.js';
import { queueAddress } from '../queue/bullmq.js';
import { QUEUES } from '../queue/jobs.js';
import { nextDue } from '../cron-schedule.js';
import { NIGHTLY } from '../sync/start-nightly.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { describeApproval, describeHolds } from './holds.js';
import {
  formatDuration,
  formatInZone,
  formatNumber,
  formatTime,
  plural,
  printJson,
  printLine,
  table,
} from '../report/format.js';
import { runsTable } from './runs.js';
import { runToJson } from '../report/run-report.js';

const STATUSES = ['synced', 'retired', 'deferred', 'failed', 'dead', 'pending'] as const;

export function addStatus(program: Command): void {
  common(program.command('status'))
    .description('what is synced, what is under way, what waits and why; from the state alone')
    .option('--all', 'incremental runs too')
    .action((options: CommonOptions & { all?: boolean }) =>
      withApp({ needs: ['state'], configPath: options.config }, async (app) => {
        const state = await app.state();
        const binding = await readBinding(state);
        const kinds: readonly RunKind[] = options.all ? RUN_KINDS : LISTED_KINDS;
        const isShown = ({ kind }: Run) => kinds.includes(kind);
        const schedule = await readSchedule(state.db, NIGHTLY);
        const counts = await countRecords(state.db);
        const unfinished = await Promise.all(
          (await listUnfinishedRuns(state.db)).filter(isShown).map(async (run) => ({
            run,
            progress: await readProgress(state.db, run.id),
          })),
        );
        const latest = await listRuns(state.db, 5, kinds);
        const unsettled = await countUnsettled(state.db);
        const holds = await readHolds(state.db);
        const approvals = await listOpenApprovals(state.db);
        const inbox = await readInboxOf(app);
        const quota = binding ? await readQuota(app, binding) : undefined;
        if (options.json) {
          printJson({
            destination: binding ?? null,
            records: counts,
            unfinished,
            runs: latest.map(runToJson),
            nightly: schedule ? { ...schedule, nextDue: nextDue(schedule, new Date()) } : null,
            unsettled,
            holds,
            approvals,
            quota,
            inbox: {
              ...inbox,
              // Where other programs put their jobs.
              queue: binding ? queueAddress(app.queueStore(), QUEUES.changes, binding.stateId) : null,
            },
          });
          return EXIT.done;
        }
        if (!binding) printLine('Not bound to a service yet: the first sync does that.');
        else
          printLine(
            `Organization ${binding.organizationId} at ${binding.baseUrl}, since ${formatTime(binding.boundAt)}.`,
          );
        printLine();
        const streams = [...new Set(counts.map(({ stream }) => stream))];
        if (streams.length > 0) {
          const rows = streams.map((stream) => [
            stream,
            ...STATUSES.map(
              (status) => counts.find((row) => row.stream === stream && row.status === status)?.count ?? 0,
            ),
          ]);
          printLine(table(['records', ...STATUSES], rows));
          printLine();
        }
        for (const { run, progress } of unfinished) {
          printLine(
            `Under way: run ${run.id} (${run.kind}, ${run.status}${describePause(run)}): ${formatNumber(progress.done)} of ${plural(progress.total, 'record')}.`,
          );
        }
        if (schedule) printLine(`${describeSchedule(schedule)}\n`);
        for (const line of describeHolds(holds)) printLine(`${line}\n`);
        for (const approval of approvals) printLine(`${describeApproval(approval)}\n`);
        for (const line of describeInbox(inbox)) printLine(line);
        if (quota) printLine(`${describeQuota(quota)}\n`);
        if (latest.length > 0) printLine(`${runsTable(latest)}\n`);
        printLine(
          unsettled === 0
            ? 'Every record is at the service as it was last read.'
            : `${plural(unsettled, 'record')} not at the service as the mirror has them: slotsync failures`,
        );
        return EXIT.done;
      }),
    );
}

function describePause({ id, pausedAt }: Run): string {
  return pausedAt ? `, paused since ${formatTime(pausedAt)}; to go on: slotsync resume ${id}` : '';
}

function describeSchedule(schedule: RegisteredSchedule): string {
  const { lastDue, timezone } = schedule;
  const next = formatInZone(nextDue(schedule, new Date()), timezone);
  const last = lastDue ? `the last was ${formatInZone(lastDue, timezone)}` : 'there was none yet';
  return `Next night: ${next} (${timezone}), if a worker runs; ${last}.`;
}

interface InboxReading {
  streams: InboxOfStream[];
  /** Streams in the inbox that the configuration does not have; null: it cannot be read here. */
  unknown: string[] | null;
  watermarks: Watermark[];
  /** How far changes of reservations at the service were read, if ever. */
  reservations: ReservationsWatermark | undefined;
}

async function readInboxOf(app: App): Promise<InboxReading> {
  const { db } = await app.state();
  const streams = await readInbox(db);
  const known = await app.configuration().then(
    (configuration) => new Set(configuration.streams.map(({ name }) => name)),
    () => undefined,
  );
  return {
    streams,
    unknown: known ? streams.flatMap(({ stream }) => (known.has(stream) ? [] : [stream])) : null,
    watermarks: await listWatermarks(db),
    reservations: await readReservationsWatermark(db),
  };
}

function describeInbox({ streams, unknown, watermarks, reservations }: InboxReading): string[] {
  const lines = streams.map(({ stream, waiting, later, inFlight, oldestSeconds }) => {
    const keys = `${stream}: ${plural(waiting, 'key')} waiting, ${formatNumber(inFlight)} in work`;
    const tried = later > 0 ? `; ${formatNumber(later)} of them failed, and wait for their next turn` : '';
    const whose = unknown?.includes(stream)
      ? '; the configuration has no such stream: nobody takes them'
      : '';
    return `Inbox: ${keys}, the oldest for ${formatDuration(oldestSeconds)}${tried}${whose}.`;
  });
  const polled = watermarks.map(
    ({ stream, cursor, movedAt }) =>
      `Polled: ${stream} up to ${cursor}; the watermark moved last at ${formatTime(movedAt)}.`,
  );
  if (reservations)
    polled.push(
      `Bookings: what was changed there is read up to ${formatTime(new Date(reservations.readUpTo * 1000))}.`,
    );
  return [...lines, ...polled, ...(lines.length + polled.length > 0 ? [''] : [])];
}

/** The quota's use now, or why it cannot be told. */
async function readQuota(
  app: App,
  owner: Parameters<App['quotaUsage']>[0],
): Promise<QuotaUsage | { unknown: string }> {
  try {
    return await app.quotaUsage(owner);
  } catch (error) {
    return { unknown: codeOf(error) };
  }
}

function describeQuota(quota: QuotaUsage | { unknown: string }): string {
  if ('unknown' in quota)
    return `Quota: its store does not answer (${quota.unknown}); nothing is sent meanwhile.`;
  const { allowed, rate, held, cooling, free, granted, throttled, waiting, usedByOthers } = quota;
  const lanes = Object.entries(waiting).filter(([, count]) => count > 0);
  const line =
    lanes.length === 0
      ? 'nobody waits'
      : lanes.map(([lane, count]) => `${count} waiting in ${lane}`).join(', ');
  const others = usedByOthers > 0 ? `; others seem to use ${usedByOthers} of ${rate} requests a second` : '';
  return [
    `Quota: ${allowed} of ${rate} requests a second; ${held} on the wire, ${cooling} in the second after, ${free} free; ${line}.`,
    `  ${formatNumber(granted)} granted, ${formatNumber(throttled)} refused by the service (429)${others}.`,
  ].join('\n');
}
