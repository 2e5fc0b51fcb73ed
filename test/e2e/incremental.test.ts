// Incremental sync as an operator uses it: a worker runs, the mirror changes, and the service follows.
import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createPostgresBackend, Queue } from 'bullmq';
import postgres from 'postgres';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { isOnPath } from '../support/programs.js';
import type { Running } from '../support/program.js';
import { commandsOf, rehearseOnce } from '../support/rehearsals.js';
import { createDatabase, isForMirrorAlone, STORES } from '../support/services.js';
import { until } from '../support/wait.js';

/** Rooms are polled often, courses have a composite key, and halls are a query. */
const CONFIGURATION = `
import { defineConfig } from 'slotsync';
export default defineConfig({
  polling: { everySeconds: 1, overlapSeconds: 5, lagSeconds: 0 },
  streams: {
    rooms: {
      from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}', owns: 'object', retire: 'deactivate',
      fields: { 'room.name': 'name', 'room.seats': 'seats' },
    },
    courses: {
      from: 'courses', key: ['id', 'room'], type: 'course', externalId: 'course_{id}_{room}', owns: 'object',
      fields: { 'course.name': 'name' }, references: { 'course.room': { stream: 'rooms', key: 'room' } },
    },
    halls: {
      from: { query: 'SELECT * FROM halls' }, key: 'code', type: 'room', externalId: 'hall_{code}', cursor: 'changed_at',
      owns: 'object', fields: { 'room.name': 'name' },
    },
  },
});
`;

interface StatusJson {
  inbox: {
    streams: { stream: string; waiting: number; inFlight: number }[];
    unknown: string[];
    watermarks: { stream: string; cursor: string }[];
    queue: { name: string; store: string; prefix?: string; schema?: string };
  };
}

