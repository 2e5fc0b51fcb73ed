// Guarantee 10
// Locks between processes: only roles with rights on the state can take them, and a waiting process names the holder.
import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { pino } from 'pino';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { openBullmq } from '../../src/queue/bullmq.js';
import { QUEUES } from '../../src/queue/jobs.js';
import { openState, type State } from '../../src/state/database.js';
import { takeLock, tryLock, whileHolding, type Lock, type Waiting } from '../../src/state/locks.js';
import { migrate } from '../../src/state/migrate.js';
import { createDatabase, createEmptyDatabase, type TestDatabase } from '../support/services.js';
import { createDeferred, until } from '../support/wait.js';

const LOCKS: Lock[] = ['migrate', 'run_start', 'inbox', 'polling', 'alerts', 'reconcile', 'verify'];

let database: TestDatabase;
let state: State;
let sql: postgres.Sql;
beforeAll(async () => {
  database = await createDatabase();
  state = openState({ url: database.url });
  sql = connect(database.url, 'a colleague', 2);
});
afterAll(async () => {
  await state.close();
  await sql.end({ timeout: 1 });
  await database.drop();
});

function connect(url: string, name: string, max = 1): postgres.Sql {
  return postgres(url, { max, onnotice: () => undefined, connection: { application_name: name } });
}

/** An empty database with a session, for a test. */
async function openEmpty(name: string) {
  const { url, drop } = await createEmptyDatabase();
  const other = connect(url, name);
  onTestFinished(async () => {
    await other.end({ timeout: 1 });
    await drop();
  });
  return { url, other };
}

/** A queue of the database for a test, with the sessions that end before it does. */
function openQueue() {
  const bullmq = openBullmq({ postgresUrl: database.url }, 'locks', pino({ level: 'silent' }));
  const queue = bullmq.queue(QUEUES.changes);
  onTestFinished(async () => {
    await queue.close();
    await bullmq.close();
  });
  return { bullmq, queue };
}

/** Holds what `statement` locks while `work` runs. */
async function whileHeld<T>(statement: string, work: (release: () => void) => Promise<T>): Promise<T> {
  const [begun, released] = [createDeferred(), createDeferred()];
  const held = sql.begin(async (tx) => {
    await tx.unsafe(statement);
    begun.resolve();
    await released.promise;
  });
  await Promise.race([begun.promise, held]);
  try {
    return await work(released.resolve);
  } finally {
    released.resolve();
    await held;
  }
}
const LIMIT = 'SHOW idle_in_transaction_session_timeout';

const take = (lock: Lock, waiting: Waiting) => state.db.transaction((tx) => takeLock(tx, lock, waiting));

describe('a transaction that holds a lock', () => {
  it('is ended by the server after it rested for a minute, as after a power loss of its host', async () => {
    const limit = await state.db.transaction(async (tx) => {
      await tryLock(tx, 'inbox');
      return tx.execute(LIMIT);
    });
    expect(limit).toMatchObject([{ idle_in_transaction_session_timeout: '1min' }]);
    expect(await sql.unsafe(LIMIT)).toMatchObject([{ idle_in_transaction_session_timeout: '0' }]);
  });

  it('is kept while its work goes on, however long it rests', async () => {
    await state.db.transaction(async (tx) => {
      await tryLock(tx, 'verify');
      await tx.execute(`SET LOCAL idle_in_transaction_session_timeout = '3s'`);
      await whileHolding(tx, () => pause(7000), 300);
      await tx.execute('SELECT 1');
    });
  });
});

