// Objects of the subtypes of a stream belong to the stream: they keep their type in writes, and are read with all others.
import { describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { groupByTypes } from '../../src/streams/stream.js';
import { matchStreams } from '../../src/sync/match/match-streams.js';
import { adopt } from '../../src/sync/verify/verify.js';
import type { WorldOptions } from '../support/world.js';
import { codes, COURSES, keepRooms, ROOMS, rooms, type RoomWorld } from '../support/steps.js';

const openWorld = keepRooms();

const SUBTYPED_FIELDS = Object.keys(ROOMS.fields);
const SUBTYPED = { ...ROOMS, subtypes: ['classroom', 'lab'] };
const subtyped = (changes: Parameters<typeof rooms>[0] = {}): SlotsyncConfig =>
  rooms({ ...SUBTYPED, ...changes });

/** Opens a world in which A is a classroom made by hand, and B is not at the service yet. */
async function open(config = subtyped(), options: WorldOptions = {}): Promise<RoomWorld> {
  const world = await openWorld(config, options);
  world.addObject('room_A', { 'room.name': 'by hand' }, 'classroom');
  await world.addRooms('A', 'B');
  return world;
}
const typeOf = (world: RoomWorld, code: string) => world.sandbox.object(`room_${code}`)?.typeId;

const OWNS = [['fields'], ['object']] as const;

describe('an object of a subtype', () => {
  it.each(OWNS)(
    'keeps its type when it is written, where the stream owns %s; a new object gets `type`',
    async (owns) => {
      const world = await open(subtyped({ owns }));
      expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
      expect(world.sandbox.object('room_A')).toMatchObject({ typeId: 'classroom' });
      expect(world.nameOf('A')).toBe('Room A');
      expect(typeOf(world, 'B')).toBe('room');
      await world.expectNothingToSend();
      await world.rename('A', 'Renamed');
      expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
      expect([typeOf(world, 'A'), world.nameOf('A')]).toEqual(['classroom', 'Renamed']);
    },
  );

  it('belongs to another type where the stream does not name its type', async () => {
    const types = ['room', 'classroom', 'lab'].map((extId) => ({ extId }));
    const fields = [...SUBTYPED_FIELDS].map((extId) => ({ extId }));
    const world = await open(subtyped({ subtypes: ['lab'] }), { sandbox: { schema: { types, fields } } });
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'dead', error_message: expect.stringContaining('as a classroom, not a room') },
      B: { status: 'synced' },
    });
    expect(world.nameOf('A')).toBe('by hand');
  });

  it('is deactivated once it is not booked any more, and keeps its type', async () => {
    const world = await open(subtyped({ retire: 'deactivate' }));
    await world.sync();
    world.book('room_A', 'classroom');
    await world.remove('A');
    await world.sync();
    expect(await world.recordOf('A')).toMatchObject({ error_code: 'still_reserved' });
    expect(world.isActive('room_A')).toBe(true);
    world.sandbox.cancelReservation('res_room_A');
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
    expect([world.isActive('room_A'), typeOf(world, 'A')]).toEqual([false, 'classroom']);
  });

  it('is referred to as an object of the stream, and its bookings are compared', async () => {
    const world = await open({ streams: { rooms: SUBTYPED, courses: COURSES } });
    await world.sql`INSERT INTO courses VALUES ('c', 'Course', 'A')`;
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
    expect(world.fieldsOf('course_c')).toMatchObject({ 'course.room': 'room_A' });
    const { reservations } = checkConfiguration({
      streams: { rooms: SUBTYPED, courses: COURSES },
      reservations: {
        from: 'bookings',
        key: 'id',
        externalId: 'res_{id}',
        begin: 'starts_at',
        end: 'ends_at',
        objects: [{ stream: 'rooms', key: 'room' }],
      },
    });
    expect([...(reservations?.rules.types ?? [])]).toEqual(['room', 'classroom', 'lab']);
  });
});

it('overwriting in a stream with subtypes is found in each of the types, even where the types are read whole', async () => {
  const world = await openWorld(subtyped());
  const all = codes(1500);
  for (const code of all) world.addObject(`room_${code}`, { 'room.name': 'by hand' }, 'classroom');
  await world.addRooms(...all);
  const preview = await world.preview();
  expect(preview).toMatchObject({ holds: { overwrite: { count: 1500 } } });
});

