// How far a run is, for whoever waits: a bar on a terminal, a line now and then elsewhere. Both on standard error.
import { SingleBar } from 'cli-progress';
import { formatDuration, formatNumber } from './format.js';

export interface ProgressFacts {
  /** Share of the quota in use, 0 to 1; undefined when it is not known. */
  quotaUse?: number | undefined;
  /** Why nothing moves. */
  stands?: string | undefined;
}

export interface Progress {
  update(done: number, total: number, facts?: ProgressFacts): void;
  stop(): void;
}

const PLAIN_EVERY_MS = 5000;
/** The pace is that of the last so many milliseconds. */
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
      const said = { pace: describePace(pace(done, performance.now()), total - done, facts) };
      if (!started && total === 0 && facts.stands === undefined) return;
      if (!started) bar.start(total, done, said);
      else bar.setTotal(total);
      started = true;
      bar.update(done, said);
    },
    stop() {
      if (started) bar.stop();
    },
  };
}

function createLines(what: string): Progress {
  const pace = createPace();
  let printedAt = performance.now();
  let stood: string | undefined;
  return {
    update(done, total, facts = {}) {
      const now = performance.now();
      const perSecond = pace(done, now);
      const { stands } = facts;
      const isNews = stands !== stood;
      const isDue = stands === undefined && total > 0 && now - printedAt >= PLAIN_EVERY_MS;
      stood = stands;
      if (!isNews && !isDue) return;
      printedAt = now;
      const percent = total === 0 ? '' : `, ${Math.floor((done / total) * 100)} %`;
      const told = describePace(perSecond, total - done, facts);
      process.stderr.write(
        `${what}: ${formatNumber(done)} of ${formatNumber(total)}${percent}, ${told || 'goes on'}\n`,
      );
    },
    stop: () => undefined,
  };
}

/** `190 records a second, 95 % of the quota, 36 s left`, as far as it is known. */
export function describePace(perSecond: number, left: number, { quotaUse, stands }: ProgressFacts): string {
  if (stands !== undefined) return stands;
  return [
    ...(perSecond > 0 ? [`${formatNumber(Math.ceil(perSecond))} records a second`] : []),
    ...(quotaUse === undefined ? [] : [`${Math.round(Math.min(1, quotaUse) * 100)} % of the quota`]),
    ...(perSecond > 0 && left > 0 ? [`${formatDuration(Math.max(1, left / perSecond))} left`] : []),
  ].join(', ');
}

/** Takes how many are done, and when; answers how many a second that is lately. */
export function createPace(): (done: number, nowMs: number) => number {
  const seen: { done: number; at: number }[] = [];
  return (done, at) => {
    seen.push({ done, at });
    while (seen[1] && seen[1].at <= at - PACE_OVER_MS) seen.shift();
    const [first] = seen;
    return first && at > first.at ? ((done - first.done) / (at - first.at)) * 1000 : 0;
  };
}
