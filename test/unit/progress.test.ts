// How fast a run is, and how long it will take, as far as that is known.
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

describe('the pace', () => {
  it('is that of the last quarter of a minute', () => {
    const pace = createPace();
    expect(pace(0, 0)).toBe(0);
    expect(pace(100, 1000)).toBe(100);
    expect(pace(300, 2000)).toBe(150);
    expect(pace(300, 30_000)).toBeLessThan(150);
    expect(pace(300, 60_000)).toBe(0);
  });
});

describe('progress', () => {
  it('the time left comes first, or why nothing moves', () => {
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

  it('terminal: the time left comes first and is never cut, down to 40 columns', () => {
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

  it('terminal: a note does not mix with it, and nothing is left at the end', () => {
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
