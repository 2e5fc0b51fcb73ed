// Numbers of statements and round trips, counted on the way to the databases. Over a distance, each round trip costs time.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rehearseOnce, type Installation } from '../support/rehearsals.js';
import { addTallies, startCountingHop, type Tally } from '../support/round-trips.js';
import { isForMirrorAlone, STORES } from '../support/services.js';
import { until } from '../support/wait.js';

type Hop = Awaited<ReturnType<typeof startCountingHop>>;

/** Upper bounds, a few polls of a slow machine above the present numbers. A change that saves round trips lowers them. */
const MOST = {
  PostgreSQL: {
    change: { statements: 36, roundTrips: 40 },
    sync: { statements: 111, roundTrips: 135 },
    nothing: { statements: 89, roundTrips: 109 },
    idle: { statements: 55, roundTrips: 60 },
  },
  Redis: {
    change: { statements: 34, roundTrips: 38 },
    sync: { statements: 101, roundTrips: 122 },
    nothing: { statements: 87, roundTrips: 107 },
    idle: { statements: 30, roundTrips: 35 },
  },
} as const;
const CHANGES = 5;
const SYNCS = 3;
/** Number of looks into the inbox while an idle worker is counted. They take about 15 seconds. */
const LOOKS = 8;

describe.each(STORES)('PostgreSQL with the queue on $store', ({ store, url, skip }) => {
  describe.skipIf(skip || isForMirrorAlone())('the numbers of statements and round trips', () => {
    const most = MOST[store as keyof typeof MOST];
    const world = rehearseOnce({ redisUrl: url, rows: 200, sandbox: { rate: 0 } });
    let hop: Hop;
    const env = () => ({ MIRROR_DATABASE_URL: hop.through(world.url) });

    beforeAll(async () => {
      hop = await startCountingHop(world.url);
      await world.read('sync');
    });
    afterAll(() => hop.close());

    it.each([
      ['of one changed row', 'sync'],
      ['without a change', 'nothing'],
    ] as const)('stay within their bounds in a sync %s', async (_, bound) => {
      const tallies: Tally[] = [];
      for (let attempt = 0; attempt < SYNCS; attempt++) {
        if (bound === 'sync')
          await world.sql`UPDATE rooms SET name = ${`Changed ${attempt}`} WHERE code = 'R1'`;
        hop.clear();
        expect(await world.run(['sync'], env())).toMatchObject({ code: 0 });
        tallies.push(hop.tally());
      }
      expectAtMost(tallies, most[bound]);
    });

    it('stay within their bounds in a worker for a change noted by a trigger', async () => {
      await world.read('triggers install rooms');
      const worker = await world.startWorker([], env());
      const tallies: Tally[] = [];
      for (let change = 0; change < CHANGES; change++) {
        hop.clear();
        const before = world.puts().length;
        await world.sql`UPDATE rooms SET name = ${`Changed ${change}`} WHERE code = 'R2'`;
        await until(() => world.puts().length > before, { describe: 'the change to arrive' });
        await until(() => isSettled(world), { describe: 'the run to end' });
        tallies.push(hop.tally());
      }
      expectAtMost(tallies, most.change);
      worker.child.kill('SIGTERM');
      await worker.finished;
    });

    it('stay within their bounds in an idle worker', async () => {
      await world.startWorker([], env());
      const looks = () =>
        hop.tally().places.find(({ place }) => place.startsWith('WITH expired AS'))?.statements ?? 0;
      await until(() => looks() > 1, { describe: 'the worker to be idle' });
      hop.clear();
      await until(() => looks() >= LOOKS, { describe: 'the looks into the inbox' });
      expectAtMost([hop.tally()], most.idle);
    });
  });
});

const isSettled = async ({ sql }: Installation): Promise<boolean> => {
  const open = await sql`
    SELECT FROM slotsync.changes UNION ALL SELECT FROM slotsync.runs WHERE finished_at IS NULL`;
  return open.length === 0;
};

/** Compares the attempt with the fewest statements, because polls come between. Shows its places if it exceeds a bound. */
function expectAtMost(tallies: readonly Tally[], most: { statements: number; roundTrips: number }): void {
  const [least = addTallies([])] = tallies.toSorted((a, b) => a.statements - b.statements);
  const { statements, roundTrips, places } = least;
  const shown = places.map((each) => `${each.statements}\t${each.roundTrips}\t${each.place}`).join('\n');
  expect(statements, shown).toBeLessThanOrEqual(most.statements);
  expect(roundTrips, shown).toBeLessThanOrEqual(most.roundTrips);
}
