// The situation: what the state says now, as facts. It is read in one snapshot, and everything that people and monitoring
// are shown is made from it. No sentence is made here.
import type { QuotaUsage } from '../destination/quota/limiter.js';
import { codeOf } from '../errors/errors.js';
import { countDiscrepancies } from '../state/bookings/read-reservations.js';
import { readReservationsWatermark } from '../state/bookings/reservations-watermark.js';
import { readClock, type Queries } from '../state/database.js';
import { readBinding, type Binding } from '../state/destination-binding.js';
import { countDrift, isDrift, isRepaired } from '../state/drift/read-drift.js';
import { listLoads } from '../state/freshness.js';
import { listVerifications } from '../state/drift/verifications.js';
import { countExceptions } from '../state/exceptions.js';
import { listFreezes } from '../state/freezes.js';
import { readGates } from '../state/gates/gates.js';
import { hasChanges, readInbox } from '../state/inbox/read-inbox.js';
import { countOrphanedClaims, listProcesses } from '../state/processes.js';
import { countFormerObjects } from '../state/records/read/former-objects.js';
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
import { inSnapshot } from '../state/snapshot.js';
import { listStreams, readWholeSuccess } from '../state/streams.js';
import type { Stream } from '../streams/stream.js';
import { listLostTriggers } from '../state/inbox/lost-triggers.js';
import { NIGHTLY } from '../time/schedule.js';
import { readWhyReadOnly } from '../state/state-role.js';
import { readCauses } from './causes.js';
import { listRunsSoFar, readPlanning } from './run-facts.js';

/** Everything that is read of the state. */
export type Situation = Awaited<ReturnType<typeof readFacts>>;

/** The part of it that alerts follow from. */
export type Grounds = Awaited<ReturnType<typeof readGrounds>>;

/** A schedule with its streams, and when all of them last succeeded. */
export interface ScheduleFacts extends RegisteredSchedule, Awaited<ReturnType<typeof readDue>> {
  succeededAt: Date | null;
}

/** How the quota is used; `unknown`: the code of the failure to read it. */
export type QuotaFacts = QuotaUsage | { unknown: string };

/** The latest runs that are listed. */
const MOST_RUNS = 5;
const MINUTE_MS = 60 * 1000;
/** After so long a sync of a schedule counts as not successful. */
const MAY_TAKE_MS = 120 * MINUTE_MS;

interface GroundsDeps {
  /** Names of the streams of the configuration, where it is loaded. */
  streams?: readonly string[] | undefined;
  /** Loads them as they are now. Called only to compare them with streams that are in the inbox, not in sync, held, due, in trouble, or of which a load is noted. */
  loadStreams?: (() => Promise<readonly Pick<Stream, 'name' | 'freshness'>[]>) | undefined;
  /** By the database's clock unless it is set. */
  now?: Date | undefined;
}

export interface SituationDeps extends GroundsDeps {
  /** Runs that are listed. */
  kinds?: readonly RunKind[] | undefined;
}

/** The situation, in one snapshot. */
export function readSituation(db: Queries, deps: SituationDeps = {}): Promise<Situation> {
  return inSnapshot(db, (tx) => readFacts(tx, deps));
}

/** The same within a snapshot. */
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
          .map(async (run) => ({
            run,
            progress: await readProgress(tx, run.id),
            planning: await readPlanning(tx, run),
          })),
      ),
      latest: await listRunsSoFar(tx, MOST_RUNS, kinds),
    },
  };
}

