// Guarantee 6
// The end of a row, read from a column. The days of grace count from it after the row is gone.
import { describe, expect, it } from 'vitest';
import { adopt } from '../../src/sync/verify/verify.js';
import { keepRooms, rooms, type Declaration, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

describe('days of grace from a column', () => {
  const ending = (days = 30, changes: Partial<Declaration> = {}) =>
    rooms({ retire: 'deactivate', graceDays: { column: 'ends_on', days }, ...changes });

  async function openEnding(config = ending()): Promise<RoomWorld> {
    const world = await open(config);
    await world.sql`ALTER TABLE rooms ADD COLUMN ends_on date`;
    await world.addRooms('A', 'B', 'C');
    return world;
  }
  const endIn = ({ sql }: RoomWorld, code: string, days: number) =>
    sql`UPDATE rooms SET ends_on = now() + make_interval(days => ${days}) WHERE code = ${code}`;
  const endOf = async ({ sql }: RoomWorld, code: string) =>
    (
      await sql`SELECT (ends_at AT TIME ZONE 'UTC')::text AS ends FROM slotsync.records WHERE local_key = ${code}`
    ).at(0)?.['ends'];

  it('count from the value that the row had, however late the row was found missing', async () => {
    const world = await openEnding();
    await endIn(world, 'A', -31);
    await endIn(world, 'B', -29);
    await world.sync();
    await world.remove('A', 'B');
    expect((await world.preview()).counts.retire).toBe(1);
    const { run } = await world.sync();
    expect(run.plan).toMatchObject({ rooms: { retire: 1 } });
    expect([world.isActive('room_A'), world.isActive('room_B')]).toEqual([false, true]);
    await world.sql`UPDATE slotsync.records SET ends_at = ends_at - interval '1 day' WHERE local_key = 'B'`;
    await world.sync();
    expect(world.isActive('room_B')).toBe(false);
  });

  it('follow a change of the column without a write', async () => {
    const world = await openEnding();
    await endIn(world, 'A', -100);
    await world.sync();
    await world.sql`UPDATE rooms SET ends_on = '2031-05-06' WHERE code = 'A'`;
    await world.expectNothingToSend();
    expect(await endOf(world, 'A')).toBe('2031-05-06 00:00:00');
    await world.remove('A');
    await world.sync();
    expect(world.isActive('room_A')).toBe(true);
  });

  it('note dates and timestamps, and no time that JavaScript lacks', async () => {
    const world = await openEnding();
    const ends: [type: string, value: string | null, noted: string | null][] = [
      ['date', '2026-05-06', '2026-05-06 00:00:00'],
      ['timestamp', '2026-05-06 07:08:09.123456', '2026-05-06 07:08:09.123456'],
      ['timestamptz', '2026-05-06 07:08:09+02', '2026-05-06 05:08:09'],
      ['date', 'infinity', null],
      ['timestamptz', '-infinity', null],
      ['date', '0044-03-15 BC', null],
      ['timestamp', '20000-01-01', null],
      ['date', null, null],
    ];
    for (const [type, value, noted] of ends) {
      await world.sql.unsafe(`ALTER TABLE rooms ALTER ends_on TYPE ${type} USING NULL`);
      await world.sql`UPDATE rooms SET ends_on = ${value}::text::${world.sql.unsafe(type)} WHERE code = 'A'`;
      await world.sync();
      expect([type, value, await endOf(world, 'A')]).toEqual([type, value, noted]);
    }
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced', C: 'synced' });
  });

  it('count from when the row was found missing if it had no value', async () => {
    const world = await openEnding();
    await world.sync();
    await world.remove('A');
    await world.sync();
    expect(world.isActive('room_A')).toBe(true);
    await world.sql`UPDATE slotsync.records SET gone_since = gone_since - interval '30 days' WHERE gone_since IS NOT NULL`;
    await world.sync();
    expect(world.isActive('room_A')).toBe(false);
  });

  it('note the value of every row, without a write, when the column is configured later', async () => {
    const world = await openEnding(rooms({ retire: 'deactivate', graceDays: 3 }));
    await endIn(world, 'A', -31);
    await world.sync();
    expect(await endOf(world, 'A')).toBeNull();
    world.configure(ending());
    await world.expectNothingToSend();
    expect(await endOf(world, 'A')).not.toBeNull();
    world.configure(rooms({ retire: 'deactivate', graceDays: 3 }));
    await world.remove('A');
    await world.sync();
    expect(world.isActive('room_A')).toBe(true);
  });

  it('are shown by explain, and note the value of the row when a record is adopted', async () => {
    const world = await openEnding();
    await world.sql`UPDATE rooms SET ends_on = '2026-05-06'`;
    await world.sync();
    expect(await world.explain('A')).toMatchObject({
      row: { ends_on: '2026-05-06' },
      record: { endsAt: new Date('2026-05-06') },
    });
    await world.sql`DELETE FROM slotsync.records`;
    await adopt(world.verifying());
    expect(await endOf(world, 'A')).toBe('2026-05-06 00:00:00');
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
