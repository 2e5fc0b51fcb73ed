// The situation: facts of the state, read in one snapshot. All that people and monitoring see is made from these facts.
import type { QuotaUsage } from '../destination/quota/limiter.js';
import { codeOf } from '../errors/errors.js';
import { countDiscrepancies, readReservationsWatermark } from '../state/bookings/read-reservations.js';
import { readClock, type Queries, inSnapshot } from '../state/database.js';
import { readBinding, type Binding } from '../state/destination-binding.js';
import { countDrift, isDrift, isRepaired, listVerifications } from '../state/drift.js';
import { listLoads, listStreams, readWholeSuccess } from '../state/streams.js';
import { countExceptions } from '../state/exceptions.js';
import { listFreezes } from '../state/freezes.js';
import { readGates } from '../state/gates/gates.js';
import { hasChanges, readInbox, listLostTriggers } from '../state/inbox/read-inbox.js';
import { countOrphanedClaims, listProcesses } from '../state/processes.js';
import { countFormerObjects } from '../state/records/read/owners.js';
import {
  countInDoubt,
  countRecords,
  countUnsettled,
  listRecordedStreams,
} from '../state/records/read/count-records.js';
import { readKnowledge } from '../state/records/read/unsent-records.js';
import { listSyncSchedules, type RegisteredSchedule } from '../state/schedules.js';
import { LISTED_KINDS, listBadReadings, listUnfinishedRuns, readProgress } from '../state/runs/read-runs.js';
import type { DriftKind, RunKind } from '../state/schema.js';
import type { Stream } from '../streams/stream.js';
import { sum } from '../text/format.js';
import { NIGHTLY } from '../time/schedule.js';
import { readWhyReadOnly } from '../state/state-role.js';
import { readCauses } from './causes.js';
import { listRunsSoFar } from './run-facts.js';

export type Situation = Awaited<ReturnType<typeof readFacts>>;

/** Facts from which alerts are decided. */
export type Grounds = Awaited<ReturnType<typeof readGrounds>>;

/** A schedule, its due times, and the time when all of its streams last succeeded. */
export interface ScheduleFacts extends RegisteredSchedule, Awaited<ReturnType<typeof readDue>> {
  succeededAt: Date | null;
}

/** Use of the quota. If it could not be read, `unknown` is the error code. */
export type QuotaFacts = QuotaUsage | { unknown: string };

const MOST_RUNS = 5;
const MINUTE_MS = 60 * 1000;
/** Milliseconds after its due time until which a scheduled sync may run. Then the sync counts as not successful. */
const MAY_TAKE_MS = 120 * MINUTE_MS;

interface GroundsDeps {
  /** Names of the configured streams, if the configuration is loaded. */
  streams?: readonly string[] | undefined;
  /**
   * Loads the configured streams. Called only if the state holds no record yet, or something to compare with the
   * streams: inbox changes, records not in sync, holds, due streams, problems of streams, or loads of the mirror.
   */
  loadStreams?: (() => Promise<readonly Pick<Stream, 'name' | 'freshness'>[]>) | undefined;
  now?: Date | undefined;
}

export interface SituationDeps extends GroundsDeps {
  kinds?: readonly RunKind[] | undefined;
}

export function readSituation(db: Queries, deps: SituationDeps = {}): Promise<Situation> {
  return inSnapshot(db, (tx) => readFacts(tx, deps));
}

/** Reads the situation in a snapshot that the caller has opened. */
export async function readFacts(tx: Queries, { kinds = LISTED_KINDS, ...deps }: SituationDeps) {
  const grounds = await readGrounds(tx, deps);
  return {
    ...grounds,
    inDoubt: await countInDoubt(tx),
    formerObjects: await countFormerObjects(tx),
    orphanedClaims: await countOrphanedClaims(tx),
    verifications: await listVerifications(tx),
    records: await countRecords(tx),
    runs: {
      underWay: await Promise.all(
        grounds.unfinished
          .filter(({ kind }) => kinds.includes(kind))
          .map(async (run) => ({ run, progress: await readProgress(tx, run.id) })),
      ),
      latest: await listRunsSoFar(tx, MOST_RUNS, kinds),
    },
  };
}