describe.each(STORES)('incremental sync with the queue on $store', ({ url, skip }) => {
  describe.skipIf(skip || isForMirrorAlone())('a change of a row', () => {
    const world = rehearseOnce({ redisUrl: url, rows: 20, sandbox: { rate: 20, latencyMs: 40 } });
    let worker: Running;
    /** Runs the test with one store only: the queue does not carry what waits in the state. */
    const itOnce = it.runIf(url === undefined);

    const name = (code: string) =>
      world.sandbox.object(code)?.fields.find(({ fieldId }) => fieldId.endsWith('.name'))?.values[0];
    const becomes = (extId: string, text: string) =>
      until(() => name(extId) === text, {
        describe: () => `${extId} to be ${text}, not ${name(extId)}: ${worker.output()}`,
      });
    const isQuiet = () =>
      until(async () => (await world.sql`SELECT FROM slotsync.changes LIMIT 1`).length === 0, {
        describe: () => `an empty inbox: ${worker.output()}`,
      });
    const startWorker = (...options: string[]) => world.startWorker(['--grace', '2', ...options]);
    const stop = async ({ child, finished }: Running, signal: NodeJS.Signals = 'SIGTERM') => {
      child.kill(signal);
      return finished;
    };
    const status = async () => (await world.json<StatusJson>('status --json')).inbox;
    const openQueue = async () => {
      const { queue } = await status();
      return queue.store === 'redis'
        ? new Queue(queue.name, { prefix: queue.prefix ?? '', connection: { url: url ?? '' } })
        : new Queue(
            queue.name,
            { connection: { connectionString: world.url, schema: queue.schema ?? '' } },
            createPostgresBackend,
          );
    };

    beforeAll(async () => {
      await world.configure(CONFIGURATION);
      await world.sql.unsafe(`
        CREATE TABLE halls (code text PRIMARY KEY, name text, changed_at timestamptz NOT NULL DEFAULT clock_timestamp());
        INSERT INTO halls (code, name) VALUES ('A', 'Aula'), ('B', 'Borgen');`);
      await world.read('sync');
      await world.read('triggers install rooms courses');
      worker = await startWorker();
    });
    beforeEach(async () => {
      await isQuiet();
      world.sandbox.clearArrivals();
    });

    it('arrives at the service when a trigger notes it, and a whole sync retires a deleted row', async () => {
      await world.sql`UPDATE rooms SET name = 'Sal ett' WHERE code = 'R1'`;
      await becomes('room_R1', 'Sal ett');
      await world.sql`DELETE FROM rooms WHERE code = 'R2'`;
      const due = () => world.sql`SELECT FROM slotsync.streams WHERE due_reason = 'rows_gone'`;
      await until(async () => (await due()).length === 1, { describe: 'the stream to be due' });
      await world.sql`UPDATE slotsync.streams SET due_since = due_since - interval '5 minutes',
        attempted_at = attempted_at - interval '5 minutes' WHERE due_reason = 'rows_gone'`;
      await until(() => world.sandbox.object('room_R2')?.active === false, { describe: 'R2 to be retired' });
      await world.sql`INSERT INTO rooms VALUES ('N1', 'Ny', 1)`;
      await world.sql`INSERT INTO courses VALUES (900, 'Ny kurs', 'N1')`;
      await becomes('course_900_N1', 'Ny kurs');
      await isQuiet();
      expect(world.puts()).toHaveLength(4);
    });

    itOnce('arrives when it is pushed, although unknown keys are reported', async () => {
      await world.sql`ALTER TABLE rooms DISABLE TRIGGER USER`;
      await world.sql`UPDATE rooms SET name = 'Sal tre' WHERE code = 'R3'`;
      await world.sql`UPDATE rooms SET name = 'Sal fyra' WHERE code = 'R4'`;
      await world.sql`ALTER TABLE rooms ENABLE TRIGGER USER`;
      await world.ends(
        ['push', 'rooms', 'R3', 'R404', 'R3 '],
        1,
        "no row and no record with key 'R404' in rooms",
        "no row and no record with key 'R3 ' in rooms", // its blank is seen
        '1 key of rooms added to the inbox',
      );
      await becomes('room_R3', 'Sal tre');
      const piped = await world.start(['push', 'rooms', '-', '--json'], {}, 'R4\nR405\n\n').finished;
      expect(JSON.parse(piped.stdout)).toEqual({ stream: 'rooms', pushed: ['R4'], unknown: ['R405'] });
      await becomes('room_R4', 'Sal fyra');
      const empty = await world.start(['push', 'rooms', '-'], {}, '\n').finished;
      expect(empty).toMatchObject({ code: 0, stderr: '' });
      expect(empty.stdout).toBe('Standard input has no keys, so nothing was added to the inbox.\n');
      const binary = await world.start(['push', 'rooms', '-'], {}, 'R4\nR\0\n').finished;
      expect(binary).toMatchObject({ code: 2, stdout: '' });
      expect(binary.stderr).toContain('standard input: line 2 has a NUL character, which no key has\n');

      await world.refuses('push romms R3', "no stream 'romms' in the configuration");
      await world.refuses('push courses 7', "A key has 2 parts, joined by |: '<id>|<room>'");
    });

    it('arrives through a job of another program, and an unreadable job is kept with its reason', async () => {
      const queue = await openQueue();
      try {
        await world.sql`ALTER TABLE courses DISABLE TRIGGER USER`;
        await world.sql`UPDATE courses SET name = 'Kurs sju' WHERE id = 7`;
        await world.sql`UPDATE courses SET name = 'Kurs åtta' WHERE id = 8`;
        await world.sql`ALTER TABLE courses ENABLE TRIGGER USER`;
        await queue.add('changed', { stream: 'courses', key: [7, 'R7'] }, { attempts: 5 });
        await queue.add('changed', { stream: 'courses', keys: ['8|R8'] });
        await becomes('course_7_R7', 'Kurs sju');
        await becomes('course_8_R8', 'Kurs åtta');

        const bad = await queue.add('changed', { stream: 'courses', key: '19550505-0123' }, { attempts: 5 });
        const failed = await until(
          async () => {
            const job = await queue.getJob(bad.id ?? '');
            return job?.failedReason ? job : undefined;
          },
          { describe: 'the job to fail' },
        );
        expect(failed.failedReason).toBe('key: a key of this stream has 2 parts');
        expect(JSON.stringify(failed.stacktrace)).not.toContain('19550505');
        expect(failed.attemptsMade).toBe(1);
        expect(await queue.getJobCounts('failed', 'completed')).toEqual({ failed: 1, completed: 0 });
      } finally {
        await queue.close();
      }
    });

    itOnce('arrives when polling finds it by the cursor of the stream', async () => {
      await world.sql`UPDATE halls SET name = 'Stora aulan', changed_at = clock_timestamp() WHERE code = 'A'`;
      await becomes('hall_A', 'Stora aulan');
      await isQuiet();
      const watermark = await until(
        async () => (await status()).watermarks.find(({ stream }) => stream === 'halls'),
        { describe: 'the watermark' },
      );
      expect(watermark.cursor).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\+00$/);
    });

    itOnce('stays in the inbox when its stream is unknown, and status says so', async () => {
      await world.sql`INSERT INTO slotsync.changes (stream, local_key) VALUES ('sheds', 'S1')`;
      const { streams, unknown } = await status();
      expect(unknown).toEqual(['sheds']);
      expect(streams).toContainEqual(expect.objectContaining({ stream: 'sheds', waiting: 1, inFlight: 0 }));
      await world.ends(
        'status --full',
        0,
        /Changes wait for streams that are not in the configuration\n.*no worker processes their changes\.\n *Streams: sheds\./,
        /^sheds +1 +\d/m,
      );
      await world.sql`DELETE FROM slotsync.changes WHERE stream = 'sheds'`;
    });

    it('arrives soon after the batch that is writing its record', async () => {
      await world.sql`
        UPDATE slotsync.records SET claimed_by = 'another', claimed_until = now() + interval '1 second'
        WHERE stream = 'rooms' AND local_key = 'R7'`;
      await world.sql`UPDATE rooms SET name = 'Sal sju' WHERE code = 'R7'`;
      await until(() => name('room_R7') === 'Sal sju', {
        timeoutMs: 20_000, // less than any wait before another attempt
        describe: () => `R7 to follow: ${worker.output()}`,
      });
    });

    it('is not delayed by a nightly sync that uses all concurrency of the worker', async () => {
      expect(await stop(worker)).toMatchObject({ code: 0 });
      worker = await startWorker('--concurrency', '1');
      await world.sql`ALTER TABLE courses DISABLE TRIGGER USER`;
      await world.sql`INSERT INTO courses VALUES (901, 'Nattkurs', 'R1')`;
      await world.sql`ALTER TABLE courses ENABLE TRIGGER USER`;
      world.sandbox.failNext({ path: '/v1/objects', fault: 'hang' });
      await world.run(['sync', '--detach', 'courses']);
      await until(() => world.puts().length === 1, { describe: 'the night to hang' });
      await world.sql`UPDATE rooms SET name = 'Sal åtta' WHERE code = 'R8'`;
      await becomes('room_R8', 'Sal åtta');
      expect(name('course_901_R1')).toBeUndefined();
      worker.child.kill('SIGTERM');
      expect(await stop(worker, 'SIGINT')).toMatchObject({ code: 0 });
      worker = await startWorker();
      await becomes('course_901_R1', 'Nattkurs');
    });

    itOnce(
      'arrives if it was committed while no worker ran, even if one of several workers is killed',
      async () => {
        expect(await stop(worker)).toMatchObject({ code: 0 });
        await world.sql`UPDATE rooms SET name = 'Natten ' || code`;
        const workers = await Promise.all([startWorker(), startWorker(), startWorker()]);
        const [first, second, third] = workers;
        worker = second;
        await becomes('room_R9', 'Natten R9');
        for (let at = 0; at < 30; at++) {
          await world.sql`UPDATE rooms SET name = ${`Varv ${at}`} WHERE code = ${`R${10 + (at % 10)}`}`;
          if (at !== 10) continue;
          first.child.kill('SIGKILL');
          await first.finished;
          await world.expireClaims();
        }
        await until(
          () => [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].every((at) => name(`room_R${10 + at}`) === `Varv ${20 + at}`),
          {
            timeoutMs: 120_000,
            describe: () => `the last values: ${third.output()}`,
          },
        );
        // Before they stop: what the killed one left may be due while they do, and is the next worker's then.
        const left = () => world.sql`
        SELECT FROM slotsync.changes UNION ALL SELECT FROM slotsync.runs WHERE finished_at IS NULL`;
        await until(async () => (await left()).length === 0, {
          timeoutMs: 120_000,
          describe: () => `an empty inbox, and no run under way: ${third.output()}`,
        });
        expect(await stop(second)).toMatchObject({ code: 0 });
        expect(await stop(third)).toMatchObject({ code: 0 });
        expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
      },
      300_000,
    );
  });
});

