// What alerts are decided by, read in one transaction.
import type { FollowedSchedule } from '../cron-schedule.js';
import { queryOne, type Queries } from '../state/database.js';
import { readBinding } from '../state/destination-binding.js';
import { readRestored } from '../state/databases.js';
import { countDrift, isDrift } from '../state/drift/read-drift.js';
import { readInbox } from '../state/inbox/read-inbox.js';
import { readWholeSuccess } from '../state/metrics-readings.js';
import { listProcesses } from '../state/processes.js';
import { countSentAgain, countUnsettled } from '../state/records/count-records.js';
import { listEndedBadly } from '../state/runs/ended-badly.js';
import { readHolds } from '../state/runs/holds.js';
import { NIGHTLY, readSchedule } from '../state/runs/nightly-occurrences.js';
import { readFirstRequest } from '../state/runs/read-runs.js';
import { isStopped } from './status.js';

export type ConditionsReading = Awaited<ReturnType<typeof readConditions>>;

/** After so long a nightly sync counts as not successful. */
const MAY_TAKE_MS = 2 * 60 * 60 * 1000;

/**
 * `streams`: those of the configuration. `at`: by the database's clock unless given, so that workers whose clocks differ
 * find the same causes.
 */
export async function readConditions(db: Queries, streams: readonly string[], at?: Date) {
  const now = at ?? (await readNow(db));
  const schedule = await readSchedule(db, NIGHTLY);
  const processes = await listProcesses(db);
  return {
    now,
    endedBadly: [...(await listEndedBadly(db))],
    holds: [...(await readHolds(db))],
    sendingStopped: processes.filter(isStopped),
    /** Of those that sent nothing, how many were killed or are cut off, and nobody knows whether they send. */
    lostWhileStopped: processes.filter(({ isAlive, stoppedSince }) => !isAlive && stoppedSince !== null)
      .length,
    /** When a sync of all streams last succeeded; null: none is known. */
    succeededAt: await readWholeSuccess(db, streams),
    /** When there was first something to succeed: the state was bound to a service, or a run was asked for. */
    begunAt: await readBegun(db),
    /** Since when nightly syncs are due; null: none are. */
    scheduledAt: schedule?.registeredAt ?? null,
    /** The latest nightly sync that was due long enough ago to have ended; null: none was. */
    dueAt: schedule ? await readDueAt(schedule, now) : null,
    drift: (await countDrift(db)).filter(({ kind }) => isDrift(kind)),
    inbox: await readInbox(db),
    restored: (await readRestored(db)) ?? null,
    unsettled: await countUnsettled(db),
    /** By stream, records that failed and are in the inbox to be sent again. */
    sentAgain: [...(await countSentAgain(db))],
  };
}

async function readNow(db: Queries): Promise<Date> {
  const { now } = await queryOne<{ now: string }>(db)`SELECT now() AS now`;
  return new Date(now);
}

async function readBegun(db: Queries): Promise<Date | null> {
  const bound = await readBinding({ db });
  const times = [bound?.boundAt, await readFirstRequest(db)].filter((at) => at !== undefined);
  return times.length === 0 ? null : new Date(Math.min(...times.map((at) => at.getTime())));
}

/** Loaded here: a command that shows the status alone needs no schedule. */
async function readDueAt(schedule: FollowedSchedule, now: Date): Promise<Date | null> {
  const { latestDue } = await import('../cron-schedule.js');
  return latestDue(schedule, schedule.registeredAt, new Date(now.getTime() - MAY_TAKE_MS)) ?? null;
}
