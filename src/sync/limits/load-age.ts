// Judges whether the mirror was loaded recently enough. If not, the configuration decides whether plans hold their
// records or only warn. Pure.
import type { LoadReading } from '../../mirror/mirror.js';
import type { NotedLoad, SeenLoad } from '../../state/streams.js';
import type { LoadFacts } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import { formatDuration } from '../../text/format.js';

type Freshness = NonNullable<Stream['freshness']>;

const HOUR = 60 * 60 * 1000;
/** Tolerated difference between two servers' clocks. A load time further ahead is reported as in the future. */
const FUTURE_MS = 5 * 60 * 1000;

/** Judges when the mirror was loaded. A time before the one in `noted` suggests that a backup was restored. */
export function judgeLoad(
  { maxHours, then, column }: Freshness,
  reading: LoadReading,
  { noted, now }: { noted: NotedLoad | undefined; now: Date },
): SeenLoad {
  const seen = { loadedAt: null, olderThan: noted?.olderThan ?? null, message: null, maxHours, readAt: now };
  const holds = then === 'hold';
  if ('fault' in reading) return { ...seen, problem: 'unreadable', message: reading.fault, holds };
  const ageMs = now.getTime() - reading.at.getTime();
  if (ageMs < -FUTURE_MS) return { ...seen, problem: 'future', message: reading.at.toISOString(), holds };
  const newest = latest(noted?.loadedAt, noted?.olderThan);
  const olderThan = newest && reading.at < newest ? newest : null;
  const isTooOld = ageMs > maxHours * HOUR;
  // A column's time comes from its latest row, which may have been deleted. So an earlier time is no problem.
  const problem = isTooOld ? 'too_old' : olderThan && column === undefined ? 'older' : null;
  return { ...seen, loadedAt: reading.at, olderThan, problem, holds: problem !== null && holds };
}

/** Returns the problem of the mirror's load as a gate stores it. Undefined if the load has no problem. */
export function toLoadFacts({
  problem,
  loadedAt,
  olderThan,
  readAt,
  maxHours,
  message,
}: SeenLoad): LoadFacts | undefined {
  if (problem === null) return undefined;
  const at = problem === 'future' ? new Date(message ?? '') : loadedAt;
  return {
    problem,
    ageSeconds: at && Math.round((readAt.getTime() - at.getTime()) / 1000),
    maxHours,
    ...(loadedAt && olderThan && { olderSeconds: (olderThan.getTime() - loadedAt.getTime()) / 1000 }),
    ...(problem === 'unreadable' && message !== null && { message }),
  };
}

/** Returns the age of the load as the end of a sentence, for example `is 3 d old, more than 26 h`. */
export function describeLoad({ problem, ageSeconds, maxHours, olderSeconds }: LoadFacts): string {
  const older =
    olderSeconds === undefined ? '' : `${formatDuration(olderSeconds)} older than the one before it`;
  switch (problem) {
    case 'too_old':
      return `is ${formatDuration(ageSeconds ?? 0)} old, more than ${maxHours} h${older && `, and ${older}`}`;
    case 'older':
      return `is ${older}: a backup may have been restored`;
    case 'future':
      return `is said to be ${formatDuration(-(ageSeconds ?? 0))} in the future: a clock is wrong, or a time without a zone is not in UTC`;
    default:
      return 'has no known time';
  }
}

/** Returns the age of the mirror's load as a sentence, with the error message if the age could not be read. */
export const describeWholeLoad = (load: LoadFacts): string =>
  `the load of the mirror ${describeLoad(load)}${load.message === undefined ? '' : `: ${load.message}`}`;

const latest = (...times: (Date | null | undefined)[]): Date | null =>
  times.reduce<Date | null>((last, time) => (time && (!last || time > last) ? time : last), null);
