import type { App } from '../app.js';
import { codeOf } from '../errors.js';
import { QUEUES } from '../queue/jobs.js';
import { queueAddress } from '../queue/queue-address.js';
import { printJson } from '../report/print.js';
import { printStatus, statusToJson, type InboxReading, type QuotaStatus } from '../report/status.js';
import { readReservationsWatermark } from '../state/bookings/reservations-watermark.js';
import { readBinding } from '../state/destination-binding.js';
import { readInbox } from '../state/inbox/read-inbox.js';
import { listWatermarks } from '../state/inbox/poll-watermarks.js';
import { countRecords, countUnsettled } from '../state/records/count-records.js';
import { listOpenApprovals } from '../state/runs/approvals.js';
import { readHolds } from '../state/runs/holds.js';
import { readSchedule, type RegisteredSchedule } from '../state/runs/nightly-occurrences.js';
import { LISTED_KINDS, listRuns, listUnfinishedRuns, readProgress } from '../state/runs/read-runs.js';
import { RUN_KINDS, type RunKind } from '../state/schema.js';
import { NIGHTLY } from '../state/runs/nightly-occurrences.js';
import type { CommonOptions } from './command.js';
import { EXIT } from './exit-code.js';

export async function status(app: App, options: CommonOptions & { all?: boolean }): Promise<number> {
  const state = await app.state();
  const { db } = state;
  const kinds: readonly RunKind[] = options.all ? RUN_KINDS : LISTED_KINDS;
  const binding = await readBinding(state);
  const schedule = await readSchedule(db, NIGHTLY);
  const unfinished = (await listUnfinishedRuns(db)).filter(({ kind }) => kinds.includes(kind));
  const reading = {
    binding,
    nightly: schedule && { ...schedule, nextDue: await readNextDue(schedule) },
    records: await countRecords(db),
    unfinished: await Promise.all(
      unfinished.map(async (run) => ({ run, progress: await readProgress(db, run.id) })),
    ),
    runs: await listRuns(db, 5, kinds),
    unsettled: await countUnsettled(db),
    holds: await readHolds(db),
    approvals: await listOpenApprovals(db),
    inbox: await readInboxReading(app),
    quota: binding && (await readQuota(app, binding)),
  };
  if (options.json)
    printJson(
      statusToJson(reading, binding ? queueAddress(app.queueStore(), QUEUES.changes, binding.stateId) : null),
    );
  else printStatus(reading);
  return EXIT.done;
}

/** The configuration is loaded only to compare it with streams that are in the inbox. */
async function readInboxReading(app: App): Promise<InboxReading> {
  const { db } = await app.state();
  const streams = await readInbox(db);
  const watermarks = await listWatermarks(db);
  const reservations = await readReservationsWatermark(db);
  if (streams.length === 0) return { streams, unknown: [], watermarks, reservations };
  const configured = await app.configuration().catch(() => undefined);
  const unknown = configured
    ? streams
        .map(({ stream }) => stream)
        .filter((name) => !configured.streams.some((one) => one.name === name))
    : null;
  return { streams, unknown, watermarks, reservations };
}

/** The quota's use now, or why it is not known. */
async function readQuota(app: App, owner: Parameters<App['quotaUsage']>[0]): Promise<QuotaStatus> {
  try {
    return await app.quotaUsage(owner);
  } catch (error) {
    return { unknown: codeOf(error) };
  }
}

async function readNextDue(schedule: RegisteredSchedule): Promise<Date> {
  const { nextDue } = await import('../cron-schedule.js');
  return nextDue(schedule, new Date());
}
