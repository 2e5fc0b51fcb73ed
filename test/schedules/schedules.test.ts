// Guarantees 2, 3, 4, 6, 7
// Interleavings, one after the other instead of by chance: a few processes run the real use cases against a real database
// and the sandbox, and at every statement, reading, request and answer a scheduler decides who goes next.
import { appendFileSync } from 'node:fs';
import { describe, expect, inject, it } from 'vitest';
import { explore, playOne, report } from './explore.js';
import { openExploredWorld } from './explored-world.js';
import { SCENARIOS } from './scenarios.js';
import { readChoices } from './scheduler.js';

/** `scenario:choices`, as a schedule that failed prints it; or a scenario alone. */
const [only, choices] = (process.env['SLOTSYNC_SCHEDULE'] ?? '').split(':');
/** Schedules of each scenario; all of them without it. */
const most = Number(process.env['SLOTSYNC_SCHEDULES'] ?? Infinity);

describe.concurrent.each(SCENARIOS.filter(({ name }) => !only || name === only))('schedules', (scenario) => {
  it(
    `${scenario.name}: whoever goes first, every object ends as its row says`,
    { timeout: 4 * 60 * 60 * 1000 },
    async () => {
      const world = await openExploredWorld();
      try {
        if (choices !== undefined) {
          const outcome = await playOne(world, scenario, readChoices(choices));
          process.stdout.write(`${report(scenario, outcome)}\n`);
          expect(outcome.faults).toEqual([]);
          return;
        }
        const explored = await explore(world, scenario, { most });
        appendFileSync(
          inject('scheduleCounts'),
          `${scenario.name} ${explored.schedules} ${explored.failed}\n`,
        );
        if (explored.failed > 0) process.stdout.write(`${explored.failures.join('\n\n')}\n`);
        expect(explored.failures.join('\n\n')).toBe('');
        expect(explored.schedules).toBeGreaterThan(2);
      } finally {
        await world.close();
      }
    },
  );
});
