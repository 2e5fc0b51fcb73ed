// The sample university: its configuration fits its tables, its data are the same for the same seed, and its errors are known.
import postgres from 'postgres';
import { expect, it } from 'vitest';
import { universityConfig, universitySchema } from '../../src/demo/sync.config.js';
import { loadUniversity } from '../../src/demo/university.js';
import { createEmptyDatabase, isForMirrorAlone } from '../support/services.js';
import { countProcessorTime } from '../support/wait.js';
import { keepWorlds } from '../support/worlds.js';

const openWorld = keepWorlds();
const NOW = new Date('2025-11-20T12:00:00Z');
const COUNTS = { buildings: 12, rooms: 400, staff: 804, courses: 1202, student_groups: 600, bookings: 600 };
const itHere = it.skipIf(isForMirrorAlone());

itHere(
  'the configuration of the demo reads the sample university, whose six errors a sync meets',
  async () => {
    const world = await openWorld(universityConfig, { sandbox: { schema: universitySchema } });
    const spentMs = countProcessorTime();
    await loadUniversity(world.sql, { seed: 1, now: NOW });
    expect(spentMs()).toBeLessThan(2000);
    for (const [table, count] of Object.entries(COUNTS))
      expect(await world.sql`SELECT FROM campus.${world.sql(table)}`, table).toHaveLength(count);
    const equipped = await world.sql`SELECT FROM campus.rooms WHERE 'hörslinga' = ANY (equipment)`;
    expect(equipped.length).toBeGreaterThan(50);
    for (const stream of world.deps().streams.values())
      expect(await world.mirror.checkStream(stream)).toEqual([]);

    await world.sync();
    const bad = await world.sql`
    SELECT stream || ' ' || local_key AS name FROM slotsync.records WHERE status <> 'synced' ORDER BY 1`;
    expect(bad.map(({ name }) => name as string)).toEqual([
      'courses GEO404',
      'courses MAT888',
      'staff 9001',
      'staff 9002',
      'staff 9003',
      'staff 9004',
    ]);
  },
);

async function inEmptyDatabase<T>(use: (client: postgres.Sql) => Promise<T>): Promise<T> {
  const database = await createEmptyDatabase();
  const client = postgres(database.url, { max: 1, onnotice: () => {} });
  try {
    return await use(client);
  } finally {
    await client.end();
    await database.drop();
  }
}

itHere('the load of the sample university leaves an existing schema alone', () =>
  inEmptyDatabase(async (client) => {
    await client`CREATE SCHEMA campus`;
    await client`CREATE TABLE campus.precious AS SELECT 1 AS one`;
    await expect(loadUniversity(client, { seed: 7 })).rejects.toMatchObject({ code: '42P06' });
    expect(await client`SELECT one FROM campus.precious`).toEqual([{ one: 1 }]);
  }),
);

itHere(
  'the rows of the sample university are the same for the same seed, and differ for another',
  async () => {
    const digests = (seed: number) =>
      inEmptyDatabase(async (client) => {
        await loadUniversity(client, { seed, now: NOW });
        const digest = (table: string) => client`
        SELECT md5(string_agg(t::text, '' ORDER BY t::text)) AS md5 FROM campus.${client(table)} AS t`;
        return Promise.all(
          Object.keys(COUNTS).map(async (table) => (await digest(table))[0]?.['md5'] as string),
        );
      });
    const [first, same, other] = await Promise.all([1, 1, 2].map(digests));
    expect(same).toEqual(first);
    for (const [at, digest] of (other ?? []).entries()) expect(digest).not.toBe(first?.[at]);
  },
);
