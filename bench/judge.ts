// What a service would have said about the requests of one run, judged afterwards from the moments they arrived.
// Pure: times are milliseconds.
import { createWindow, type WindowKind } from '../src/sandbox/quota-window.js';

export const RATE = 20;
const SECOND = 1000;
/** Where within a wall second the run may have begun; the worst one counts. */
const PHASES = Array.from({ length: 20 }, (_, at) => at * 50);
/** Longer than any scheme's own rhythm, so that where a window begins does not decide what is in it. */
const CYCLE_MS = 1.2 * SECOND;

export interface Verdicts {
  sliding: number;
  fixed: number;
  bucket: number;
}

/** How many of the arrivals each kind of counting refuses; what is refused does not count. */
export function judge(moments: readonly number[]): Verdicts {
  const sorted = moments.toSorted((a, b) => a - b);
  return {
    sliding: refused(sorted, 'sliding', 0),
    fixed: Math.max(...PHASES.map((phaseMs) => refused(sorted, 'fixed', phaseMs))),
    bucket: refused(sorted, 'bucket', 0),
  };
}

function refused(sorted: readonly number[], kind: WindowKind, phaseMs: number): number {
  const window = createWindow(kind, RATE, phaseMs);
  return sorted.filter((moment) => window.take(moment) > 0).length;
}

/** Arrivals a second between two moments: the mean over windows that begin at every place of a cycle. */
export function steadyRate(moments: readonly number[], from: number, to: number): number {
  const lengthMs = to - from - CYCLE_MS;
  const counts = PHASES.map((phaseMs) => {
    const begin = from + (phaseMs / SECOND) * CYCLE_MS;
    return moments.filter((moment) => moment >= begin && moment < begin + lengthMs).length;
  });
  return (counts.reduce((sum, count) => sum + count, 0) / counts.length / lengthMs) * SECOND;
}

/** The most a quota held until the answer allows, in requests a second. */
export function ceiling(meanLatencyMs: number): number {
  return RATE / (1 + meanLatencyMs / SECOND);
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  return ((sorted[Math.ceil(middle) - 1] ?? NaN) + (sorted[Math.floor(middle)] ?? NaN)) / 2;
}
