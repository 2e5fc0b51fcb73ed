// Guarantees 2, 3, 4, 6, 7
// Random histories of rows that exchange their objects, one for each seed. SLOTSYNC_HISTORIES sets their number, and
// SLOTSYNC_HISTORY=17 plays one seed alone.
import { describe, expect, it } from 'vitest';
import { openExploredWorld, type ExploredWorld } from '../schedules/explored-world.js';
import { playHistory } from '../schedules/histories.js';

const only = process.env['SLOTSYNC_HISTORY'];
const most = Number(process.env['SLOTSYNC_HISTORIES'] ?? 8);
/** Number of seeds that share a database. */
const SEEDS_EACH = 2;
const OPERATIONS = 18;

const seeds = only === undefined ? Array.from({ length: most }, (_, at) => at + 1) : [Number(only)];
const parts = Array.from({ length: Math.ceil(seeds.length / SEEDS_EACH) }, (_, at) =>
  seeds.slice(at * SEEDS_EACH, (at + 1) * SEEDS_EACH),
);

/** Returns the shortest failing history of a seed. */
async function shorten(world: ExploredWorld, seed: number): Promise<string> {
  for (let operations = 1; operations <= OPERATIONS; operations++) {
    const { faults, trace } = await playHistory(world, seed, operations);
    if (faults.length === 0) continue;
    return [
      `seed ${seed}, ${operations} operations:`,
      ...faults,
      ...trace,
      `Play it alone: SLOTSYNC_HISTORY=${seed} npx vitest run --project services test/integration/ownership-histories.test.ts`,
    ].join('\n  ');
  }
  return `seed ${seed} fails only now and then`;
}

describe.concurrent.each(parts)('random histories of ownership from seed %i on', (...part) => {
  it('end with every object as the row of its one owner says', { timeout: 60 * 60 * 1000 }, async () => {
    const world = await openExploredWorld();
    try {
      const failed: string[] = [];
      for (const seed of part) {
        const { faults } = await playHistory(world, seed, OPERATIONS);
        if (faults.length > 0) failed.push(await shorten(world, seed));
      }
      expect(failed.join('\n\n')).toBe('');
    } finally {
      await world.close();
    }
  });
});
