// Places by a surrogate key, in two tables with one template of the external id, and desks that stand in places: what
// the tests of identity need, in which a code comes back under another key or in another table.
import { expect } from 'vitest';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import type { Declaration } from './campus.js';
import { ownershipFaults, type OwnedRow } from './ownership.js';
import { until } from './wait.js';
import type { World } from './world.js';
import { keepWorlds } from './worlds.js';

export const PLACES: Declaration = {
  from: 'places',
  key: 'id',
  type: 'place',
  externalId: 'y_{code}',
  fields: { 'place.name': 'name' },
  retire: 'deactivate',
};
export const HALLS: Declaration = { ...PLACES, from: 'halls' };
export const DESKS: Declaration = {
  from: 'desks',
  key: 'id',
  type: 'desk',
  externalId: 'desk_{id}',
  fields: { 'desk.name': 'name' },
  references: { 'desk.place': { stream: 'places', key: 'place' } },
};

/** To be called where tests are declared: returns what opens a world with empty tables of places, halls and desks. */
export function keepPlaceWorlds() {
  const openWorld = keepWorlds();
  return async (changes: Partial<Declaration> = {}, more: SlotsyncConfig['streams'] = {}) => {
    const world = await openWorld({ streams: { places: { ...PLACES, ...changes }, ...more } });
    await world.sql`CREATE TABLE places (id int PRIMARY KEY, code text, name text)`;
    await world.sql`CREATE TABLE halls (id int PRIMARY KEY, code text, name text)`;
    await world.sql`CREATE TABLE desks (id int PRIMARY KEY, name text, place int)`;
    return world;
  };
}

export const insert = (world: World, id: number, code: string, name: string, table = 'places') =>
  world.sql`INSERT INTO ${world.sql(table)} VALUES (${id}, ${code}, ${name})`;
/** Inserts these places and syncs them. */
export async function syncPlaces(world: World, ...places: [id: number, code: string, name: string][]) {
  for (const place of places) await insert(world, ...place);
  await world.sync();
}
export const rename = (world: World, id: number, name: string) =>
  world.sql`UPDATE places SET name = ${name} WHERE id = ${id}`;
export const setCode = (world: World, id: number, code: string) =>
  world.sql`UPDATE places SET code = ${code} WHERE id = ${id}`;
/** In one transaction the row of a code gets another key, and maybe another table. */
export const replace = (world: World, code: string, id: number, name: string, table = 'places') =>
  world.sql.begin(async (sql) => {
    await sql`DELETE FROM places WHERE code = ${code}`;
    await sql`INSERT INTO ${sql(table)} VALUES (${id}, ${code}, ${name})`;
  });
/** In one transaction a row leaves its code to a new row. */
export const takeOver = (world: World, from: { id: number; code: string }, id: number, name: string) =>
  world.sql.begin(async (sql) => {
    const [row] = await sql`SELECT code FROM places WHERE id = ${from.id}`;
    await sql`UPDATE places SET code = ${from.code} WHERE id = ${from.id}`;
    await sql`INSERT INTO places VALUES (${id}, ${String(row?.['code'])}, ${name})`;
  });
export const nameOf = (world: World, extId: string) => world.fieldsOf(extId)?.['place.name'];
export const isActive = (world: World, extId: string) => world.sandbox.object(extId)?.active;
export const activeObjects = (world: World) =>
  world.sandbox
    .objects()
    .flatMap(({ extId, active }) => (active ? [extId] : []))
    .toSorted();

/** Place 1 is at the service as 'first', and a run is planned that sends it as 'older'. */
export async function planOlder(world: World): Promise<{ runId: number; queue: number[] }> {
  await insert(world, 1, 'A', 'first');
  await world.sync();
  await rename(world, 1, 'older');
  return world.plan();
}

/** The answer to the first write of a run is lost; the service carries the write out at `releaseLate`. */
export async function loseAnswer(world: World, { queue }: { queue: readonly number[] }): Promise<void> {
  world.sandbox.failNext({ method: 'PUT', path: '/objects', fault: 'late' });
  await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({ code: 'answer_lost' });
}

/**
 * The process that carries out the first write of a run is gone, and so is its claim. Returns what ends it for the test: the run
 * is cancelled, and the write is carried out at `releaseLate`.
 */
export async function dieWhileWriting(world: World, { queue }: { queue: readonly number[] }) {
  world.sandbox.failNext({ method: 'PUT', path: '/objects', fault: 'late', afterMs: 'asked' });
  const stopping = new AbortController();
  const applying = world.apply(queue[0] ?? 0, stopping.signal).catch(() => undefined);
  await until(() => world.sandbox.late(), { describe: 'the write to be under way' });
  const expired = world.sql`claimed_by = 'dead', claimed_until = now() - interval '1 second'`;
  await world.sql`UPDATE slotsync.records SET ${expired} WHERE claimed_by IS NOT NULL`;
  await world.sql`UPDATE slotsync.object_claims SET ${expired}`;
  return async () => {
    stopping.abort();
    world.sandbox.resetLate();
    await applying;
    await cancelRuns(world);
  };
}

/** Every run ends without sending the rest of its batches. */
export async function cancelRuns(world: World): Promise<void> {
  await world.sql`UPDATE slotsync.batches SET state = 'cancelled' WHERE state = 'queued'`;
  await world.sql`UPDATE slotsync.runs SET status = 'cancelled', finished_at = now() WHERE finished_at IS NULL`;
}

/** Changes stop, and the service is healthy: the inbox is emptied, lost writes cannot land any more, and a sync runs, twice. */
export async function comeToRest(world: World): Promise<void> {
  for (let rounds = 0; rounds < 2; rounds++) {
    await world.drainInbox();
    await world.passLateWrites();
    await world.sync();
    await world.drainInbox();
  }
}

/** Each row's object stands as the row says and is that row's record's alone; nothing is left to be sent. */
export async function expectOneOwner(world: World): Promise<void> {
  const rows = await world.sql<(OwnedRow & { name: string })[]>`
    SELECT 'places' AS stream, id::text AS "localKey", 'y_' || code AS "externalId", name FROM places
    UNION ALL SELECT 'halls', id::text, 'y_' || code, name FROM halls ORDER BY 1, 2`;
  expect(await ownershipFaults(world.sql, rows)).toEqual([]);
  for (const { externalId, name } of rows)
    expect([externalId, nameOf(world, externalId), isActive(world, externalId)]).toEqual([
      externalId,
      name,
      true,
    ]);
  world.sandbox.clearArrivals();
  await world.sync();
  expect(world.writes()).toEqual([]);
}
