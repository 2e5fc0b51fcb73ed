import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { universityConfig, universitySchema } from '../../src/demo/sync.config.js';
import { loadUniversity } from '../../src/demo/university.js';
import { createMirror } from '../../src/mirror/mirror.js';
import { mapRow } from '../../src/streams/map-row.js';
import { createEmptyDatabase, type TestDatabase, isForMirrorAlone } from '../support/services.js';
import { countProcessorTime } from '../support/wait.js';

type Rows = Record<string, Record<string, unknown>[]>;

const NOW = new Date('2025-11-20T12:00:00Z');
const TABLES = ['buildings', 'rooms', 'staff', 'courses', 'student_groups', 'bookings'];
const { streams } = checkConfiguration(universityConfig);
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

test.skipIf(isForMirrorAlone())('the configuration of the demo reads the sample university', async () => {
  const spentMs = countProcessorTime();
  await loadUniversity(sql, { seed: 7 });
  expect(spentMs()).toBeLessThan(2000);
  const [counts] = await sql`
    SELECT (SELECT count(*)::int FROM campus.buildings) AS buildings, (SELECT count(*)::int FROM campus.rooms) AS rooms,
           (SELECT count(*)::int FROM campus.staff) AS staff, (SELECT count(*)::int FROM campus.courses) AS courses,
           (SELECT count(*)::int FROM campus.student_groups) AS groups,
           (SELECT count(*)::int FROM campus.bookings) AS bookings`;
  expect(counts).toEqual({
    buildings: 12,
    rooms: 400,
    staff: 804,
    courses: 1202,
    groups: 600,
    bookings: 600,
  });
  const [equipment] =
    await sql`SELECT count(*)::int AS rooms FROM campus.rooms WHERE 'hörslinga' = ANY (equipment)`;
  expect(equipment?.['rooms']).toBeGreaterThan(50);

  const mirror = createMirror({ url: database.url });
  for (const stream of streams) expect(await mirror.checkStream(stream)).toEqual([]);
  const staff = streams.filter(({ name }) => name === 'staff');
  const shared = await Promise.all(staff.map((stream) => mirror.findSharedExternalIds(stream)));
  await mirror.close();
  expect(shared).toEqual([[{ externalId: 'person_S9003', count: 2, keys: ['9003', '9004'] }]]);
});

test.skipIf(isForMirrorAlone())(
  'the load of the sample university leaves an existing schema alone',
  async () => {
    await inEmptyDatabase(async (client) => {
      await client`CREATE SCHEMA campus`;
      await client`CREATE TABLE campus.precious AS SELECT 1 AS one`;
      await expect(loadUniversity(client, { seed: 7 })).rejects.toMatchObject({ code: '42P06' });
      expect(await client`SELECT one FROM campus.precious`).toEqual([{ one: 1 }]);
    });
  },
);

describe.skipIf(isForMirrorAlone())('the rows of the sample university', () => {
  let rows: Rows;

  beforeAll(async () => {
    await inEmptyDatabase(async (client) => {
      await loadUniversity(client, { seed: 1, now: NOW });
      rows = await readRows(client);
    });
  });

  test('are the same for the same seed, and differ for another seed', async () => {
    const [same, other] = await Promise.all([1, 2].map(loadRows));
    expect(same).toEqual(rows);
    for (const table of TABLES) expect(other?.[table]).not.toEqual(rows[table]);
  });

  test('are bad where one of the six errors was put, and nowhere else', () => {
    expect(findBadRows(rows)).toEqual(
      new Set(['courses GEO404', 'courses MAT888', 'staff 9001', 'staff 9002', 'staff 9003', 'staff 9004']),
    );
  });
});

async function inEmptyDatabase(use: (client: postgres.Sql) => Promise<void>): Promise<void> {
  const other = await createEmptyDatabase();
  const client = postgres(other.url, { max: 1, onnotice: () => {} });
  try {
    await use(client);
  } finally {
    await client.end();
    await other.drop();
  }
}

async function loadRows(seed: number): Promise<Rows> {
  let rows: Rows = {};
  await inEmptyDatabase(async (client) => {
    await loadUniversity(client, { seed, now: NOW });
    rows = await readRows(client);
  });
  return rows;
}

async function readRows(client: postgres.Sql): Promise<Rows> {
  const rows: Rows = {};
  for (const table of TABLES) {
    const read = await client`SELECT to_jsonb(t) AS row FROM campus.${client(table)} t`;
    rows[table] = read.map(({ row }) => row as Record<string, unknown>);
  }
  return rows;
}

/** Finds bad rows as mapping and service do: a mapping that throws, a missing reference, a refused field, a shared id. */
function findBadRows(rows: Rows): Set<string> {
  const localKeys = new Set<string>();
  const bad = new Set<string>();
  for (const stream of streams) {
    const holders = new Map<string, string[]>();
    const current = (rows[stream.name] ?? []).filter((row) => (row['left_on'] ?? null) === null);
    for (const row of current) {
      const name = `${stream.name} ${stream.key.map((column) => String(row[column])).join('|')}`;
      localKeys.add(name);
      try {
        const { extId, values, references } = mapRow(stream, row);
        holders.set(extId, [...(holders.get(extId) ?? []), name]);
        const isRefused = universitySchema.fields
          .filter(({ type }) => type === stream.type)
          .some(({ extId: field, mandatory = false, maxLength = Infinity }) => {
            const sent = values.get(field ?? '') ?? [];
            return (mandatory && sent.length === 0) || sent.some((value) => value.length > maxLength);
          });
        const isWaiting = references.some(
          (reference) => !localKeys.has(`${reference.stream} ${reference.localKey}`),
        );
        if (isRefused || isWaiting) bad.add(name);
      } catch {
        bad.add(name);
      }
    }
    for (const names of holders.values()) if (names.length > 1) for (const name of names) bad.add(name);
  }
  return bad;
}
