// Guarantees 3, 5, 6, 11
// Random histories of gates, played by seed. SLOTSYNC_HISTORIES sets their number, and SLOTSYNC_HISTORY=17 plays one alone.
import { describe, expect, inject, it } from 'vitest';
import { openExploredWorld, type ExploredWorld } from './explored-world.js';
import { drawHistory, playGateHistory, type GateHistory, type GateOutcome } from './gate-histories.js';

const only = process.env['SLOTSYNC_HISTORY'];
/** Numbers of histories of a complete run, and of `npm test`. */
const ALL = 400;
const FEW = 4;
const most = Number(process.env['SLOTSYNC_HISTORIES'] ?? (inject('schedulesAtMost') === 0 ? ALL : FEW));
/** Number of histories in one database. */
const SEEDS_EACH = 4;
const OPERATIONS = 25;

const seeds = only === undefined ? Array.from({ length: most }, (_, at) => at + 1) : [Number(only)];
const parts = Array.from({ length: Math.ceil(seeds.length / SEEDS_EACH) }, (_, at) =>
  seeds.slice(at * SEEDS_EACH, (at + 1) * SEEDS_EACH),
);

/** Removes operations that a failing history does not need. */
async function shorten(world: ExploredWorld, history: GateHistory): Promise<GateOutcome | undefined> {
  let { operations } = history;
  let shortest: GateOutcome | undefined;
  for (let size = Math.ceil(operations.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = operations.length - size; at >= 0; at -= size) {
      const fewer = operations.toSpliced(at, size);
      const outcome = await playGateHistory(world, { ...history, operations: fewer });
      if (outcome.faults.length === 0) continue;
      operations = fewer;
      shortest = outcome;
    }
  }
  return shortest;
}

function report(seed: number, { faults, trace }: GateOutcome): string {
  const alone = `SLOTSYNC_HISTORY=${seed} npx vitest run --project schedules test/schedules/gate-histories.test.ts`;
  return [`seed ${seed}:`, ...faults, ...trace, `Play it alone: ${alone}`].join('\n  ');
}

/** Returns the index of the first operation after which the two differ, or -1. */
const firstDifference = (one: GateOutcome, other: GateOutcome) =>
  one.states.findIndex((state, at) => state !== other.states[at]);

async function playSeed(world: ExploredWorld, seed: number): Promise<string | undefined> {
  const history = { seed, operations: drawHistory(seed, OPERATIONS) };
  const outcome = await playGateHistory(world, history);
  if (outcome.faults.length > 0) return report(seed, (await shorten(world, history)) ?? outcome);
  return undefined;
}

describe.concurrent.each(parts)('random histories of gates from seed %i on', (...part) => {
  it('end with every record sent, or shown as waiting', { timeout: 60 * 60 * 1000 }, async () => {
    const world = await openExploredWorld();
    try {
      const failed: string[] = [];
      for (const seed of part) {
        const found = await playSeed(world, seed);
        if (found) failed.push(found);
      }
      expect(failed.join('\n\n')).toBe('');
    } finally {
      await world.close();
    }
  });
});

describe('random histories of gates', () => {
  it('have the same states with and without their finished runs', async () => {
    const world = await openExploredWorld();
    try {
      for (const seed of [1, 2, 3]) {
        const history = { seed: seed % 4, operations: drawHistory(seed, OPERATIONS) };
        const kept = await playGateHistory(world, history);
        const pruned = await playGateHistory(world, { ...history, prunesAlways: true });
        const at = firstDifference(kept, pruned);
        expect(`seed ${seed}\n${pruned.states[at]}`).toBe(`seed ${seed}\n${kept.states[at]}`);
        expect([...kept.faults, ...pruned.faults].join('\n')).toBe('');
      }
    } finally {
      await world.close();
    }
  });
});