const hasPsql = await isOnPath('psql');

describe.skipIf(isForMirrorAlone())('slotsync triggers', () => {
  const world = rehearseOnce({ rows: 3 });
  beforeAll(async () => {
    await world.configure(CONFIGURATION);
    await world.sql`CREATE TABLE halls (code text PRIMARY KEY, name text, changed_at timestamptz)`;
  });

  it('installs, shows and removes triggers of every stream whose source is a table', async () => {
    const installed = await world.run(['triggers', 'install']);
    expect(installed).toMatchObject({ code: 0, stderr: '' });
    expect(installed.stdout).toContain('rooms: triggers installed on rooms');
    expect(installed.stdout).toContain('halls: its source is a query; triggers need a table');
    const created = 'CREATE OR REPLACE FUNCTION "public"."slotsync_changes_courses"()';
    const [stop, ...script] = (await world.ends('triggers print courses', 0, created)).split('\n');
    const dba = postgres(world.url, { max: 1, onnotice: () => undefined });
    expect(stop).toBe(String.raw`\set ON_ERROR_STOP on`);
    await dba.unsafe(script.join('\n'));
    await dba.end();
    await world.sql`DELETE FROM courses WHERE id = 1`;
    expect(await world.sql`SELECT stream, local_key FROM slotsync.changes`).toEqual([
      { stream: 'courses', local_key: '1|R1' },
    ]);
    expect(await world.json('triggers remove --json')).toEqual({ removed: ['courses', 'rooms'] });
    expect(await world.read('triggers remove rooms')).toBe('rooms: no triggers to remove\n');
  });

  it.skipIf(!hasPsql)('prints SQL for psql that quotes every name and stops at the first error', async () => {
    const role = `o_${randomUUID().slice(0, 8)}`;
    const key = `id$slotsync$;ROLLBACK;ALTER ROLE ${role} SUPERUSER;--`;
    const [schema = '', table = '', quotedKey = ''] = [`a"b'$slotsync1$\\`, `:x;\n\\echo "y`, key].map(
      (name) => `"${name.replaceAll('"', '""')}"`,
    );
    const declared = { from: `${schema}.${table}`, key, type: 'room', externalId: `{${key}}`, fields: {} };
    const configure = (change = {}) =>
      world.configure(`export default ${JSON.stringify({ streams: { odd: { ...declared, ...change } } })}`);
    await world.sql.unsafe(`CREATE ROLE ${role}; CREATE SCHEMA ${schema} AUTHORIZATION ${role};
        CREATE TABLE ${schema}.${table} (${quotedKey} text); ALTER TABLE ${schema}.${table} OWNER TO ${role}`);
    try {
      await configure({ key: 'is missing' });
      for (const action of ['print', 'install'])
        await world.refuses(`triggers ${action}`, 'odd: key: there is no column is missing');
      await configure();
      const input = await world.read('triggers print');
      const runScript = () => spawnSync('psql', ['-X', world.url], { input, encoding: 'utf8' });
      expect(runScript()).toMatchObject({
        status: 3,
        stderr: expect.stringMatching(/^ERROR: {2}permission denied for schema slotsync\n[^\n]*\n[^\n]*\n$/),
      });
      await world.sql.unsafe(
        `GRANT USAGE ON SCHEMA slotsync TO ${role}; GRANT INSERT (stream, local_key) ON slotsync.changes TO ${role}`,
      );
      expect(runScript()).toMatchObject({ status: 0, stderr: '' });
      const [owner] = await world.sql`SELECT rolsuper FROM pg_roles WHERE rolname = ${role}`;
      expect(owner).toEqual({ rolsuper: false });
      await world.sql.unsafe(`INSERT INTO ${schema}.${table} VALUES ('x')`);
      expect(await world.sql`SELECT local_key FROM slotsync.changes WHERE stream = 'odd'`).toEqual([
        { local_key: 'x' },
      ]);
      const hidden = '"hidden\u202e"';
      await world.sql.unsafe(`CREATE TABLE ${hidden} (id int)`);
      await configure({ from: hidden, key: 'id', externalId: '{id}' });
      await world.refuses('triggers print', 'a name has control characters');
      await world.read('triggers install');
    } finally {
      await world.run(['triggers', 'remove']);
      await world.sql.unsafe(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`);
      await world.configure(CONFIGURATION);
    }
  });

  it('says in one line why it cannot install triggers', async () => {
    await world.refuses('triggers install halls', 'halls: its source is a query; triggers need a table');
    const apart = await createDatabase();
    try {
      await commandsOf(world, { STATE_DATABASE_URL: apart.url }).refuses(
        'triggers install',
        'triggers require mirror and state in one database, but they are in two',
      );
    } finally {
      await apart.drop();
    }
  });
});
