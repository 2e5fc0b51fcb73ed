// Facts of a report: the work of a period or a run, in addition to the situation.
import { countBookings, countVerdictChanges } from '../state/bookings/read-reservations.js';
import { type Queries, inSnapshot } from '../state/database.js';
import { listActions } from '../state/actions.js';
import { countDriftChanges } from '../state/drift.js';
import { readRequestTotals } from '../state/requests.js';
import { readRun, type Run } from '../state/runs/read-runs.js';
import { countRuns, listRunIds, sumByStream } from '../state/runs/count-runs.js';
import { readSoFar } from './run-facts.js';
import { readFacts, type SituationDeps } from './situation.js';

export type ReportFacts = Awaited<ReturnType<typeof readReport>>;

/** Subject of a report: a start time, a nightly run or one run. Default: since the last nightly sync was due. */
interface ReportChoice {
  since?: Date | undefined;
  nightly?: Run | undefined;
  run?: Run | undefined;
}

const DAY_MS = 24 * 60 * 60 * 1000;
const MOST_RUNS = 12;
const MOST_ACTIONS = 20;

interface ReportDeps extends SituationDeps {
  requestsPerSecond: number;
}

/** Reads all facts of a report in one snapshot: the situation, and what happened in the period. */
export function readReport(db: Queries, choice: ReportChoice, { requestsPerSecond, ...deps }: ReportDeps) {
  return inSnapshot(db, async (tx) => {
    const situation = await readFacts(tx, deps);
    const period = choosePeriod(choice, situation.nightly?.lastDue ?? null, situation.now);
    const { from, to } = period;
    const chosen = { from, to, runId: choice.run?.id };
    const ids = await listRunIds(tx, chosen, MOST_RUNS);
    const runs = await Promise.all(ids.map((id) => readRun(tx, id)));
    return {
      ...situation,
      period,
      run: choice.run ?? null,
      listed: await Promise.all(runs.filter((run) => run !== undefined).map((run) => readSoFar(tx, run))),
      /** Number of runs by kind and status. Includes runs that are not in `listed`. */
      runCounts: await countRuns(tx, chosen),
      streams: await sumByStream(tx, chosen),
      driftChanges: await countDriftChanges(tx, from, to),
      /** Number of bookings by verdict. Includes bookings that agree. */
      bookings: await countBookings(tx),
      verdictChanges: await countVerdictChanges(tx, from, to),
      actions: await listActions(tx, {
        ...(choice.run ? { runId: choice.run.id } : { from, to }),
        limit: MOST_ACTIONS,
      }),
      requests: {
        ...(await readRequestTotals(tx, from, to)),
        perSecond: requestsPerSecond,
        /** Number of requests that the quota allows in the period. */
        allowed: Math.max(1, Math.round((requestsPerSecond * (to.getTime() - from.getTime())) / 1000)),
      },
    };
  });
}

function choosePeriod({ since, nightly, run }: ReportChoice, lastDue: Date | null, now: Date) {
  if (run) return { from: run.requestedAt, to: run.finishedAt ?? now, because: 'run' } as const;
  if (nightly) return { from: nightly.requestedAt, to: now, because: 'nightly_run' } as const;
  if (since) return { from: since, to: now, because: 'since' } as const;
  if (lastDue && lastDue < now) return { from: lastDue, to: now, because: 'nightly' } as const;
  return { from: new Date(now.getTime() - DAY_MS), to: now, because: 'day' } as const;
}