describe('verify of a stream with subtypes', () => {
  // A service may answer objects of subtypes to a find by their parent, too.
  it.each([[true], [false]])(
    'reads each type and each object once; finds answer subtypes: %s',
    async (findsSubtypes) => {
      const world = await open(subtyped(), { sandbox: { findsSubtypes } });
      await world.sync();
      world.addObject('hand', { 'room.name': 'nobody’s' }, 'classroom');
      expect(await world.verify()).toMatchObject({
        drifting: 0,
        extra: 1,
        streams: [{ stream: 'rooms', compared: 2, waiting: 0 }],
      });
      world.edit('room_A', { 'room.name': 'changed' });
      world.sandbox.changeObject('room_B', { active: false });
      await world.passLateWrites();
      await world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 minute'`;
      expect(await world.verify()).toMatchObject({
        drifting: 2,
        streams: [{ compared: 2, changed: 1, inactive: 1 }],
      });
    },
  );

  it('adopts objects of each type', async () => {
    const world = await open(subtyped());
    await world.rename('B', 'x');
    world.addObject('room_B', { 'room.name': 'x' }, 'lab');
    world.addObject('hand', { 'room.name': 'nobody’s' }, 'lab');
    expect((await adopt(world.verifying())).streams).toMatchObject([{ equal: 1, differing: 1, unowned: 1 }]);
  });

  it('counts an object without a record with the first stream of its types', async () => {
    const labs = { ...ROOMS, type: 'lab', subtypes: ['store'], externalId: 'lab_{code}' };
    const world = await openWorld({ streams: { rooms: SUBTYPED, labs } });
    for (const type of ['room', 'lab', 'store']) world.addObject(null, { 'room.name': 'x' }, type);
    const { streams } = await world.verify({ extras: true });
    expect(streams).toMatchObject([{ type: 'room, classroom, lab', extra: 3 }, { stream: 'labs' }]);
  });
});

describe('match of a stream with subtypes', () => {
  const matching = subtyped({ match: ['room.name'] });

  it.each([[true], [false]])(
    'links a row to an object of a subtype in a run; searched by fields: %s',
    async (searchByFields) => {
      const world = await openWorld(
        { ...matching, service: { searchByFields } },
        { sandbox: { searchesFields: searchByFields } },
      );
      world.addObject('hand_7', { 'room.name': 'Room A' }, 'lab');
      await world.addRooms('A');
      expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
      expect(world.sandbox.objects()).toMatchObject([{ extId: 'hand_7', typeId: 'lab' }]);
      expect(await world.recordsOf('rooms')).toMatchObject({ A: { external_id: 'hand_7' } });
    },
  );

  it('compares objects of each type with the rows', async () => {
    const world = await open(matching);
    world.addObject('hand_7', { 'room.name': 'Room B' }, 'lab');
    const [found, ...others] = await matchStreams(world.deps(), {
      names: ['rooms'],
      by: undefined,
      samples: 3,
    });
    expect(others).toEqual([]);
    expect(found).toMatchObject({
      type: 'room, classroom, lab',
      objects: 2,
      streams: [{ rows: 2, counts: { differs: 1, match: 1 } }],
    });
  });
});

describe('groups of streams by types', () => {
  const groups = (types: Record<string, string[]>) =>
    groupByTypes(
      checkConfiguration({
        streams: Object.fromEntries(
          Object.entries(types).map(([name, [type = '', ...subtypes]]) => [
            name,
            { ...ROOMS, externalId: `${name}_{code}`, type, subtypes },
          ]),
        ),
      }).streams,
    ).map(({ types: all, streams }) => [[...all].join(), streams.map(({ name }) => name).join()]);

  it('contain the streams that share a type, directly or through a third stream', () => {
    expect(groups({ a: ['x'], b: ['y'], c: ['x'] })).toEqual([
      ['x', 'a,c'],
      ['y', 'b'],
    ]);
    expect(groups({ a: ['x'], b: ['y'], c: ['z'], d: ['y', 'x'] })).toEqual([
      ['x,y', 'a,b,d'],
      ['z', 'c'],
    ]);
  });
});