describe('a lock', () => {
  it.each(LOCKS)(
    'is held by one session until its transaction ends, and is no advisory lock: %s',
    async (lock) => {
      await state.db.transaction(async (tx) => {
        expect(await tryLock(tx, lock)).toBe(true);
        await sql.begin(async (other) => {
          expect(await other`SELECT slotsync.take_lock(${lock}, false) AS taken`).toEqual([{ taken: false }]);
          // The transaction goes on, and reading is always possible.
          expect(await other`SELECT FROM ${other(`slotsync.lock_${lock}`)}`).toEqual([]);
        });
        expect(
          await sql`
          SELECT FROM pg_locks WHERE locktype = 'advisory' AND database = (
            SELECT oid FROM pg_database WHERE datname = current_database())`,
        ).toEqual([]);
      });
      expect(await state.db.transaction((tx) => tryLock(tx, lock))).toBe(true);
    },
  );

  it('cannot be taken by a role that may only connect or read', async () => {
    const role = `stranger_${randomBytes(4).toString('hex')}`;
    await sql.unsafe(`CREATE ROLE ${role}`);
    const asStranger = (statement: string) =>
      sql.begin(async (tx) => {
        await tx.unsafe(`SET LOCAL ROLE ${role}`);
        await tx.unsafe(statement);
      });
    try {
      for (const lock of LOCKS) {
        const statement = `LOCK TABLE slotsync.lock_${lock} IN SHARE UPDATE EXCLUSIVE MODE`;
        await expect(asStranger(statement)).rejects.toMatchObject({ code: '42501' });
      }
      await sql.unsafe(
        `GRANT USAGE ON SCHEMA slotsync TO ${role}; GRANT SELECT ON ALL TABLES IN SCHEMA slotsync TO ${role}`,
      );
      for (const lock of LOCKS)
        await expect(asStranger(`SELECT slotsync.take_lock('${lock}', false)`)).rejects.toMatchObject({
          code: '42501',
        });
    } finally {
      await sql.unsafe(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });

  it('is waited for with the name of its holder, and is taken when it is free', async () => {
    const heard: string[] = [];
    await whileHeld(`SELECT slotsync.take_lock('run_start', false)`, async (release) => {
      const taken = take('run_start', { onWait: (sentence) => heard.push(sentence) });
      await until(() => heard.length > 0, { describe: 'the one that waits to say so' });
      release();
      await taken;
    });
    expect(heard).toHaveLength(1);
    expect(heard[0]).toMatch(
      /^Waiting: run_start \(table slotsync\.lock_run_start\) is locked by 'a colleague' of role \w+, server process \d+(, from \S+)?, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\.$/,
    );
  });

  it('is waited for until an interruption or the time limit', async () => {
    await whileHeld(`SELECT slotsync.take_lock('run_start', false)`, async () => {
      const stop = new AbortController();
      const interrupted = take('run_start', {
        signal: stop.signal,
        onWait: () => stop.abort(new Error('stopped')),
      });
      await expect(interrupted).rejects.toThrow('stopped');
      await expect(take('run_start', { giveUpAfterMs: 1 })).rejects.toMatchObject({
        code: 'state_locked',
        message: expect.stringMatching(/run_start .* is locked by 'a colleague' .*; gave up after \d+ s$/),
      });
    });
  });
});

describe('the queue in PostgreSQL', () => {
  it('is not delayed by advisory locks of other sessions', async () => {
    const { bullmq, queue } = openQueue();
    const worked: string[] = [];
    const worker = bullmq.worker(QUEUES.changes, async ({ name }) => void worked.push(name), {});
    const stranger = connect(database.url, 'a stranger');
    try {
      // As BullMQ names them: before jobs are added, and before they end.
      await stranger`SELECT pg_advisory_lock(hashtext('bullmq:finalization'), hashtext(${QUEUES.changes})),
        pg_advisory_lock(hashtext(${`bullmq:jidseq:${QUEUES.changes}`}))`;
      await queue.add('one', {});
      await queue.addBulk([{ name: 'two', data: {} }]);
      void worker.run();
      await until(() => worked.length === 2, { describe: 'two jobs to be worked' });
      await until(async () => Object.values(await queue.getJobCounts()).every((count) => count === 0), {
        describe: 'the jobs to be gone',
      });
      const locking = await sql`SELECT proname FROM pg_proc
        WHERE pronamespace = 'slotsync_queue'::regnamespace AND prosrc ~ 'pg_advisory_xact_lock'`;
      expect(locking).toEqual([]);
    } finally {
      await stranger.end({ timeout: 1 });
      await worker.close();
    }
  });

  it('has no more rows for keys of foreign jobs than there are groups of keys', async () => {
    const { queue } = openQueue();
    await sql`SELECT slotsync_queue.lock_key(key) FROM generate_series(-2147483648, 2147483647, 65536) AS key`;
    const jobs = Array.from({ length: 300 }, (_, at) => ({
      name: 'changed',
      data: {},
      opts: { deduplication: { id: `room ${at}` } },
    }));
    await queue.addBulk(jobs);
    const [rows] = await sql`
      SELECT count(*)::int AS count FROM slotsync_queue.lock_key WHERE key BETWEEN -2147483648 AND 2147483647`;
    expect(rows).toEqual({ count: 65_536 });
    await queue.drain();
  });

  it('locks a key for one session, or for several that share it, until their transactions end', async () => {
    const isFree = (key: number) =>
      sql.begin(async (tx) => {
        await tx`SET LOCAL lock_timeout = '1ms'`;
        const taking = tx.savepoint((inner) => inner`SELECT slotsync_queue.lock_key(1, ${key}::int)`);
        return taking.then(
          () => true,
          () => false,
        );
      });
    // The first one that uses a key has it alone.
    expect(await isFree(7)).toBe(true);
    await sql.begin(async (tx) => {
      await tx`SELECT slotsync_queue.lock_key_shared(1, 7)`;
      await sql.begin((other) => other`SELECT slotsync_queue.lock_key_shared(1, 7)`);
      expect([await isFree(7), await isFree(8)]).toEqual([false, true]);
    });
    expect(await isFree(7)).toBe(true);
    await sql.begin(async (tx) => {
      await tx`SELECT slotsync_queue.lock_key(1, 7)`;
      expect(await isFree(7)).toBe(false);
    });
  });
});

describe('migrate', () => {
  it('names the session that blocks it, and changes nothing when it has waited too long', async () => {
    const { url, other } = await openEmpty('a report');
    await other`CREATE SCHEMA slotsync`;
    await other`CREATE TABLE slotsync.lock_migrate ()`;
    const heard: string[] = [];
    await other.begin(async (tx) => {
      await tx`LOCK TABLE slotsync.lock_migrate IN SHARE UPDATE EXCLUSIVE MODE`;
      const stop = new AbortController();
      const onWait = (sentence: string) => {
        heard.push(sentence);
        stop.abort(new Error('stopped'));
      };
      await expect(migrate(url, { onWait, signal: stop.signal })).rejects.toThrow('stopped');
      expect(heard).toEqual([
        expect.stringMatching(/^Waiting: schema slotsync is in use by 'a report' of role /),
      ]);
      await expect(migrate(url, { giveUpAfterMs: 1 })).rejects.toMatchObject({ code: 'state_locked' });
      expect(await tx`SELECT to_regclass('slotsync.migrations') AS made`).toEqual([{ made: null }]);
    });
    expect((await migrate(url)).applied).toBeGreaterThan(0);
  });

  it('is not delayed by advisory locks of other sessions', async () => {
    const { url, other } = await openEmpty('a stranger');
    // The number that former versions took.
    await other`SELECT pg_advisory_lock(7215604113)`;
    const waiting = { onWait: (sentence: string) => expect.fail(sentence), giveUpAfterMs: 1 };
    expect((await migrate(url, waiting)).applied).toBeGreaterThan(0);
  });
});
