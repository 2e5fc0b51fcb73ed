import postgres from 'postgres';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { checkConfiguration } from '../../src/config-file.js';
import { universityConfig } from '../../src/demo/sync.config.js';
import { changeUniversity, loadUniversity } from '../../src/demo/university.js';
import { createMirror } from '../../src/mirror/mirror.js';
import { createEmptyDatabase, type TestDatabase } from '../support/services.js';
import { countProcessorTime } from '../support/wait.js';

let database: TestDatabase;
let sql: postgres.Sql;

beforeAll(async () => {
  database = await createEmptyDatabase();
  sql = postgres(database.url, { max: 1, onnotice: () => {} });
});

afterAll(async () => {
  await sql.end();
  await database.drop();
});

test('loads a university that the demo configuration can read, and changes it', async () => {
  const spentMs = countProcessorTime();
  const { counts } = await loadUniversity(sql, { seed: 7 });
  expect(spentMs()).toBeLessThan(2000);
  expect(counts).toEqual({
    buildings: 12,
    rooms: 400,
    staff: 804,
    courses: 1202,
    student_groups: 600,
    bookings: 600,
  });
  const [equipment] =
    await sql`SELECT count(*)::int AS rooms FROM campus.rooms WHERE 'hörslinga' = ANY (equipment)`;
  expect(equipment?.['rooms']).toBeGreaterThan(50);

  const { streams } = checkConfiguration(universityConfig);
  const mirror = createMirror({ url: database.url });
  for (const stream of streams) expect(await mirror.checkStream(stream)).toEqual([]);
  const staff = streams.filter(({ name }) => name === 'staff');
  const shared = await Promise.all(staff.map((stream) => mirror.findSharedExternalIds(stream)));
  await mirror.close();
  expect(shared).toEqual([[{ externalId: 'person_S9003', keys: ['9003', '9004'] }]]);

  const changes = await changeUniversity(sql);
  expect(changes.map(({ stream, operation, count }) => `${count} ${stream} ${operation}`)).toEqual([
    '5 rooms update',
    '3 staff update',
    '2 courses update',
    '1 rooms create',
    '1 courses create',
    '1 staff create',
    '1 courses create',
    '1 staff retire',
  ]);
});

test('never touches a schema that is already there', async () => {
  const other = await createEmptyDatabase();
  const client = postgres(other.url, { max: 1 });
  await client`CREATE SCHEMA campus`;
  await client`CREATE TABLE campus.precious AS SELECT 1 AS one`;
  await expect(loadUniversity(client, { seed: 7 })).rejects.toMatchObject({ code: '42P06' });
  expect(await client`SELECT one FROM campus.precious`).toEqual([{ one: 1 }]);
  await client.end();
  await other.drop();
});
