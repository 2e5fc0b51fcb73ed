// Guarantee 6
// The number of finds of a plan with many creates. The plan decides the same in each way of asking: list by list, by reading
// the whole type, or without finds if the type is empty.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { previewStream } from '../../src/sync/plan/preview.js';
import { keepRooms, ROOMS, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

const addRows = (world: RoomWorld, count: number) => world.addRooms(...codes(count));
const codeOf = (at: number) => `r${String(at).padStart(5, '0')}`;
const codes = (count: number) => Array.from({ length: count }, (_, at) => codeOf(at));
const addObject = ({ sandbox }: RoomWorld, extId: string | null, name: string, more = {}) =>
  sandbox.addObject({ extId, typeId: 'room', ...more, fields: [{ fieldId: 'room.name', values: [name] }] });
/** Adds objects of the type that no row means. */
function addOthers(world: RoomWorld, count: number): void {
  for (let at = 0; at < count; at++) addObject(world, `other_${at}`, `Other ${at}`);
}
const finds = (world: RoomWorld) =>
  world.sandbox.arrivals().filter(({ path }) => path.endsWith('/objects/find'));

describe('the finds of a plan', () => {
  it.each([
    { rows: 1000, there: 0, expected: 1, why: 'one list' },
    { rows: 5000, there: 0, expected: 2, why: 'a list, and a count of none' },
    { rows: 5000, there: 700, expected: 3, why: 'a list, the count, and one page' },
    { rows: 5000, there: 1500, expected: 5, why: 'two lists, the count, and two pages' },
    { rows: 2500, there: 4500, expected: 4, why: 'three lists, and the count' },
    { rows: 5, there: 700, expected: 0, why: 'so few creates are never held' },
  ])(
    'are $expected for $rows rows and $there objects at the service: $why',
    async ({ rows: count, there, expected }) => {
      const world = await open(rooms({ owns: 'object', batchSize: 1000 }));
      await addRows(world, count);
      addOthers(world, there);
      world.sandbox.clearArrivals();
      const preview = await world.preview();
      expect(preview).toMatchObject({ counts: { create: count }, unread: undefined });
      world.sandbox.clearArrivals();
      const { run } = await world.sync();
      expect(run.counts['rooms']).toMatchObject({ synced: count });
      // Each batch looks for its creates once more before it writes them.
      const looks = Math.ceil(count / 1000);
      expect(finds(world)).toHaveLength(expected + looks);
      // The preview has the same numbers as the run.
      expect(preview.requests).toBe(expected + looks + world.writes().length);
    },
  );

  it('go list by list to a service that does not count, or refuses to count', async () => {
    const world = await open(rooms());
    await addRows(world, 2500);
    const counting = { path: '/objects/find', fault: 'status' } as const;
    for (const fault of [
      { status: 400 },
      { status: 500 },
      { status: 200, body: { results: [], page: 1 } },
      { status: 200, body: { results: [], page: 1, totalPages: 1, totalResults: 1 } },
    ]) {
      const destination = countingWith(world, () => world.sandbox.failNext({ ...counting, ...fault }));
      const deps = { ...world.deps(), destination };
      const { counts, unread } = await previewStream(deps, world.stream('rooms'));
      expect([counts.create, unread]).toEqual([2500, undefined]);
    }
  });

  it('go on after a count of 0 where objects of the type were found', async () => {
    const world = await open(rooms());
    await addRows(world, 2500);
    for (const code of codes(2500)) addObject(world, `room_${code}`, 'By hand');
    const none = { path: '/objects/find', fault: 'status', status: 200 } as const;
    const body = { results: [], page: 1, totalPages: 0, totalResults: 0 };
    const destination = countingWith(world, () => world.sandbox.failNext({ ...none, body }));
    const { counts } = await previewStream({ ...world.deps(), destination }, world.stream('rooms'));
    expect(counts).toMatchObject({ create: 2500, overwrite: 2500 });
  });

  it('go on after a reading that leaves out an object found by its external id', async () => {
    const world = await open(rooms());
    await addRows(world, 2500);
    addObject(world, `room_${codeOf(0)}`, 'By hand', { active: false });
    for (const at of [2000, 2001]) addObject(world, `room_${codeOf(at)}`, 'By hand', { active: at === 2000 });
    const { destination } = world;
    const listObjects: typeof destination.listObjects = (type, context) =>
      destination.listObjects(type, context, ({ active }) => active);
    const deps = { ...world.deps(), destination: { ...destination, listObjects } };
    const { counts } = await previewStream(deps, world.stream('rooms'));
    expect(counts).toMatchObject({ create: 2500, overwrite: 3 });
  });
});

describe('the preview of a first plan', () => {
  async function previewOf(world: RoomWorld, options = {}) {
    world.sandbox.clearArrivals();
    const { unowned } = await previewStream(world.deps(), world.stream('rooms'), options);
    return { unowned, finds: finds(world).length };
  }

  it('counts the objects that no row means, instead of reading its examples a second time', async () => {
    const world = await open(rooms());
    await addRows(world, 12);
    expect(await previewOf(world)).toEqual({ unowned: 0, finds: 2 });
    addOthers(world, 7);
    for (const at of [0, 1])
      addObject(world, `room_${codeOf(at)}`, at === 0 ? 'By hand' : `Room ${codeOf(at)}`);
    expect(await previewOf(world)).toEqual({ unowned: 7, finds: 2 });
    expect(await previewOf(world, { room: { records: 5 } })).toEqual({ unowned: 0, finds: 1 });
  });

  it('uses the count of a plan that has counted the objects', async () => {
    const world = await open(rooms());
    await addRows(world, 2500);
    addOthers(world, 700);
    expect(await previewOf(world)).toEqual({ unowned: 700, finds: 3 });
  });

  it('counts nothing where records have objects of the type, or the service does not count', async () => {
    const world = await open(rooms());
    await addRows(world, 12);
    addOthers(world, 7);
    const counting = { path: '/objects/find', fault: 'status', status: 500 } as const;
    const destination = countingWith(world, () => world.sandbox.failNext(counting));
    expect((await previewStream({ ...world.deps(), destination }, world.stream('rooms'))).unowned).toBe(0);
    await world.sync();
    await world.sql`INSERT INTO rooms (code, name) VALUES ('new', 'New')`;
    expect((await previewOf(world)).unowned).toBe(0);
  });
});

/** Returns the world's service, which runs `before` right before it counts objects. */
function countingWith({ destination }: RoomWorld, before: () => void): RoomWorld['destination'] {
  return {
    ...destination,
    countObjects(...asked) {
      before();
      return destination.countObjects(...asked);
    },
  };
}

/** The kinds of objects that the row of a create may have at the service. */
const KINDS = [
  'nothing',
  'equal',
  'different',
  'inactive',
  'another type',
  'same name',
  'same name twice',
  'same name and another type',
  'linked by number',
] as const;
type Kind = (typeof KINDS)[number];

function addKind(world: RoomWorld, code: string, kind: Kind): void {
  const [extId, name] = [`room_${code}`, `Room ${code}`];
  if (kind === 'equal') addObject(world, extId, name);
  if (kind === 'different') addObject(world, extId, 'By hand');
  if (kind === 'inactive') addObject(world, extId, name, { active: false });
  if (kind.includes('another type')) addObject(world, extId, name, { typeId: 'lab' });
  if (kind.includes('same name')) addObject(world, `hand_${code}`, name);
  if (kind === 'same name twice') addObject(world, null, name);
}

it.each([{ match: ['room.name'] }, {}])(
  'a plan with %o decides the same however it asks about its creates',
  async (matching) => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.integer({ min: 0, max: 2499 }), fc.constantFrom(...KINDS)), { maxLength: 200 }),
        fc.constantFrom(0, 600, 1500, 3000),
        async (drawn, others) => {
          const world = await open(rooms({ ...ROOMS, ...matching }));
          await addRows(world, 2500);
          addOthers(world, others);
          const kinds = new Map(drawn);
          for (const [row, kind] of kinds) {
            const code = codeOf(row);
            addKind(world, code, kind);
            if (kind !== 'linked by number') continue;
            const { id } = addObject(world, null, 'By hand');
            await world.sql`
            INSERT INTO slotsync.links (stream, local_key, external_id, destination_id, assigns_id, linked_by)
            VALUES ('rooms', ${code}, ${`room_${code}`}, ${id}, true, 'match')`;
          }
          const lists = { ...world.destination, countObjects: async () => undefined };
          const ask = (destination: RoomWorld['destination']) =>
            previewStream({ ...world.deps(), destination }, world.stream('rooms'));
          const [byLists, byCheapest] = [await ask(lists), await ask(world.destination)];
          // `lists` counts no objects, and so knows none that no row means.
          expect({ ...byCheapest, requests: 0, unowned: 0 }).toEqual({ ...byLists, requests: 0 });
        },
      ),
      { numRuns: 6, examples: [[KINDS.map((kind, at) => [1200 + at, kind]), 0]], seed: 7 },
    );
  },
);
