// Slices cover a period once, hold no more than is wanted, and cost few readings too many.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { readSlices } from '../../src/sync/reconcile/read-window.js';

async function slice(moments: readonly number[], size: { most: number; least: number }, to = 10_000) {
  let readings = 0;
  const slices: { from: number; to: number; held: number }[] = [];
  const read = async (period: { from: number; to: number }, most: number | undefined) => {
    readings++;
    const results = moments.filter((moment) => moment >= period.from && moment < period.to);
    return most !== undefined && results.length > most
      ? { results: [], tooMany: results.length }
      : { results };
  };
  for await (const { slice: period, results } of readSlices({ from: 0, to }, size, read))
    slices.push({ ...period, held: results.length });
  return { slices, readings };
}

it('slices cover a period exactly once, and exceed the wanted number only at the least length', () =>
  fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 0, max: 9_999 }), { maxLength: 300 }),
      fc.integer({ min: 1, max: 40 }),
      fc.integer({ min: 1, max: 500 }),
      async (moments, most, least) => {
        const { slices } = await slice(moments, { most, least });
        expect(slices[0]?.from).toBe(0);
        expect(slices.at(-1)?.to).toBe(10_000);
        slices.forEach(({ from }, at) => expect(from).toBe(at === 0 ? 0 : slices[at - 1]?.to));
        expect(slices.reduce((sum, { held }) => sum + held, 0)).toBe(moments.length);
        for (const { from, to, held } of slices) expect(held <= most || to - from <= least).toBe(true);
      },
    ),
  ));

it('slices take one reading for a quiet period, and few extra readings for a busy period', async () => {
  expect(await slice([1, 2, 3], { most: 5, least: 1 })).toMatchObject({ readings: 1 });
  const even = Array.from({ length: 2000 }, (_, at) => at * 5);
  const { slices, readings } = await slice(even, { most: 100, least: 1 });
  expect(slices.length).toBeLessThanOrEqual(27);
  expect(readings - slices.length).toBeLessThanOrEqual(2);
});
