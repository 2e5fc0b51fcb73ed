// What the state says now: the destination, processes, records by status, unfinished runs, what is held or waits, and the
// quota. `status`, the operator's page, alerts and the report read it here.
import type { Schedule } from '../cron-schedule.js';
import type { QuotaUsage } from '../destination/quota/limiter.js';
import { codeOf } from '../errors.js';
import { readReservationsWatermark } from '../state/bookings/reservations-watermark.js';
import type { Queries } from '../state/database.js';
import { readBinding, type Binding } from '../state/destination-binding.js';
import { countDrift, isDrift, isRepaired } from '../state/drift/read-drift.js';
import { listVerifications } from '../state/drift/verifications.js';
import { listWatermarks } from '../state/inbox/poll-watermarks.js';
import { readInbox } from '../state/inbox/read-inbox.js';
import { countOrphanedClaims, hasUnknownClaims, listProcesses, type Process } from '../state/processes.js';
import {
  countInDoubt,
  countRecords,
  countUnsettled,
  listRecordedStreams,
} from '../state/records/count-records.js';
import { countFormerObjects } from '../state/records/change-hands.js';
import { readKnowledge } from '../state/records/unsent-records.js';
import { listRequestSizes } from '../state/request-sizes.js';
import { listOpenApprovals } from '../state/runs/approvals.js';
import { readHolds } from '../state/runs/holds.js';
import { NIGHTLY, readSchedule } from '../state/runs/nightly-occurrences.js';
import { listUnfinishedRuns, readProgress } from '../state/runs/read-runs.js';
import type { DriftKind, RunKind } from '../state/schema.js';
import { listCauses } from './causes.js';
import { findConfigurations } from './configurations.js';
import { listRunsSoFar } from './runs.js';

export type StatusReading = Awaited<ReturnType<typeof readStatus>>;

export type RecordCounts = Awaited<ReturnType<typeof readRecordCounts>>;

/** What takes a reading of all records. */
export async function readRecordCounts(
  db: Queries,
  configuredStreams: () => Promise<readonly string[] | undefined>,
) {
  const unsettled = await countUnsettled(db);
  return {
    known: await readKnowledge(db),
    records: await countRecords(db),
    unsettled,
    /** Why they are not in sync. */
    causes: unsettled === 0 ? [] : await listCauses(db, {}, await configuredStreams()),
    inDoubt: await countInDoubt(db),
    formerObjects: await countFormerObjects(db),
    verified: await readVerified(db),
  };
}

/** Everything `status` shows, with runs of these kinds. */
export async function readStatus(
  state: { db: Queries },
  deps: {
    kinds: readonly RunKind[];
    configuredStreams: () => Promise<string[]>;
    quotaUsage: (owner: Binding) => Promise<QuotaUsage>;
    /** For who reads often: counting records reads all of them. */
    records?: () => Promise<RecordCounts>;
  },
) {
  const { db } = state;
  const binding = await readBinding(state);
  const schedule = await readSchedule(db, NIGHTLY);
  const allUnfinished = await listUnfinishedRuns(db);
  const unfinished = allUnfinished.filter(({ kind }) => deps.kinds.includes(kind));
  const streams = await readInbox(db);
  // The configuration is loaded only to compare it with streams that are in the inbox or not in sync.
  const configuredStreams = () => deps.configuredStreams().catch(() => undefined);
  const configured = streams.length === 0 ? [] : await configuredStreams();
  const processes = await listProcesses(db);
  const left = unfinished.filter(({ pausedAt }) => pausedAt === null);
  const mayBeLeft = left.length > 0 && !processes.some(({ isAlive }) => isAlive);
  return {
    binding,
    /** Those that were killed, or cannot reach the state, are there too, and are not alive. */
    processes,
    /** Processes that live and send nothing. */
    sendingStopped: processes.filter(isStopped),
    orphanedClaims: await countOrphanedClaims(db),
    /** Unfinished runs that no process is known to work on. */
    leftRuns: mayBeLeft && !(await hasUnknownClaims(db)) ? left.map(({ id }) => id) : [],
    /** Processes to be restarted, and runs of a configuration that no process at work has. */
    configurations: findConfigurations(processes, allUnfinished),
    nightly: schedule && { ...schedule, nextDue: await readNextDue(schedule) },
    unfinished: await Promise.all(
      unfinished.map(async (run) => ({ run, progress: await readProgress(db, run.id) })),
    ),
    runs: await listRunsSoFar(db, 5, deps.kinds),
    ...(await (deps.records?.() ?? readRecordCounts(db, configuredStreams))),
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

type StoppedProcess = Process & { stoppedSince: Date; errorCode: string; errorMessage: string };
export const isStopped = (process: Process): process is StoppedProcess =>
  process.isAlive && process.stoppedSince !== null;

/** Per stream with records: when it was read back last, and how many of its objects drift. */
export async function readVerified(db: Queries) {
  const [passes, drift] = [await listVerifications(db), await countDrift(db)];
  const names = new Set([...(await listRecordedStreams(db)), ...drift.map(({ stream }) => stream)]);
  return [...names].toSorted().map((stream) => {
    const pass = passes.find((one) => one.stream === stream);
    const count = (isMeant: (kind: DriftKind) => boolean) =>
      drift.reduce((sum, one) => sum + (one.stream === stream && isMeant(one.kind) ? one.count : 0), 0);
    return {
      stream,
      verifiedAt: pass ? new Date(pass.verifiedAt) : null,
      objects: pass?.objects ?? null,
      drift: count(isDrift),
      /** Of those: what a repair sends again. */
      repairable: count(isRepaired),
      storedOtherwise: count((kind) => !isDrift(kind)),
    };
  });
}

async function readNextDue(schedule: Schedule): Promise<Date> {
  const { nextDue } = await import('../cron-schedule.js');
  return nextDue(schedule, new Date());
}
