// The time for which runs and batches are kept.
import { expect, it } from 'vitest';
import { pruneRuns } from '../../src/state/retention.js';
import { keepRoomWorlds, rooms } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();

/** Adds a run that ended `days` ago, with a batch in each of these states. */
async function addRun({ sql }: World, kind: string, days: number, ...states: string[]): Promise<void> {
  await sql`
    WITH run AS (
      INSERT INTO slotsync.runs (kind, lane, started_by, streams, status, finished_at)
      VALUES (${kind}, 'sync', 'command', ${['rooms']}, 'succeeded', now() - make_interval(days => ${days}))
      RETURNING id)
    INSERT INTO slotsync.batches (run_id, stream, level, keys, state)
    SELECT id, 'rooms', 0, '{A}', state FROM run, unnest(${states}::text[]) AS state`;
}

it('runs are kept for a year, incremental runs and all batches for two weeks', async () => {
  const world = await open(rooms());
  const { sql } = world;
  for (const kind of ['sync', 'incremental'])
    for (const days of [13, 15, 366]) await addRun(world, kind, days, 'done', 'failed');
  const claims = [
    { external_id: 'old', claimed_by: 'x', claimed_until: new Date(Date.now() - 25 * 60 * 60 * 1000) },
    { external_id: 'young', claimed_by: 'x', claimed_until: new Date() },
  ];
  await sql`INSERT INTO slotsync.object_claims ${sql(claims)}`;
  await pruneRuns(world.state.db);
  const kept = await sql<{ kind: string; days: number; states: string[] }[]>`
    SELECT kind, extract(day FROM now() - r.finished_at)::int AS days, array_remove(array_agg(state ORDER BY state), NULL) AS states
    FROM slotsync.runs AS r LEFT JOIN slotsync.batches AS b ON b.run_id = r.id GROUP BY r.id ORDER BY r.id`;
  expect(kept).toEqual([
    { kind: 'sync', days: 13, states: ['done', 'failed'] },
    { kind: 'sync', days: 15, states: [] },
    { kind: 'incremental', days: 13, states: ['done', 'failed'] },
  ]);
  expect(await sql`SELECT external_id FROM slotsync.object_claims`).toEqual([{ external_id: 'young' }]);
});

it('incremental runs that succeeded are deleted after four days when they are very many', async () => {
  const world = await open(rooms());
  const { sql } = world;
  const add = async (days: number) => {
    await addRun(world, 'incremental', days, 'done');
    return Number((await sql`SELECT max(id) AS id FROM slotsync.runs`)[0]?.['id']);
  };
  const plain = await add(5);
  const [young, failed, held] = [await add(3), await add(5), await add(5)];
  await sql`UPDATE slotsync.runs SET status = 'partial' WHERE id = ${failed}`;
  await sql`UPDATE slotsync.runs SET status = 'held' WHERE id = ${held}`;
  await pruneRuns(world.state.db);
  const kept = async () =>
    (await sql`SELECT id::int FROM slotsync.runs ORDER BY id`).map(({ id }) => id as number);
  expect(await kept()).toContain(plain);

  await sql`SELECT setval(pg_get_serial_sequence('slotsync.runs', 'id'), ${plain + 10_000})`;
  const latest = await add(3);
  await pruneRuns(world.state.db);
  expect(await kept()).toEqual([young, failed, held, latest]);
});

it('a plan goes on when old runs cannot be deleted', async () => {
  const world = await open(rooms());
  await world.sql.unsafe(`
    CREATE FUNCTION slotsync.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
    CREATE TRIGGER refuse BEFORE DELETE ON slotsync.freezes FOR EACH STATEMENT EXECUTE FUNCTION slotsync.refuse()`);
  expect((await world.sync()).run.status).toBe('succeeded');
});
