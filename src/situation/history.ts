// Numbers for the graphs of the page: results of each stream by night, objects sent, and requests.
import { readClock, type Queries } from '../state/database.js';
import { listRequestSteps, readRequestTotals } from '../state/requests.js';
import { listNights } from '../state/runs/count-runs.js';
import { listBatchSteps, readRun, type Run } from '../state/runs/read-runs.js';
import { dayOf } from '../text/format.js';

export type History = Awaited<ReturnType<typeof readHistory>>;

export const MOST_NIGHTS = 30;
const HOUR_SECONDS = 60 * 60;
const STEPS = 60;
const DAY_MS = 24 * HOUR_SECONDS * 1000;

export async function readHistory(db: Queries, { now, timeZone }: { now: Date; timeZone: string }) {
  const nights = await listNights(db, MOST_NIGHTS, timeZone);
  const today = Date.parse(dayOf(now, timeZone));
  const hourAgo = new Date(now.getTime() - HOUR_SECONDS * 1000);
  return {
    nights,
    /** Days of the last `MOST_NIGHTS` nights, oldest first. Includes days without a run. */
    days: Array.from({ length: MOST_NIGHTS }, (_, at) =>
      new Date(today - (MOST_NIGHTS - 1 - at) * DAY_MS).toISOString().slice(0, 10),
    ),
    /** `hour`: requests of the last hour. `lastNight`: requests during the latest nightly run. */
    hour: {
      ...(await readRequestTotals(db, hourAgo, now)),
      ...(await readSteps(db, hourAgo, now)),
    },
    lastNight: await readLastNight(db, nights.at(-1)?.runId, now),
  };
}

async function readLastNight(db: Queries, runId: number | undefined, now: Date) {
  const run = runId === undefined ? undefined : await readRun(db, runId);
  return run && readSteps(db, run.requestedAt, run.finishedAt ?? now);
}

async function readSteps(db: Queries, from: Date, to: Date) {
  const step = stepsOf(from, to);
  return { ...step, steps: await listRequestSteps(db, step) };
}

/** Divides a period into at most `STEPS` equal steps of whole seconds. */
function stepsOf(from: Date, to: Date) {
  const length = Math.max(1, (to.getTime() - from.getTime()) / 1000);
  const seconds = Math.ceil(length / STEPS);
  return { from, seconds, steps: Math.ceil(length / seconds) };
}

/** Returns how many records were planned, and how many had an outcome, at the end of each time step of the run. */
export async function readTimeline(db: Queries, { id, requestedAt, finishedAt }: Run) {
  const period = stepsOf(requestedAt, finishedAt ?? (await readClock(db)));
  const noted = await listBatchSteps(db, id, period);
  let [planned, done] = [0, 0];
  const points = Array.from({ length: period.steps }, (_, step) => {
    const of = noted.find((one) => one.step === step);
    planned += of?.planned ?? 0;
    done += of?.done ?? 0;
    return { planned, done };
  });
  return { ...period, points };
}
