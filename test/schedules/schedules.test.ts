// Guarantees 2, 3, 4, 5, 6, 7
// Interleavings, played systematically instead of by chance. A few processes run the real use cases against a real database
// and the sandbox. At every statement, reading, request and answer, a scheduler picks the next process.
import { appendFileSync } from 'node:fs';
import { describe, expect, inject, it } from 'vitest';
import { explore, playOne, report } from './explore.js';
import { openExploredWorld } from './explored-world.js';
import { GATE_SCENARIOS } from './gate-scenarios.js';
import { SCENARIOS } from './scenarios.js';
import { readChoices } from './scheduler.js';

/** `scenario:choices`, as the report of a failed schedule prints it, or only a scenario. */
const [only, choices] = (process.env['SLOTSYNC_SCHEDULE'] ?? '').split(':');
/** Largest number of schedules of each scenario, chosen evenly. 0: all of them. */
const most = Number(process.env['SLOTSYNC_SCHEDULES'] ?? inject('schedulesAtMost')) || Infinity;
const HOURS = 60 * 60 * 1000;

const ALL = [...GATE_SCENARIOS, ...SCENARIOS];

describe.concurrent.each(ALL.filter(({ name }) => !only || name === only))(
  'concurrent processes',
  (scenario) => {
    it(
      `end with every object as its row says in all schedules of ${scenario.name}`,
      async () => {
        const world = await openExploredWorld();
        try {
          if (choices) {
            const outcome = await playOne(world, scenario, readChoices(choices));
            process.stdout.write(`${report(scenario, outcome)}\n`);
            expect(outcome.faults).toEqual([]);
            return;
          }
          const { schedules, failed, failures } = await explore(world, scenario, most);
          appendFileSync(inject('scheduleCounts'), `${scenario.name} ${schedules} ${failed}\n`);
          expect(failures.join('\n\n')).toBe('');
        } finally {
          await world.close();
        }
      },
      12 * HOURS,
    );
  },
);
