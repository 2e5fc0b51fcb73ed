// Rooms, and courses that take place in them: a world for the tests of one stream, or of two with a reference.
import { expect } from 'vitest';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { COURSES, ROOMS as NAMED_ROOMS, type Declaration } from './campus.js';
import { type World, type WorldOptions } from './world.js';
import { keepWorlds } from './worlds.js';

export const ROOMS: Declaration = { ...NAMED_ROOMS, fields: { 'room.name': 'name', 'room.seats': 'seats' } };

export const rooms = (changes: Partial<Declaration> = {}): SlotsyncConfig => ({
  streams: { rooms: { ...ROOMS, ...changes } },
});
export const roomsAndCourses = (changes: Partial<Declaration> = {}): SlotsyncConfig => ({
  streams: { courses: { ...COURSES, ...changes }, rooms: ROOMS },
});

export interface RoomOptions extends WorldOptions {
  /** Rooms of these codes are in the mirror, were synced, and no request of that is counted. By default none. */
  synced?: readonly string[];
}

/** To be called where tests are declared: returns what opens a world with tables of rooms and courses. */
export function keepRoomWorlds(): (config: SlotsyncConfig, options?: RoomOptions) => Promise<World> {
  const openWorld = keepWorlds();
  return async (config, { synced, ...options } = {}) => {
    const world = await openWorld(config, options);
    await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text, seats integer, number text)`;
    await world.sql`CREATE TABLE courses (code text PRIMARY KEY, name text, room text)`;
    if (synced) {
      await addRooms(world, ...synced);
      await world.sync();
      world.sandbox.clearArrivals();
    }
    return world;
  };
}

/** Rooms of these codes, named after them. */
export const addRooms = (world: World, ...codes: string[]) =>
  world.sql`INSERT INTO rooms (code, name) SELECT c, 'Room ' || c FROM unnest(${codes}::text[]) AS c`;
export const codes = (count: number, from = 0) =>
  Array.from({ length: count }, (_, at) => `r${String(from + at).padStart(3, '0')}`);
export const rename = (world: World, code: string, name: string) =>
  world.sql`UPDATE rooms SET name = ${name} WHERE code = ${code}`;
/** The name of a room's object at the service. */
export const nameAtService = (world: World, code: string) => world.fieldsOf(`room_${code}`)?.['room.name'];
export const isActive = (world: World, extId: string) => world.sandbox.object(extId)?.active;

/** Books an object for an hour, from an hour from now on. */
export function bookObject({ sandbox }: World, objectId: string, typeId = 'room'): void {
  const begin = Math.floor(Date.now() / 1000) + 3600;
  const objects = [{ typeId, objectId }];
  sandbox.addReservation({ extId: `res_${objectId}`, begin, end: begin + 3600, objects });
}

/** Every room of the mirror stands at the service as its row says, and the state knows it. */
export async function expectInSync(world: World): Promise<void> {
  const rows = await world.sql<{ code: string; name: string }[]>`SELECT code, name FROM rooms`;
  for (const { code, name } of rows) expect(nameAtService(world, code)).toBe(name);
  const statuses = await world.statusesOf('rooms');
  expect(statuses).toEqual(Object.fromEntries(rows.map(({ code }) => [code, 'synced'])));
}

/** A run sends no write and meets no error. */
export async function expectNothingToSend(world: World): Promise<void> {
  world.sandbox.clearArrivals();
  const { run, errors } = await world.sync();
  expect(errors).toEqual([]);
  expect(world.writes()).toEqual([]);
  expect(run.finishedAt).not.toBeNull();
}
