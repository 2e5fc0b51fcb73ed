// How fast a run is, and how long it will take, as far as that is known.
import { describe, expect, it } from 'vitest';
import { createPace, describePace } from '../../src/report/progress.js';

describe('the pace', () => {
  it('is that of the last quarter of a minute', () => {
    const pace = createPace();
    expect(pace(0, 0)).toBe(0);
    expect(pace(100, 1000)).toBe(100);
    expect(pace(300, 2000)).toBe(150);
    expect(pace(300, 30_000)).toBeLessThan(150);
    expect(pace(300, 60_000)).toBe(0);
  });

  it('is told with the quota in use and the time left, or with why nothing moves', () => {
    expect(describePace(190, 7600, { quotaUse: 0.953 })).toBe(
      '190 records a second, 95 % of the quota, 40 s left',
    );
    expect(describePace(190, 0, {})).toBe('190 records a second');
    expect(describePace(0, 7600, { quotaUse: 1.04 })).toBe('100 % of the quota');
    expect(describePace(0, 7600, {})).toBe('');
    expect(describePace(190, 7600, { blocked: 'paused' })).toBe('paused');
  });
});
