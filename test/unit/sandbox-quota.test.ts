import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { mostInAnySecond, createWindow, type WindowKind } from '../../src/sandbox/quota.js';

const rates = fc.integer({ min: 1, max: 30 });
const gaps = fc.array(fc.integer({ min: 0, max: 400 }), { minLength: 1, maxLength: 400 });

/** Returns the moments of accepted requests, which come with the given gaps in milliseconds. */
function accepted(kind: WindowKind, rate: number, gapsMs: readonly number[], wallOffsetMs = 0): number[] {
  const window = createWindow(kind, rate, wallOffsetMs);
  let now = 0;
  return gapsMs.flatMap((gapMs) => {
    now += gapMs;
    return window(now) === 0 ? [now] : [];
  });
}

describe('a sliding window', () => {
  it('accepts a request if and only if its last second has room', () => {
    fc.assert(
      fc.property(rates, gaps, (rate, gapsMs) => {
        const window = createWindow('sliding', rate);
        const taken: number[] = [];
        let now = 0;
        for (const gapMs of gapsMs) {
          now += gapMs;
          const inLastSecond = taken.filter((moment) => now - moment < 1000).length;
          const isAccepted = window(now) === 0;
          expect(isAccepted).toBe(inLastSecond < rate);
          if (isAccepted) taken.push(now);
        }
      }),
    );
  });

  it('accepts after exactly the wait that it states', () => {
    const window = createWindow('sliding', 2);
    expect([window(0), window(300), window(400)]).toEqual([0, 0, 600]);
    expect(window(999)).toBe(1);
    expect(window(1000)).toBe(0);
    expect(window(1000)).toBe(300);
  });
});

describe('a fixed window', () => {
  it('never accepts more than the rate between two ticks of the wall clock', () => {
    fc.assert(
      fc.property(rates, gaps, fc.integer({ min: 0, max: 5000 }), (rate, gapsMs, offsetMs) => {
        const bySecond = new Map<number, number>();
        for (const moment of accepted('fixed', rate, gapsMs, offsetMs)) {
          const second = Math.floor((moment + offsetMs) / 1000);
          bySecond.set(second, (bySecond.get(second) ?? 0) + 1);
        }
        expect(Math.max(0, ...bySecond.values())).toBeLessThanOrEqual(rate);
      }),
    );
  });
});

describe('a token bucket', () => {
  it('never accepts more than its capacity plus the refill, over any stretch', () => {
    fc.assert(
      fc.property(rates, gaps, (rate, gapsMs) => {
        const moments = accepted('bucket', rate, gapsMs);
        moments.forEach((from, first) => {
          const last = moments.length - 1;
          const stretchMs = (moments[last] ?? from) - from;
          expect(last - first + 1).toBeLessThanOrEqual(rate + (stretchMs * rate) / 1000 + 1e-6);
        });
      }),
    );
  });
});

describe('every window', () => {
  it('accepts again after the wait that it states', () => {
    const kinds = fc.constantFrom<WindowKind>('sliding', 'fixed', 'bucket');
    fc.assert(
      fc.property(kinds, rates, gaps, (kind, rate, gapsMs) => {
        const window = createWindow(kind, rate);
        let now = 0;
        for (const gapMs of gapsMs) {
          now += gapMs;
          const waitMs = window(now);
          if (waitMs === 0) continue;
          now += Math.ceil(waitMs + 1e-6);
          expect(window(now)).toBe(0);
        }
      }),
    );
  });

  it('accepts everything at rate 0', () => {
    for (const kind of ['sliding', 'fixed', 'bucket'] as const)
      expect(accepted(kind, 0, Array<number>(500).fill(0))).toHaveLength(500);
  });
});

describe('mostInAnySecond', () => {
  it('counts half-open seconds', () => {
    expect(mostInAnySecond([])).toBe(0);
    expect(mostInAnySecond([0, 1000])).toBe(1);
    expect(mostInAnySecond([0, 999.9, 1000, 1500, 1999])).toBe(4);
  });
});
