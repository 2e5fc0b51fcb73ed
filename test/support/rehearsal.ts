// A whole installation to run the program against: a mirror with a few tables, a sandbox, a configuration
// file in a folder of its own, and the settings that name them.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import postgres from 'postgres';
import { onTestFinished } from 'vitest';
import { startSandbox, type SandboxOptions } from '../../src/sandbox/sandbox.js';
import { run, start, type Env, type Finished, type Running } from './program.js';
import { createDatabase, createEmptyDatabase } from './services.js';
import { until } from './wait.js';

export const CONFIGURATION = `
import { defineConfig } from 'slotsync';
export default defineConfig({
  streams: {
    courses: {
      from: 'courses', key: 'id', type: 'course', externalId: 'course_{id}', batchSize: 20,
      fields: { 'course.name': 'name' },
      references: { 'course.room': { stream: 'rooms', key: 'room' } },
    },
    rooms: {
      from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}', batchSize: 20, owns: 'object',
      fields: { 'room.name': 'name', 'room.seats': (row) => row.seats },
      retire: 'deactivate',
    },
  },
});
`;

export const SCHEMA = {
  types: [{ extId: 'room' }, { extId: 'course' }],
  fields: [
    { extId: 'room.name', maxLength: 40 },
    { extId: 'room.seats' },
    { extId: 'course.name' },
    { extId: 'course.room', reference: 'room' },
  ],
};

export type Rehearsal = Awaited<ReturnType<typeof rehearse>>;

/** `rows` rooms and as many courses. `migrated: false`: the state tables are not there yet. */
export async function rehearse(
  options: {
    redisUrl?: string | undefined;
    rows?: number;
    migrated?: boolean;
    sandbox?: SandboxOptions;
  } = {},
) {
  const { rows = 60, migrated = true } = options;
  const database = migrated ? await createDatabase() : await createEmptyDatabase();
  const sql = postgres(database.url, { max: 2, onnotice: () => undefined });
  await sql.unsafe(`
    CREATE TABLE rooms (code text PRIMARY KEY, name text, seats int);
    CREATE TABLE courses (id int PRIMARY KEY, name text, room text);
    INSERT INTO rooms SELECT 'R' || i, 'Sal ' || i, i FROM generate_series(1, ${rows}) AS i;
    INSERT INTO courses SELECT i, 'Kurs ' || i, 'R' || i FROM generate_series(1, ${rows}) AS i;`);
  const sandbox = await startSandbox({ schema: SCHEMA, rate: 20, ...options.sandbox });
  const folder = await mkdtemp(path.join(tmpdir(), 'slotsync-rehearsal-'));
  await writeFile(path.join(folder, 'sync.config.ts'), CONFIGURATION);
  const env: Env = {
    MIRROR_DATABASE_URL: database.url,
    REDIS_URL: options.redisUrl,
    API_BASE_URL: sandbox.url,
    API_ORGANIZATION_ID: 'demo',
    API_KEY: 'sandbox-key',
  };
  const started: Running[] = [];
  const begin = (args: readonly string[], changes: Env = {}, input?: string): Running => {
    const running = start(args, { ...env, ...changes }, folder, input);
    started.push(running);
    return running;
  };
  return {
    url: database.url,
    sql,
    sandbox,
    folder,
    env,
    /** Carries a command out in this process, in the folder of the configuration. */
    run: (args: readonly string[], changes: Env = {}): Promise<Finished> =>
      run(args, { ...env, ...changes }, folder),
    /** Starts a command as a process; what still runs at `close` is killed. */
    start: begin,
    /** Starts a worker that works as soon as this resolves. */
    async startWorker(options: readonly string[] = [], changes: Env = {}): Promise<Running> {
      const worker = begin(['worker', ...options], changes);
      await until(() => worker.output().includes('worker started'), {
        describe: () => `a worker to start: ${worker.output()}`,
      });
      return worker;
    },
    /** Resolves when the process has heard the signal that stops it. */
    untilStopping: (running: Running) =>
      until(() => running.output().includes('finishing the work in flight'), {
        describe: () => `the signal to be heard: ${running.output()}`,
      }),
    configure: (text: string) => writeFile(path.join(folder, 'sync.config.ts'), text),
    puts: () => sandbox.arrivals().filter(({ method }) => method === 'PUT'),
    /** Holds the service's writes, after so many, until `sandbox.openGate()`. */
    holdWrites: (after = 0) => sandbox.closeGate({ method: 'PUT', path: '/objects', after }),
    /** Resolves when the service holds so many requests. */
    untilHeld: (count = 1) =>
      until(() => sandbox.gate().held >= count, {
        describe: () => `${count} requests at the gate: ${started.map(({ output }) => output()).join('\n')}`,
      }),
    /** As if a minute had passed since the last claim of a process that was killed. */
    expireClaims: () =>
      sql`UPDATE slotsync.records SET claimed_until = now() WHERE claimed_until IS NOT NULL`,
    /** Records that a batch is writing, and records that may differ from what the service holds. */
    async claims(): Promise<{ claimed: number; inDoubt: number }> {
      const [row] = await sql<{ claimed: number; inDoubt: number }[]>`
        SELECT count(*) FILTER (WHERE claimed_by IS NOT NULL)::int AS claimed,
          count(*) FILTER (WHERE in_doubt)::int AS "inDoubt" FROM slotsync.records`;
      if (!row) throw new Error('an aggregate has one row');
      return row;
    },
    async close() {
      for (const { child } of started) child.kill('SIGKILL');
      await Promise.all(started.map(({ finished }) => finished));
      await sandbox.close();
      await sql.end({ timeout: 1 });
      await rm(folder, { recursive: true, force: true });
      await database.drop();
    },
  };
}

/** Opens an installation that is closed when the test that calls this has ended. */
export async function rehearseForTest(options?: Parameters<typeof rehearse>[0]): Promise<Rehearsal> {
  const world = await rehearse(options);
  onTestFinished(() => world.close());
  return world;
}
