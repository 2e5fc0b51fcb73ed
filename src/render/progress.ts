// Shows progress on standard error: a redrawn line on a terminal, otherwise a line every few seconds. The time left
// comes first. Parts that do not fit the width are left out from the end.
import { formatDuration, formatNumber, lines } from '../text/format.js';
import { canDraw, columnsOf } from '../process/terminal.js';
import { drawLine, printNote } from './print.js';
import { headOf, widthOf } from './wrap.js';

interface ProgressFacts {
  /** Share of the quota in use, from 0 to 1. Undefined if it is not known. */
  quotaUse?: number | undefined;
  /** Reason why nothing is sent. Undefined while something is sent. */
  blocked?: string | undefined;
}

interface Amounts {
  done: number;
  total: number;
  perSecond: number;
}

const PLAIN_EVERY_MS = 5000;
const DRAW_EVERY_MS = 100;
/** Period in milliseconds over which the speed is measured. */
const PACE_OVER_MS = 15_000;
const BAR_COLUMNS = 24;

/** `unit`: plural of what is counted, such as `records`. `of`: name of the run, if several runs may be unfinished. */
export function createProgress(unit: string, of?: string) {
  const isDrawn = canDraw(process.stderr);
  const pace = createPace();
  let shownAt = isDrawn ? -Infinity : performance.now();
  let blockedBefore: string | undefined;
  return {
    update(done: number, total: number, facts: ProgressFacts = {}): void {
      const now = performance.now();
      const amounts = { done, total, perSecond: pace(done, now) };
      const isSending = facts.blocked === undefined;
      const hasChanged = facts.blocked !== blockedBefore;
      blockedBefore = facts.blocked;
      const isDue = now - shownAt >= (isDrawn ? DRAW_EVERY_MS : PLAIN_EVERY_MS);
      const isShown = isDrawn
        ? isDue && (total > 0 || !isSending)
        : hasChanged || (isDue && total > 0 && isSending);
      if (!isShown) return;
      shownAt = now;
      // The cursor stays at the beginning. The last column stays empty, because some terminals wrap when it is written.
      const columns = columnsOf(process.stderr) - 2;
      if (isDrawn) return drawLine(` ${fitProgress(amounts, facts, { unit, of, columns })}`);
      const resumed = hasChanged && isSending ? ['resumed'] : [];
      const line = [...resumed, ...partsOf(amounts, facts, unit)].join(', ');
      printNote(`${of === undefined ? '' : `${of}: `}${line}`);
    },
    stop(): void {
      if (isDrawn && shownAt > -Infinity) drawLine('');
    },
  };
}

/** Returns the parts of the line that fit, with a bar behind them if there is room. */
export function fitProgress(
  amounts: Amounts,
  facts: ProgressFacts,
  { unit, of, columns }: { unit: string; of: string | undefined; columns: number },
): string {
  let line = '';
  for (const part of partsOf(amounts, facts, unit).concat(of ?? [])) {
    const longer = line === '' ? part : `${line}  ${part}`;
    if (widthOf(longer) > columns) break;
    line = longer;
  }
  if (line === '') return headOf(facts.blocked ?? '', columns);
  const room = columns - widthOf(line);
  if (room < BAR_COLUMNS + 2) return line;
  const { done, total } = amounts;
  const filled = total === 0 ? 0 : Math.round(Math.min(1, done / total) * BAR_COLUMNS);
  return line + ('█'.repeat(filled) + '░'.repeat(BAR_COLUMNS - filled)).padStart(room);
}

/** Returns parts such as `3 min left`, `12 %`, `1 200 of 10 000 records`, `190 a second`. */
export function partsOf(amounts: Amounts, { blocked, quotaUse }: ProgressFacts, unit: string): string[] {
  const { done, total, perSecond } = amounts;
  const isSending = blocked === undefined;
  return lines(
    blocked,
    isSending &&
      perSecond > 0 &&
      done < total &&
      `${formatDuration(Math.max(1, (total - done) / perSecond))} left`,
    total > 0 && `${Math.floor((done / total) * 100)} %`,
    `${formatNumber(done)} of ${formatNumber(total)} ${unit}`,
    isSending && perSecond > 0 && `${formatNumber(Math.ceil(perSecond))} a second`,
    isSending && quotaUse !== undefined && `${Math.round(Math.min(1, quotaUse) * 100)} % of the quota`,
  );
}

/** Returns a function that takes the number done and the time, and returns the speed per second over 15 seconds. */
export function createPace(): (done: number, nowMs: number) => number {
  const seen: { done: number; at: number }[] = [];
  return (done, at) => {
    seen.push({ done, at });
    while (seen[1] && seen[1].at <= at - PACE_OVER_MS) seen.shift();
    const [first] = seen;
    return first && at > first.at ? ((done - first.done) / (at - first.at)) * 1000 : 0;
  };
}
