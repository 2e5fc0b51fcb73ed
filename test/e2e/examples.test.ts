// Each configuration of examples/ as its README describes it: its tables in an empty database, the sandbox, and the commands.
import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadConfiguration } from '../../src/config/config-file.js';
import type { SandboxObjectInput } from '../../src/sandbox/object-store.js';
import { startSandbox, type Sandbox } from '../../src/sandbox/sandbox.js';
import type { SandboxSchema } from '../../src/sandbox/schema.js';
import { run, type Env, type Finished } from '../support/program.js';
import { createDatabase, isForMirrorAlone, type TestDatabase } from '../support/services.js';
import { schemaOf } from '../support/world.js';

const EXAMPLES = fileURLToPath(new URL('../../examples/', import.meta.url));
const README = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');

interface Expected {
  /** Records by stream. */
  records: Record<string, number>;
  /** Bookings that are compared, and how many of them are cancelled. */
  bookings: number;
  cancelled: number;
  /** Object at the service before the first sync. It belongs to a row, and must not be created a second time. */
  madeByHand?: SandboxObjectInput;
  /** Statement that removes a row without bookings from a stream with `retire: 'deactivate'`. `inactive` names its object. */
  remove: string;
  inactive: string;
}

const EXPECTED: Record<string, Expected> = {
  university: {
    records: { courses: 6, offerings: 7, rooms: 8, teachers: 5 },
    bookings: 24,
    cancelled: 1,
    madeByHand: {
      extId: 'typed-17',
      typeId: 'room',
      fields: [
        { fieldId: 'room.name', values: ['Great Hall'] },
        { fieldId: 'room.building', values: ['Old Building'] },
      ],
    },
    remove: `DELETE FROM campus.rooms WHERE room_code = 'C111'`,
    inactive: 'room_C111',
  },
  'hospital-rooms': {
    records: { equipment: 5, rooms: 10, staff: 6, wards: 4 },
    bookings: 22,
    cancelled: 3,
    remove: `UPDATE hospital.staff SET is_employed = false WHERE employee_no = 'E-0106'`,
    inactive: 'staff_E-0106',
  },
  mrbs: {
    records: { areas: 2, rooms: 4 },
    bookings: 17,
    cancelled: 0,
    remove: `UPDATE mrbs_room SET disabled = 1 WHERE room_name = 'Workshop'`,
    inactive: 'mrbs_room_4',
  },
};

let database: TestDatabase;
let sql: postgres.Sql;
let sandbox: Sandbox;
beforeEach(async () => {
  database = await createDatabase();
  sql = postgres(database.url, { max: 1, onnotice: () => undefined });
  sandbox = await startSandbox({ rate: 0 });
});
afterEach(async () => {
  await sandbox.close();
  await sql.end({ timeout: 1 });
  await database.drop();
});

const settingsOf = (): Env => ({
  MIRROR_DATABASE_URL: database.url,
  API_BASE_URL: sandbox.url,
  API_ORGANIZATION_ID: 'demo',
  API_KEY: 'sandbox-key',
});

/** A booking of the mirror as the state stores it. `objects` are external ids. */
interface Missing {
  extId: string;
  begin: number;
  end: number;
  here: { objects: string[]; fields: { fieldId: string; values: string[] }[] };
}

/** Adds a reservation for each booking that the state misses at the service. */
async function reserveMissing(): Promise<void> {
  const typeOf = new Map(sandbox.objects().map(({ extId, typeId }) => [extId, typeId]));
  const missing = await sql<Missing[]>`
    SELECT external_id AS "extId", extract(epoch FROM begin_here)::int AS begin,
      extract(epoch FROM end_here)::int AS end, here
    FROM slotsync.reservations WHERE verdict = 'missing_there'`;
  for (const { here, ...reservation } of missing) {
    const objects = here.objects.map((objectId) => ({ typeId: typeOf.get(objectId) ?? '', objectId }));
    sandbox.addReservation({ ...reservation, objects, fields: here.fields });
  }
}

