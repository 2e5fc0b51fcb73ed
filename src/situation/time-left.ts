// When a run will be done. What a run did in its first seconds says little of its pace, so that the plan is asked first.
import type { Progress, Run } from '../state/runs/read-runs.js';

/** From this share on, a run's own pace says more than its plan. */
const KNOWN_FROM = 0.05;
/** The first reads the objects, the second writes them. */
const REQUESTS_OF_A_BATCH = 2;

/**
 * Seconds until a run is done: of the requests that its plan still has, at the quota's rate; when enough of it is done, at
 * its pace. `recordsPerSecond`: its pace lately, where that was observed. Undefined: it is not being sent.
 */
export function estimateSecondsLeft(
  { run, progress }: { run: Run; progress: Progress },
  {
    requestsPerSecond,
    recordsPerSecond = 0,
    now,
  }: { requestsPerSecond: number; recordsPerSecond?: number; now: Date },
): number | undefined {
  const { total, done, batchesLeft } = progress;
  if (run.status !== 'running' || run.pausedAt || total === 0) return undefined;
  const seconds = run.startedAt ? (now.getTime() - run.startedAt.getTime()) / 1000 : 0;
  const pace = recordsPerSecond > 0 ? recordsPerSecond : seconds > 0 ? done / seconds : 0;
  return done / total < KNOWN_FROM || pace === 0
    ? (batchesLeft * REQUESTS_OF_A_BATCH) / requestsPerSecond
    : (total - done) / pace;
}
