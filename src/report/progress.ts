// Progress on standard error: a bar on a terminal, a line every few seconds elsewhere.
import { SingleBar } from 'cli-progress';
import { visible } from '../visible-text.js';
import { formatDuration, formatNumber } from './format.js';
import { lines, printNote } from './print.js';

interface ProgressFacts {
  /** Share of the quota in use, 0 to 1; undefined when it is not known. */
  quotaUse?: number | undefined;
  /** Why nothing is sent. */
  blocked?: string | undefined;
}

const PLAIN_EVERY_MS = 5000;
/** The pace is measured over this time. */
const PACE_OVER_MS = 15_000;

export function createProgress(what: string) {
  const { show, stop } = process.stderr.isTTY ? createBar(what) : createLines(what);
  const pace = createPace();
  return {
    update(done: number, total: number, facts: ProgressFacts = {}): void {
      const text = visible(describePace(pace(done, performance.now()), total - done, facts));
      show(done, total, text, facts.blocked);
    },
    stop,
  };
}

type Show = (done: number, total: number, pace: string, blocked: string | undefined) => void;

function createBar(what: string): { show: Show; stop(): void } {
  const bar = new SingleBar({
    format: `${what} {bar} {value}/{total} {percentage} %  {pace}`,
    stream: process.stderr,
    hideCursor: true,
    barsize: 24,
  });
  let started = false;
  return {
    show(done, total, pace, blocked) {
      if (!started && total === 0 && blocked === undefined) return;
      if (started) bar.setTotal(total);
      else bar.start(total, done, { pace });
      started = true;
      bar.update(done, { pace });
    },
    stop() {
      if (started) bar.stop();
    },
  };
}

function createLines(what: string): { show: Show; stop(): void } {
  let printedAt = performance.now();
  let blockedBefore: string | undefined;
  return {
    show(done, total, pace, blocked) {
      const now = performance.now();
      const hasChanged = blocked !== blockedBefore;
      const isDue = blocked === undefined && total > 0 && now - printedAt >= PLAIN_EVERY_MS;
      blockedBefore = blocked;
      if (!hasChanged && !isDue) return;
      printedAt = now;
      const percent = total === 0 ? '' : `, ${Math.floor((done / total) * 100)} %`;
      const progress = `${formatNumber(done)} of ${formatNumber(total)}${percent}`;
      printNote(`${what}: ${progress}, ${pace || 'resumed'}`);
    },
    stop: () => undefined,
  };
}

/** `190 records a second, 95 % of the quota, 36 s left`, as far as known. */
export function describePace(perSecond: number, left: number, { quotaUse, blocked }: ProgressFacts): string {
  if (blocked !== undefined) return blocked;
  return lines(
    perSecond > 0 && `${formatNumber(Math.ceil(perSecond))} records a second`,
    quotaUse !== undefined && `${Math.round(Math.min(1, quotaUse) * 100)} % of the quota`,
    perSecond > 0 && left > 0 && `${formatDuration(Math.max(1, left / perSecond))} left`,
  ).join(', ');
}

/** A function of the number done and the time; it returns the number per second over the last quarter of a minute. */
export function createPace(): (done: number, nowMs: number) => number {
  const seen: { done: number; at: number }[] = [];
  return (done, at) => {
    seen.push({ done, at });
    while (seen[1] && seen[1].at <= at - PACE_OVER_MS) seen.shift();
    const [first] = seen;
    return first && at > first.at ? ((done - first.done) / (at - first.at)) * 1000 : 0;
  };
}
