// Progress on standard error: a bar on a terminal, a line every few seconds elsewhere.
import { SingleBar } from 'cli-progress';
import { formatDuration, formatNumber, lines } from './format.js';

interface ProgressFacts {
  /** Share of the quota in use, 0 to 1; undefined when it is not known. */
  quotaUse?: number | undefined;
  /** Why nothing is sent. */
  blocked?: string | undefined;
}

interface Progress {
  update(done: number, total: number, facts?: ProgressFacts): void;
  stop(): void;
}

const PLAIN_EVERY_MS = 5000;
/** The pace is measured over this time. */
const PACE_OVER_MS = 15_000;

export function createProgress(what: string): Progress {
  return process.stderr.isTTY ? createBar(what) : createLines(what);
}

function createBar(what: string): Progress {
  const bar = new SingleBar({
    format: `${what} {bar} {value}/{total} {percentage} %  {pace}`,
    stream: process.stderr,
    hideCursor: true,
    barsize: 24,
  });
  const pace = createPace();
  let started = false;
  return {
    update(done, total, facts = {}) {
      const payload = { pace: describePace(pace(done, performance.now()), total - done, facts) };
      if (!started && total === 0 && facts.blocked === undefined) return;
      if (!started) bar.start(total, done, payload);
      else bar.setTotal(total);
      started = true;
      bar.update(done, payload);
    },
    stop() {
      if (started) bar.stop();
    },
  };
}

function createLines(what: string): Progress {
  const pace = createPace();
  let printedAt = performance.now();
  let blockedBefore: string | undefined;
  return {
    update(done, total, facts = {}) {
      const now = performance.now();
      const perSecond = pace(done, now);
      const { blocked } = facts;
      const hasChanged = blocked !== blockedBefore;
      const isDue = blocked === undefined && total > 0 && now - printedAt >= PLAIN_EVERY_MS;
      blockedBefore = blocked;
      if (!hasChanged && !isDue) return;
      printedAt = now;
      const percent = total === 0 ? '' : `, ${Math.floor((done / total) * 100)} %`;
      const speed = describePace(perSecond, total - done, facts);
      process.stderr.write(
        `${what}: ${formatNumber(done)} of ${formatNumber(total)}${percent}, ${speed || 'resumed'}\n`,
      );
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