/** Workers read them every few seconds for alerts: nothing here reads all records or all bookings. */
export async function readGrounds(tx: Queries, { streams, loadStreams, now: setNow }: GroundsDeps) {
  const moment = await readMoment(tx, setNow);
  const { now, binding } = moment;
  const streamStates = await listStreams(tx);
  const gates = await readGates(tx);
  const recordedStreams = await listRecordedStreams(tx);
  const unsettled = await countUnsettled(tx);
  const isUnsent = gates.length > 0 || streamStates.some(({ dueSince, problem }) => dueSince ?? problem);
  const isNeeded = unsettled > 0 || isUnsent || (await hasChanges(tx));
  const hasLoads = moment.loads.length > 0;
  const loaded = hasLoads || isNeeded ? await loadStreams?.().catch(() => undefined) : undefined;
  const configured = streams ?? (isNeeded ? loaded?.map(({ name }) => name) : undefined);
  const all = configured ?? recordedStreams;
  const schedules: ScheduleFacts[] = [];
  /** A stream that was added since the last success is not missing in it. */
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
  /** Streams that no schedule syncs: without a nightly one, those of cron. */
  const unscheduled = all.filter((name) => !schedules.some(({ streams: own }) => own.includes(name)));
  return {
    ...moment,
    /** Without those of streams that no longer ask for theirs. */
    loads: moment.loads.filter(
      ({ stream }) => loaded?.some(({ name, freshness }) => name === stream && freshness) !== false,
    ),
    /** Why nobody can write to the state; null: it can be written. */
    whyReadOnly: await readWhyReadOnly(tx),
    /** Names of the streams of the configuration; null: they are not known. */
    configured: configured ?? null,
    recordedStreams,
    nightly,
    /** Schedules of streams with times of their own. */
    schedules: schedules.filter((schedule) => schedule !== nightly),
    /** Every stream has a time of its own: no sync of all of them is expected. */
    hasOwnTimes: nightly === null && schedules.length > 0 && unscheduled.length === 0,
    /** When a sync of all streams of the nightly one, or of all without a schedule, last succeeded; null: none is known. */
    succeededAt: nightly ? nightly.succeededAt : await readSuccess(unscheduled),
    /** When there was first something to succeed: the state was bound to a service. */
    begunAt: binding?.boundAt ?? null,
    /** Every stream that the state knows. */
    streamStates,
    gates,
    /** In force or to come. */
    freezes: await listFreezes(tx),
    /** Records that are left as they are. */
    exceptions: await countExceptions(tx),
    inbox: {
      ...(await readInbox(tx, all)),
      watermarks: streamStates.flatMap(({ stream, cursor, cursorMovedAt }) =>
        cursor === null ? [] : [{ stream, cursor, movedAt: cursorMovedAt }],
      ),
      reservations: (await readReservationsWatermark(tx)) ?? null,
    },
    /** Streams whose triggers were installed, and are gone or disabled. */
    lostTriggers: await listLostTriggers(tx, all),
    known: await readKnowledge(tx, { configured }),
    unsettled,
    /** Why they are not in sync; and what is held. */
    causes: await readCauses(tx, {}, configured),
    /** The latest runs that only read, where they ended badly. */
    badReadings: await listBadReadings(tx),
    discrepancies: await countDiscrepancies(tx),
  };
}

/** Facts of a moment: they take the same time however many records there are. */
export async function readMoment(tx: Queries, setNow?: Date) {
  return {
    now: setNow ?? (await readClock(tx)),
    binding: (await readBinding({ db: tx })) ?? null,
    /** Processes that were killed, or cannot reach the state, are among them, and are not alive. */
    processes: await listProcesses(tx),
    unfinished: await listUnfinishedRuns(tx),
    drift: await countDrift(tx),
    /** How old the load of the mirror was when a plan read it last. */
    loads: await listLoads(tx),
  };
}

/** Not part of the state: its store may be another server. */
export async function readQuota(
  binding: Binding | null,
  quotaUsage: (owner: Binding) => Promise<QuotaUsage>,
): Promise<QuotaFacts | null> {
  return binding && quotaUsage(binding).catch((error: unknown) => ({ unknown: codeOf(error) }));
}

/** Per stream with records: when it was read back last, and how many of its objects drift. */
export function listVerified({
  recordedStreams,
  drift,
  verifications,
}: Pick<Situation, 'recordedStreams' | 'drift' | 'verifications'>) {
  const names = new Set([...recordedStreams, ...drift.map(({ stream }) => stream)]);
  return [...names].toSorted().map((stream) => {
    const pass = verifications.find((verification) => verification.stream === stream);
    const ofStream = drift.filter((counted) => counted.stream === stream);
    const sum = (isMeant: (kind: DriftKind) => boolean) =>
      ofStream.reduce((total, { kind, count }) => total + (isMeant(kind) ? count : 0), 0);
    return {
      stream,
      verifiedAt: pass?.verifiedAt ?? null,
      objects: pass?.objects ?? null,
      drift: sum(isDrift),
      /** Drift that a repair sends again. */
      repairable: sum(isRepaired),
      storedOtherwise: sum((kind) => kind === 'stored_otherwise'),
      kept: sum((kind) => kind === 'kept'),
      /** Objects that belong to no record, where a verify was asked for them: no drift. */
      extra: sum((kind) => kind === 'extra'),
    };
  });
}

/**
 * The next occurrence, the one that waits for a load of the mirror, and the latest one that was due long enough ago to have
 * ended. Loaded only with a schedule.
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
