// What a period or a run did, and what needs a person now: what `report` and the operator's page show in the morning.
import { countBookings, countVerdictChanges, UNREMARKABLE } from '../state/bookings/read-reservations.js';
import type { Queries } from '../state/database.js';
import { readBinding } from '../state/destination-binding.js';
import { countDriftChanges } from '../state/drift/read-drift.js';
import { readInbox } from '../state/inbox/read-inbox.js';
import { listProcesses } from '../state/processes.js';
import { countUnsettled } from '../state/records/count-records.js';
import { readKnowledge } from '../state/records/unsent-records.js';
import { readRequestTotals } from '../state/requests.js';
import { listEndedBadly } from '../state/runs/ended-badly.js';
import { readHolds } from '../state/runs/holds.js';
import { NIGHTLY, readSchedule } from '../state/runs/nightly-occurrences.js';
import { listUnfinishedRuns, readRun, type Run } from '../state/runs/read-runs.js';
import { countRuns, listRunIds, sumByStream } from '../state/runs/sum-runs.js';
import { listCauses } from './causes.js';
import { readSoFar } from './runs.js';
import { isStopped, readVerified } from './status.js';

export type ReportReading = Awaited<ReturnType<typeof readReport>>;

/** What is reported: from a time on, one run, or without either since the last nightly sync was due. */
export interface ReportChoice {
  since?: Date | undefined;
  run?: Run | undefined;
}

/** The period of a report, and why it is this one. */
export interface ReportPeriod {
  from: Date;
  to: Date;
  because: 'since' | 'run' | 'nightly' | 'day';
}

const DAY_MS = 24 * 60 * 60 * 1000;
/** Runs that are listed one by one. */
const MOST_RUNS = 12;

/** Everything a report shows, read now. */
export async function readReport(
  state: { db: Queries },
  choice: ReportChoice,
  {
    requestsPerSecond,
    configuredStreams,
    now = new Date(),
  }: {
    requestsPerSecond: number;
    configuredStreams?: (() => Promise<readonly string[] | undefined>) | undefined;
    now?: Date;
  },
) {
  const { db } = state;
  const schedule = await readSchedule(db, NIGHTLY);
  const period = choosePeriod(choice, schedule?.lastDue ?? null, now);
  const { from, to } = period;
  const chosen = { from, to, runId: choice.run?.id };
  const ids = await listRunIds(db, chosen, MOST_RUNS);
  const runs = await Promise.all(ids.map((id) => readRun(db, id)));
  const processes = await listProcesses(db);
  const holds = await readHolds(db, choice.run?.id);
  return {
    period,
    run: choice.run ?? null,
    binding: (await readBinding(state)) ?? null,
    runs: await Promise.all(runs.filter((run) => run !== undefined).map((run) => readSoFar(db, run))),
    /** Of every kind, also of those that are not listed. */
    runCounts: await countRuns(db, chosen),
    streams: await sumByStream(db, chosen),
    /** Of one run: those that no later run has planned anew. */
    holds: holds.filter(({ plannedAnewBy }) => plannedAnewBy === null),
    known: await readKnowledge(db),
    causes: await listCauses(db, {}, await configuredStreams?.().catch(() => undefined)),
    unsettled: await countUnsettled(db),
    verified: await readVerified(db),
    driftChanges: await countDriftChanges(db, from, to),
    discrepancies: (await countBookings(db)).flatMap(discrepant),
    verdictChanges: await countVerdictChanges(db, from, to),
    inbox: await readInbox(db),
    requests: {
      ...(await readRequestTotals(db, from, to)),
      perSecond: requestsPerSecond,
      /** What the quota would have allowed in the period. */
      allowed: Math.max(1, Math.round((requestsPerSecond * (to.getTime() - from.getTime())) / 1000)),
    },
    processes,
    sendingStopped: processes.filter(isStopped),
    /** Runs that failed or are partial, whenever, and that no later run has replaced. */
    endedBadly: await listEndedBadly(db),
    unfinished: await listUnfinishedRuns(db),
  };
}

/** Bookings of a verdict that do not agree; where both sides agree, those with a problem in the mirror. */
function discrepant(counted: Awaited<ReturnType<typeof countBookings>>[number]) {
  const agrees = counted.verdict === 'restored_there' || UNREMARKABLE.includes(counted.verdict);
  const bookings = agrees ? counted.problems : counted.count;
  return bookings === 0 ? [] : [{ ...counted, bookings }];
}

function choosePeriod({ since, run }: ReportChoice, lastDue: Date | null, now: Date): ReportPeriod {
  if (run) return { from: run.requestedAt, to: run.finishedAt ?? now, because: 'run' };
  if (since) return { from: since, to: now, because: 'since' };
  if (lastDue && lastDue < now) return { from: lastDue, to: now, because: 'nightly' };
  return { from: new Date(now.getTime() - DAY_MS), to: now, because: 'day' };
}