/** Reads the facts for alerts. Workers call this every few seconds, so no query here scans all records or bookings. */
export async function readGrounds(tx: Queries, { streams, loadStreams, now: setNow }: GroundsDeps) {
  const moment = await readMoment(tx, setNow);
  const { now, binding } = moment;
  const streamStates = await listStreams(tx);
  const gates = await readGates(tx);
  const recordedStreams = await listRecordedStreams(tx);
  const unsettled = await countUnsettled(tx);
  const isUnsent = gates.length > 0 || streamStates.some(({ dueSince, problem }) => dueSince ?? problem);
  const isNeeded = recordedStreams.length === 0 || unsettled > 0 || isUnsent || (await hasChanges(tx));
  const hasLoads = moment.loads.length > 0;
  const loaded = hasLoads || isNeeded ? await loadStreams?.().catch(() => undefined) : undefined;
  const configured = streams ?? (isNeeded ? loaded?.map(({ name }) => name) : undefined);
  const all = configured ?? recordedStreams;
  const schedules: ScheduleFacts[] = [];
  /** Returns the time of the last success. Leaves out streams that were never synced: a new stream is not late. */
  const readSuccess = (names: readonly string[]) => {
    const begun = streamStates.filter(({ syncedAt, attemptedAt }) => syncedAt ?? attemptedAt);
    const known = names.filter((name) => begun.some(({ stream }) => stream === name));
    return readWholeSuccess(tx, known.length === 0 ? names : known);
  };
  for (const schedule of await listSyncSchedules(tx))
    schedules.push({
      ...schedule,
      ...(await readDue(schedule, now)),
      succeededAt: await readSuccess(schedule.streams.length === 0 ? all : schedule.streams),
    });
  const nightly = schedules.find(({ name }) => name === NIGHTLY) ?? null;
  /** Streams that no schedule syncs. Without a nightly schedule, cron is expected to sync these streams. */
  const unscheduled = all.filter((name) => !schedules.some(({ streams: own }) => own.includes(name)));
  return {
    ...moment,
    /** Loads of the mirror, except for streams whose configuration no longer limits the age of the load. */
    loads: moment.loads.filter(
      ({ stream }) => loaded?.some(({ name, freshness }) => name === stream && freshness) !== false,
    ),
    /** Reason why the state cannot be written. Null if it can be written. */
    whyReadOnly: await readWhyReadOnly(tx),
    /** Names of the configured streams. Null if they are not known. */
    configured: configured ?? null,
    recordedStreams,
    nightly,
    /** Schedules of streams that have times of their own. The nightly schedule is not included. */
    schedules: schedules.filter((schedule) => schedule !== nightly),
    /** True if every stream has a schedule of its own. Then no sync of all streams is expected. */
    hasOwnTimes: nightly === null && schedules.length > 0 && unscheduled.length === 0,
    /** Last success of the nightly schedule. Without that schedule: of all streams that have no schedule. */
    succeededAt: nightly ? nightly.succeededAt : await readSuccess(unscheduled),
    /** Time when the state was bound to a service. A sync can succeed only after this time. */
    begunAt: binding?.boundAt ?? null,
    /** State of every stream that the database knows, configured or not. */
    streamStates,
    gates,
    /** Freezes that are in force, or will be. */
    freezes: await listFreezes(tx),
    /** Number of records that an exception leaves as they are. */
    exceptions: await countExceptions(tx),
    inbox: {
      ...(await readInbox(tx, all)),
      watermarks: streamStates.flatMap(({ stream, cursor, cursorMovedAt }) =>
        cursor === null ? [] : [{ stream, cursor, movedAt: cursorMovedAt }],
      ),
      reservations: (await readReservationsWatermark(tx)) ?? null,
    },
    /** Streams whose triggers were installed, but are now deleted or disabled. */
    lostTriggers: await listLostTriggers(tx, all),
    known: await readKnowledge(tx, { configured }),
    unsettled,
    /** Causes why records are not in sync. Held records are included. */
    causes: await readCauses(tx, {}, configured),
    /** Latest verifies and reconciles that failed or were partial. */
    badReadings: await listBadReadings(tx),
    discrepancies: await countDiscrepancies(tx),
  };
}

/** Reads only facts whose queries stay fast, however many records there are. */
export async function readMoment(tx: Queries, setNow?: Date) {
  return {
    now: setNow ?? (await readClock(tx)),
    binding: (await readBinding({ db: tx })) ?? null,
    /** Includes processes that were killed or cannot reach the state. Their `isAlive` is false. */
    processes: await listProcesses(tx),
    unfinished: await listUnfinishedRuns(tx),
    drift: await countDrift(tx),
    /** Age of the mirror's load, as the last plan read it. */
    loads: await listLoads(tx),
  };
}

/** Reads the quota usage. The usage is not part of the snapshot, because the quota's store may be another server. */
export async function readQuota(
  binding: Binding | null,
  quotaUsage: (owner: Binding) => Promise<QuotaUsage>,
): Promise<QuotaFacts | null> {
  return binding && quotaUsage(binding).catch((error: unknown) => ({ unknown: codeOf(error) }));
}

/** Returns, for each stream with records, the time of the last verify and the number of objects that drift. */
export function listVerified(facts: Pick<Situation, 'recordedStreams' | 'drift' | 'verifications'>) {
  const { recordedStreams, drift, verifications } = facts;
  const names = new Set([...recordedStreams, ...drift.map(({ stream }) => stream)]);
  return [...names].toSorted().map((stream) => {
    const pass = verifications.find((verification) => verification.stream === stream);
    const ofStream = drift.filter((counted) => counted.stream === stream);
    const countOf = (isMeant: (kind: DriftKind) => boolean) =>
      sum(ofStream.map(({ kind, count }) => (isMeant(kind) ? count : 0)));
    return {
      stream,
      verifiedAt: pass?.verifiedAt ?? null,
      objects: pass?.objects ?? null,
      drift: countOf(isDrift),
      /** Number of drifting objects that a repair sends again. */
      repairable: countOf(isRepaired),
      storedOtherwise: countOf((kind) => kind === 'stored_otherwise'),
      kept: countOf((kind) => kind === 'kept'),
      /**
       * Number of objects that belong to no record. They are no drift, and only `slotsync verify --extras` counts them.
       */
      extra: countOf((kind) => kind === 'extra'),
    };
  });
}

/**
 * Returns the next due time, the end of the wait for a new mirror load, and the latest due time whose sync should have
 * ended. The cron parser is imported here, so that processes without a schedule do not load it.
 */
async function readDue(schedule: RegisteredSchedule, now: Date) {
  const { firstUnstarted, latestDue, nextDue } = await import('../time/cron-schedule.js');
  const waitMs = schedule.waitMinutes * MINUTE_MS;
  const endedBy = new Date(now.getTime() - MAY_TAKE_MS - waitMs);
  const unstarted = firstUnstarted(schedule);
  const waitEnd = new Date(unstarted.getTime() + waitMs);
  return {
    nextDue: nextDue(schedule, now),
    waitsUntil: unstarted <= now && now < waitEnd ? waitEnd : null,
    successDueAt: latestDue(schedule, schedule.registeredAt, endedBy) ?? null,
  };
}
