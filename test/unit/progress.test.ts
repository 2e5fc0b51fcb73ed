// Pace of a run, and the time that is left.
import { afterEach, describe, expect, it, vi } from 'vitest';
import { printNote } from '../../src/render/print.js';
import { createPace, createProgress, fitProgress, partsOf } from '../../src/render/progress.js';
import { widthOf } from '../../src/render/wrap.js';
import { createScreen } from '../support/screen.js';

const AMOUNTS = { done: 1200, total: 10_000, perSecond: 48.4 };
const RUN = { unit: 'records', of: 'run 5' };

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

describe('the pace of a run', () => {
  it('covers the last 15 seconds', () => {
    const pace = createPace();
    expect(pace(0, 0)).toBe(0);
    expect(pace(100, 1000)).toBe(100);
    expect(pace(300, 2000)).toBe(150);
    expect(pace(300, 30_000)).toBeLessThan(150);
    expect(pace(300, 60_000)).toBe(0);
  });
});

describe('the progress of a run', () => {
  it('begins with the time left, or with the reason why nothing moves', () => {
    const parts = (...[amounts, facts]: [typeof AMOUNTS, object]) =>
      partsOf(amounts, facts, 'records').join(', ');
    expect(parts(AMOUNTS, { quotaUse: 0.953 })).toBe(
      '3 min left, 12 %, 1 200 of 10 000 records, 49 a second, 95 % of the quota',
    );
    expect(parts({ ...AMOUNTS, perSecond: 0 }, { quotaUse: 1.04 })).toBe(
      '12 %, 1 200 of 10 000 records, 100 % of the quota',
    );
    expect(parts(AMOUNTS, { blocked: 'paused' })).toBe('paused, 12 %, 1 200 of 10 000 records');
  });

  it('begins on a terminal with the time left, which is never cut down to 40 columns', () => {
    const fit = (columns: number) => fitProgress(AMOUNTS, { quotaUse: 0.95 }, { ...RUN, columns });
    expect(fit(78)).toBe('3 min left  12 %  1 200 of 10 000 records  49 a second  95 % of the quota');
    expect(fit(38)).toBe('3 min left  12 %');
    expect(fit(118)).toMatch(/ run 5 +███░+$/);
    const slow = { done: 1_234_567, total: 12_345_678, perSecond: 0.05 };
    for (let columns = 38; columns <= 200; columns += 1) {
      const line = fitProgress(slow, { quotaUse: 1 }, { ...RUN, columns });
      expect(line).toMatch(/^\d+ d \d+ h left/);
      expect(widthOf(line)).toBeLessThanOrEqual(columns);
    }
  });

  it('makes room for a note on a terminal, and is removed at the end', () => {
    const screen = createScreen({ columns: 60 });
    vi.stubEnv('TERM', 'xterm');
    vi.spyOn(process, 'stderr', 'get').mockReturnValue(screen as unknown as typeof process.stderr);
    let now = 0;
    vi.spyOn(performance, 'now').mockImplementation(() => (now += 1000));
    const progress = createProgress('records', 'run 5');
    screen.write('$ slotsync sync\n');
    progress.update(0, 100);
    progress.update(50, 100);
    expect(screen.shown()).toEqual([
      '$ slotsync sync',
      expect.stringMatching(/^ \d s left {2}50 % {2}50 of 100 records/),
    ]);
    screen.write('^C');
    printNote('Stopping.');
    expect(screen.shown()).toEqual(['$ slotsync sync', 'Stopping.']);
    progress.update(60, 100);
    expect(screen.shown()).toHaveLength(3);
    progress.stop();
    expect(screen.shown()).toEqual(['$ slotsync sync', 'Stopping.']);
    expect(screen.isCursorShown()).toBe(true);
  });
});
