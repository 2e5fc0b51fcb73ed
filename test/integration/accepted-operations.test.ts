// Guarantee 11
// The operations of a run as the service accepted them, not as they were planned.
import { beforeEach, describe, expect, it } from 'vitest';
import { readReport } from '../../src/situation/report.js';
import { reportDocument } from '../../src/documents/report.js';
import { sumByStream } from '../../src/state/runs/count-runs.js';
import { ROOMS } from '../support/campus.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const openWorld = keepWorlds();
let world: World;
beforeEach(async () => {
  world = await openWorld({ streams: { rooms: { ...ROOMS, retire: 'deactivate' } } });
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text)`;
  await world.sql`INSERT INTO rooms SELECT 'R' || n, 'room ' || n FROM generate_series(1, 10) AS n`;
  for (const code of ['R1', 'R2', 'R3'])
    world.sandbox.refuseObject(`room_${code}`, { status: 422, message: 'no' });
});

const sums = (runId: number) =>
  sumByStream(world.state.db, { from: new Date(0), to: new Date(), runId }).then(([first]) => first);

describe('the accepted operations of a run', () => {
  it('count no create that was refused, in the run and in its report', async () => {
    const { run } = await world.sync();
    expect(await sums(run.id)).toMatchObject({
      planned: { create: 10 },
      accepted: { create: 7, update: 0, retire: 0 },
      outcomes: { synced: 7, dead: 3 },
    });
    const facts = await readReport(world.state.db, { run }, { requestsPerSecond: 20 });
    const changed = reportDocument(facts).sections.find(({ title }) => title === 'What changed');
    expect(changed?.table).toEqual({
      headings: ['stream', 'to create', 'created', 'given up'],
      rows: [['rooms', 10, 7, 3]],
    });
  });

  it('count updates and deactivations apart, and no equal object', async () => {
    await world.sync();
    // While any record of the stream is given up, nothing is retired.
    await world.sql`DELETE FROM rooms WHERE code IN ('R1', 'R2', 'R3')`;
    await world.sql`UPDATE rooms SET name = 'new' WHERE code IN ('R4', 'R5')`;
    await world.sql`DELETE FROM rooms WHERE code = 'R10'`;
    const { run } = await world.sync();
    expect(await sums(run.id)).toMatchObject({
      accepted: { create: 0, update: 2, retire: 1 },
      outcomes: { synced: 3 },
    });
    await world.sql`UPDATE slotsync.records SET object_hash = NULL, in_doubt = true WHERE local_key = 'R4'`;
    const again = await world.sync();
    expect(await sums(again.run.id)).toMatchObject({
      accepted: { create: 0, update: 0, retire: 0 },
      outcomes: { synced: 0 },
    });
  });
});
