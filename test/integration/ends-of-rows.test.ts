// Guarantee 6
// The end of a row, read from a column. The days of grace count from it after the row is gone.
import { describe, expect, it } from 'vitest';
import { previewStream } from '../../src/sync/plan/preview.js';
import { explainRecord } from '../../src/sync/operator/explain.js';
import { adopt } from '../../src/sync/verify/verify.js';
import type { Declaration } from '../support/campus.js';
import { addRooms, expectNothingToSend, isActive, keepRoomWorlds, rooms } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();

describe('days of grace from a column', () => {
  const ending = (days = 30, changes: Partial<Declaration> = {}) =>
    rooms({ retire: 'deactivate', graceDays: { column: 'ends_on', days }, ...changes });

  async function openEnding(config = ending(), type = 'date'): Promise<World> {
    const world = await open(config);
    await world.sql.unsafe(`ALTER TABLE rooms ADD COLUMN ends_on ${type}`);
    await addRooms(world, 'A', 'B', 'C');
    return world;
  }
  const endIn = ({ sql }: World, code: string, days: number) =>
    sql`UPDATE rooms SET ends_on = now() + make_interval(days => ${days}) WHERE code = ${code}`;
  const remove = ({ sql }: World, ...codes: string[]) => sql`DELETE FROM rooms WHERE code = ANY (${codes})`;
  const endOf = async ({ sql }: World, code: string) =>
    (
      await sql`SELECT (ends_at AT TIME ZONE 'UTC')::text AS ends FROM slotsync.records WHERE local_key = ${code}`
    )[0]?.['ends'];

  it('count from the value that the row had, however late the row was found missing', async () => {
    const world = await openEnding();
    await endIn(world, 'A', -31);
    await endIn(world, 'B', -29);
    await world.sync();
    await remove(world, 'A', 'B');
    expect((await previewStream(world.deps(), world.stream('rooms'))).counts.retire).toBe(1);
    const { run } = await world.sync();
    expect(run.plan).toMatchObject({ rooms: { retire: 1 } });
    expect([isActive(world, 'room_A'), isActive(world, 'room_B')]).toEqual([false, true]);
    await world.sql`UPDATE slotsync.records SET ends_at = ends_at - interval '1 day' WHERE local_key = 'B'`;
    await world.sync();
    expect(isActive(world, 'room_B')).toBe(false);
  });

  it('keep an object active until the end of its row', async () => {
    const world = await openEnding(ending(0));
    await endIn(world, 'A', 10);
    await world.sync();
    await remove(world, 'A');
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(true);
  });

  it('follow a change of the column without a write', async () => {
    const world = await openEnding();
    await endIn(world, 'A', -100);
    await world.sync();
    await world.sql`UPDATE rooms SET ends_on = '2031-05-06' WHERE code = 'A'`;
    await expectNothingToSend(world);
    expect(await endOf(world, 'A')).toBe('2031-05-06 00:00:00');
    await remove(world, 'A');
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(true);
  });

  it.each([
    ['date', '2026-05-06', '2026-05-06 00:00:00'],
    ['timestamp', '2026-05-06 07:08:09.123456', '2026-05-06 07:08:09.123456'],
    ['timestamptz', '2026-05-06 07:08:09+02', '2026-05-06 05:08:09'],
    ['date', 'infinity', null],
    ['timestamptz', '-infinity', null],
    ['date', '0044-03-15 BC', null],
    ['timestamp', '20000-01-01', null],
    ['date', null, null],
  ])('note a %s of %s as %s', async (type, value, noted) => {
    const world = await openEnding(ending(), type);
    await world.sql`UPDATE rooms SET ends_on = ${value}::text::${world.sql.unsafe(type)} WHERE code = 'A'`;
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'synced' });
    expect(await endOf(world, 'A')).toBe(noted);
  });

  it('count from when the row was found missing if it had no value', async () => {
    const world = await openEnding();
    await world.sync();
    await remove(world, 'A');
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(true);
    await world.sql`UPDATE slotsync.records SET gone_since = gone_since - interval '30 days' WHERE gone_since IS NOT NULL`;
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(false);
  });

  it('note the value of every row, without a write, when the column is configured later', async () => {
    const world = await openEnding(rooms({ retire: 'deactivate', graceDays: 3 }));
    await endIn(world, 'A', -31);
    await world.sync();
    expect(await endOf(world, 'A')).toBeNull();
    world.configure(ending());
    await expectNothingToSend(world);
    expect(await endOf(world, 'A')).not.toBeNull();
    world.configure(rooms({ retire: 'deactivate', graceDays: 3 }));
    await remove(world, 'A');
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(true);
  });

  it('note the value of the row when a record is adopted', async () => {
    const world = await openEnding();
    await world.sql`UPDATE rooms SET ends_on = '2026-05-06'`;
    await world.sync();
    await world.sql`DELETE FROM slotsync.records`;
    await adopt(world.verifying());
    expect(await endOf(world, 'A')).toBe('2026-05-06 00:00:00');
  });

  it('are shown by explain, with the column among those that are read', async () => {
    const world = await openEnding();
    await world.sql`UPDATE rooms SET ends_on = '2026-05-06'`;
    await world.sync();
    const explained = await explainRecord(world.deps(), world.stream('rooms'), 'A');
    expect(explained).toMatchObject({
      row: { ends_on: '2026-05-06' },
      record: { endsAt: new Date('2026-05-06') },
    });
  });

  it('require a column that exists and holds dates or timestamps', async () => {
    const world = await open(ending());
    const [fault] = await world.mirror.checkStream(world.stream('rooms'));
    expect(fault).toMatch(/^graceDays\.column: there is no column ends_on; /);
    await world.sql`ALTER TABLE rooms ADD COLUMN ends_on text`;
    expect(await world.mirror.checkStream(world.stream('rooms'))).toEqual([
      'graceDays.column: column ends_on is text; name a date or a timestamp, or convert it in a query',
    ]);
  });
});
