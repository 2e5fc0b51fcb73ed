// docs/mirror.md, "From files": the printed load, run with psql.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isOnPath } from '../support/programs.js';
import { createEmptyDatabase, type TestDatabase } from '../support/services.js';

const page = readFileSync(new URL('../../docs/mirror.md', import.meta.url), 'utf8');
const blocks = [...page.matchAll(/```sql\n([^]*?)```/g)].map(([, sql = '']) => sql);
const [table = '', load = ''] = blocks;

const ROWS = Array.from({ length: 20 }, (_, at) => `R${at},Room ${at},${at * 10},North`);

describe.skipIf(!(await isOnPath('psql')))('the load of a file in docs/mirror.md', () => {
  let folder: string;
  let database: TestDatabase;
  let sql: postgres.Sql;
  beforeAll(async () => {
    folder = mkdtempSync(path.join(tmpdir(), 'slotsync-load-'));
    database = await createEmptyDatabase();
    sql = postgres(database.url, { max: 1, onnotice: () => undefined });
    await sql.unsafe(table);
    writeFileSync(path.join(folder, 'load-rooms.sql'), load);
  });
  afterAll(async () => {
    await sql.end();
    await database.drop();
    rmSync(folder, { recursive: true });
  });

  /** Runs the documented command over a file with these rows. */
  function loadRows(rows: string[]) {
    writeFileSync(path.join(folder, 'rooms.csv'), ['room_code,name,seats,building', ...rows, ''].join('\n'));
    const [, options = ''] = /^psql -d campus (.+load-rooms\.sql) &&/m.exec(page) ?? [];
    const { status, stderr } = spawnSync('psql', [database.url, ...options.split(' ')], {
      cwd: folder,
      encoding: 'utf8',
    });
    return { status, stderr };
  }
  const read = () => sql<{ room_code: string; xmin: string }[]>`
    SELECT room_code, name, seats, building, updated_at::text, xmin::text FROM campus.rooms ORDER BY room_code`;

  it('writes only the rows that differ', async () => {
    expect(loadRows(ROWS)).toEqual({ status: 0, stderr: '' });
    const before = await read();
    expect(before).toHaveLength(20);
    const next = ['R0,Assembly hall,0,North', ...ROWS.slice(2), 'R20,New,,""'];
    expect(loadRows(next).status).toBe(0);
    const after = await read();
    const kept = after.filter(({ room_code }) => room_code !== 'R0' && room_code !== 'R20');
    expect(kept).toEqual(before.filter(({ room_code }) => room_code !== 'R0' && room_code !== 'R1'));
    expect(after).toContainEqual(expect.objectContaining({ room_code: 'R0', name: 'Assembly hall' }));
    expect(after).toContainEqual(expect.objectContaining({ room_code: 'R20', seats: null, building: '' }));
  });

  it.each([
    ['a file that was cut off', ROWS.slice(0, 10), 'less than 90 %'],
    ['a key twice', [...ROWS, ROWS[0] ?? ''], 'a second time'],
    ['a value of another type', [...ROWS.slice(1), 'R0,Room,many,North'], 'invalid input syntax'],
  ])('refuses %s, and changes nothing', async (_, rows, message) => {
    const before = await read();
    const { status, stderr } = loadRows(rows);
    expect([status, stderr]).toEqual([3, expect.stringContaining(message)]);
    expect(await read()).toEqual(before);
  });
});
