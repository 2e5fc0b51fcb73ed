// Guarantee 6
// A plan reads mirror and state at different moments. A row that arrives in between must not count as gone.
import { expect, it } from 'vitest';
import { keepRoomWorlds, rooms } from '../support/room-worlds.js';
import { until } from '../support/wait.js';

const open = keepRoomWorlds();

it('a key created while a plan reads the mirror is neither retired, deleted nor counted', async () => {
  const world = await open(rooms({ retire: 'deactivate', limits: { retire: { count: 0, percent: 0 } } }));
  const { sql } = world;
  await sql`INSERT INTO rooms (code, name) SELECT 'r' || i, 'Room' FROM generate_series(1, 5) AS i`;
  await world.sync();
  // The reading of the mirror has its snapshot and waits; readings by key do not.
  await sql`ALTER TABLE rooms RENAME TO source`;
  await sql.unsafe(`
    CREATE FUNCTION hold() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
      IF current_query() LIKE 'COPY%' THEN PERFORM pg_advisory_xact_lock_shared(7); END IF;
      RETURN true;
    END $$;
    CREATE VIEW rooms AS SELECT * FROM source WHERE hold()`);
  const { runId, queue } = await world.planBatches('rooms', [['new', 'bad']]);
  await sql`UPDATE slotsync.runs SET kind = 'incremental' WHERE id = ${runId}`;
  world.sandbox.refuseObject('room_bad', { status: 400, message: 'no' });

  const holder = await sql.reserve();
  await holder`SELECT pg_advisory_lock(7)`;
  const syncing = world.plan();
  await until(
    async () => (await sql`SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`).length > 0,
    { describe: 'the mirror is being read' },
  );
  await sql`INSERT INTO source (code, name) VALUES ('new', 'Room new'), ('bad', 'Room bad')`;
  await world.finish(runId, queue);
  expect(await world.statusesOf('rooms')).toMatchObject({ new: 'synced', bad: 'dead' });
  await holder`SELECT pg_advisory_unlock(7)`;
  holder.release();

  const planned = await syncing;
  const { run } = await world.finish(planned.runId, planned.queue);
  expect(run).toMatchObject({ status: 'succeeded', plan: { rooms: { retire: 0, unchanged: 5 } }, holds: {} });
  expect(await world.statusesOf('rooms')).toMatchObject({ new: 'synced', bad: 'dead' });
  expect(world.sandbox.object('room_new')).toMatchObject({ active: true });
});