it('each example has expectations in this test', () => {
  const folders = readdirSync(EXAMPLES, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const configured = folders.filter(({ name }) =>
    readdirSync(`${EXAMPLES}${name}`).includes('sync.config.ts'),
  );
  expect(configured.map(({ name }) => name).toSorted()).toEqual(Object.keys(EXPECTED).toSorted());
});

describe.skipIf(isForMirrorAlone()).each(Object.entries(EXPECTED))('the example %s', (name, expected) => {
  it('is loaded, checked, planned, synced and reconciled, and a second sync sends nothing', async () => {
    await sql.unsafe(readFileSync(`${EXAMPLES}${name}/schema.sql`, 'utf8'));
    const file = `${EXAMPLES}${name}/sync.config.ts`;
    sandbox.defineSchema(schemaOf((await loadConfiguration(file)).streams));
    if (expected.madeByHand) sandbox.putObject(expected.madeByHand);
    const env: Env = { ...settingsOf(), SLOTSYNC_CONFIG: file };
    const succeed = async (...args: string[]): Promise<Finished> => {
      const finished = await run(args, env);
      expect(finished, args.join(' ')).toMatchObject({ code: 0, stderr: '' });
      return finished;
    };

    const { stdout } = await succeed('check', '--rows');
    expect(stdout).not.toContain('✗');
    const plan = JSON.parse((await succeed('plan', '--json')).stdout) as {
      streams: { counts: { create: number } }[];
    };
    const planned = Object.values(expected.records).reduce((sum, count) => sum + count, 0);
    expect(plan.streams.reduce((sum, { counts }) => sum + counts.create, 0)).toBe(planned);

    await succeed('sync');
    const records = await sql`
      SELECT stream, count(*)::int AS count FROM slotsync.records WHERE status = 'synced' GROUP BY stream`;
    expect(Object.fromEntries(records.map(({ stream, count }) => [stream, count]))).toEqual(expected.records);
    expect(sandbox.objects()).toHaveLength(planned);
    sandbox.clearArrivals();
    await succeed('sync');
    expect(sandbox.arrivals().filter(({ method }) => method === 'PUT')).toEqual([]);

    await succeed('reconcile');
    await reserveMissing();
    await succeed('reconcile', '--strict');
    const verdicts = await sql`
      SELECT verdict, count(*)::int AS count FROM slotsync.reservations WHERE problem IS NULL GROUP BY verdict`;
    expect(Object.fromEntries(verdicts.map(({ verdict, count }) => [verdict, count]))).toEqual({
      agrees: expected.bookings - expected.cancelled,
      ...(expected.cancelled > 0 ? { agrees_cancelled: expected.cancelled } : {}),
    });

    await sql.unsafe(expected.remove);
    await succeed('sync');
    const inactive = sandbox.objects().filter(({ active }) => !active);
    expect(inactive.map(({ extId }) => extId)).toEqual([expected.inactive]);
  });
});

/** Returns the code blocks of the section "Five minutes" of the README, without their indentation. */
const blocksOf = (language: string) =>
  [
    ...(README.split('\n## Five minutes')[1]?.split('\n## ')[0] ?? '').matchAll(
      /^ {3}```(\w+)\n([^]*?)^ {3}```$/gm,
    ),
  ]
    .filter(([, found]) => found === language)
    .map(([, , text = '']) => text.replaceAll(/^ {3}/gm, '').trim());

it.skipIf(isForMirrorAlone())(
  'the section "Five minutes" of the README shows the real output of its commands',
  async () => {
    await sql.unsafe(readFileSync(`${EXAMPLES}university/schema.sql`, 'utf8'));
    const [, definition = '{}'] = /-d '([^']+)'/.exec(README) ?? [];
    sandbox.defineSchema(JSON.parse(definition) as SandboxSchema);
    const folder = await mkdtemp(path.join(tmpdir(), 'slotsync-readme-'));
    try {
      const env: Env = { ...settingsOf(), SLOTSYNC_CONFIG: undefined };
      const [printed = '', synced = ''] = blocksOf('text');
      const { stdout } = await run(['init', '--yes'], env, folder);
      expect(stdout.trim()).toBe(printed);
      const written = readFileSync(path.join(folder, 'sync.config.ts'), 'utf8');
      // A table that was analysed has its number of rows there.
      const [stream = ''] = blocksOf('ts');
      expect(trimLines(written.replaceAll(/, about \d+ rows$/gm, ''))).toContain(trimLines(stream));
      const sync = await run(['sync'], env, folder);
      const timeless = (text: string) => text.replace(/in .*? UTC/, '').trim();
      expect(timeless(sync.stdout)).toBe(timeless(synced));
    } finally {
      await rm(folder, { recursive: true });
    }
  },
);

const trimLines = (text: string) => text.replaceAll(/^ +/gm, '').trim();
