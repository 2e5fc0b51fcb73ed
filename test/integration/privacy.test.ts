// Guarantee 9
// Keys, tokens and personal data are in no log line, job or error. Recognizable values go through every kind of failure, at
// the most talkative log level and without the logger's own redaction. Texts of a mapping function or of the service may stand
// only in a record's message, in the organization's own database.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SlotsyncError } from '../../src/errors/errors.js';
import { openBullmq, type Bullmq } from '../../src/queue/bullmq.js';
import { migrateQueue } from '../../src/queue/migrate-queue.js';
import { createProducer } from '../../src/queue/producer.js';
import { createWorkers } from '../../src/queue/workers.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { until } from '../support/wait.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const KEY = 'key-93b1f0c2d7';
const NAME = 'Ragnhild Exempelsson';
const EMAIL = 'ragnhild@exempel.test';
const PHONE = '+46 70 555 01 23';
/** A personal number, which is also the local key. */
const NUMBER = '19550505-0123';

/** Patterns that must not appear. Tokens are recognized by their shape. */
const SECRETS = [KEY, NAME, 'Exempelsson', EMAIL, PHONE, NUMBER].map(
  (text) => new RegExp(escapeRegExp(text), 'i'),
);
SECRETS.push(/eyJ[\w-]{8,}\./, /bearer\s/i, /api-key\s/i);

const CONFIG: SlotsyncConfig = {
  streams: {
    staff: {
      from: 'staff',
      key: 'number',
      type: 'person',
      externalId: 'person_{number}',
      fields: { 'person.name': 'name', 'person.email': 'email', 'person.phone': 'phone' },
      retire: 'deactivate',
    },
  },
  service: { requestTimeoutMs: 1000 },
};
const staff = (changes: Partial<SlotsyncConfig['streams'][string]>): SlotsyncConfig => ({
  ...CONFIG,
  streams: { staff: { ...CONFIG.streams['staff'], ...changes } as SlotsyncConfig['streams'][string] },
});

const openWorld = keepWorlds();
let world: World;
beforeEach(async () => {
  world = await openWorld(CONFIG, { sandbox: { apiKey: KEY }, attempts: 3 });
  await world.sql`CREATE TABLE staff (number text PRIMARY KEY, name text, email text, phone text, boss text)`;
  await world.sql`
    INSERT INTO staff VALUES (${NUMBER}, ${NAME}, ${EMAIL}, ${PHONE}), ('19600606-4567', 'Other', 'o@exempel.test', '1')`;
});
afterEach(() => world.sql`ALTER TABLE slotsync.records DROP CONSTRAINT IF EXISTS refuses`);

function expectClean(what: string, text: string): void {
  for (const secret of SECRETS)
    if (secret.test(text)) expect.fail(`${what} holds ${String(secret)}: ${text}`);
}

function expectCleanLog(): void {
  for (const line of world.lines) expectClean('a log line', line);
}

/** The error as a caller sees it; the stack repeats the message. */
function expectCleanError(error: unknown): void {
  expect(error).toBeInstanceOf(SlotsyncError);
  const { message, facts, remedy, stack, code } = error as SlotsyncError;
  expectClean('an error', JSON.stringify({ message, facts, remedy, stack, code }));
}

const PUT = '/v1/objects';
const ECHO = { message: `person ${NAME} <${EMAIL}> cannot be stored` };

describe('the log of a sync', () => {
  const failures: [name: string, arrange: () => unknown][] = [
    ['a hanging service', () => world.sandbox.failNext({ path: PUT, fault: 'hang' })],
    ['a reset', () => world.sandbox.failNext({ path: PUT, fault: 'reset' })],
    ['a lost answer', () => world.sandbox.failNext({ path: PUT, fault: 'loseAnswer', times: 3 })],
    ['half a document', () => world.sandbox.failNext({ path: PUT, fault: 'brokenJson' })],
    ['an answer of another shape', () => badAnswer({ results: [{ extId: 1, name: NAME }] })],
    [
      'an answer that is its own question',
      () => badAnswer({ objects: [{ extId: `person_${NUMBER}`, name: NAME }] }),
    ],
    ['500s', () => world.sandbox.failNext({ path: PUT, fault: 'status', times: 3 })],
    ['a 429', () => world.sandbox.failNext({ path: PUT, fault: 'status', status: 429 })],
    ['a redirect', () => world.sandbox.failNext({ path: PUT, fault: 'status', status: 302 })],
    ['revoked rights', () => world.sandbox.failNext({ path: PUT, fault: 'status', status: 403, times: 2 })],
    [
      'a refused key',
      () => world.sandbox.failNext({ fault: 'status', status: 401, body: { message: KEY }, times: 9 }),
    ],
    [
      'a text that is no token',
      () => world.sandbox.failNext({ fault: 'status', status: 200, body: { secret: KEY } }),
    ],
    ['a person refused, by name', () => refuse({ wholeCall: false })],
    ['a request refused for a person, by name', () => refuse({ wholeCall: true })],
    [
      'an object of another type',
      () => world.sandbox.putObject({ extId: `person_${NUMBER}`, typeId: 'room' }),
    ],
    ['a mapping that throws the row', () => world.configure(staff({ fields: { 'person.name': throwing } }))],
    [
      'a value that cannot be sent',
      () => world.configure(staff({ fields: { 'person.name': (row) => ({ ...row }) as never } })),
    ],
    [
      'an external id of two rows',
      () => world.configure(staff({ externalId: '{number}', key: 'email', fields: {} })),
    ],
    ['a key that repeats', () => world.sql`ALTER TABLE staff DROP CONSTRAINT staff_pkey`.then(repeat)],
    ['a source that does not exist', () => world.configure(staff({ from: 'people' }))],
    [
      'a source that cannot convert a value',
      () => world.configure(staff({ from: { query: 'SELECT *, name::integer FROM staff' } })),
    ],
    [
      'a value the mirror rejects aloud',
      () =>
        raising().then(() => world.configure(staff({ from: { query: 'SELECT *, loud(name) FROM staff' } }))),
    ],
    [
      'a state that rejects the record',
      () =>
        world.sql`ALTER TABLE slotsync.records ADD CONSTRAINT refuses CHECK (external_id NOT LIKE '%0123')`,
    ],
    ['a type that is not known there', () => world.configure(staff({ type: 'persn' }))],
  ];

  function badAnswer(body: unknown): void {
    world.sandbox.failNext({ path: PUT, fault: 'status', status: 200, body });
  }
  function refuse({ wholeCall }: { wholeCall: boolean }): void {
    world.sandbox.refuseObject(`person_${NUMBER}`, { status: 400, message: ECHO.message, wholeCall });
  }
  function throwing(row: Record<string, unknown>): never {
    throw new Error(`cannot map ${JSON.stringify({ ...row })}`);
  }
  const repeat = () => world.sql`INSERT INTO staff (number, name) VALUES (${NUMBER}, ${NAME})`;
  const raising = () => world.sql`
    CREATE FUNCTION loud(name text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'I do not like %', name; END $$`;

  it.each(failures)('stays clean, like the errors, after %s', async (_, arrange) => {
    await arrange();
    const { errors } = await world.sync();
    expectCleanLog();
    for (const error of errors) expectCleanError(error);
  });

  it('stays clean without a failure, and has every expected line', async () => {
    await world.sync();
    const messages = world.lines.map((line) => (JSON.parse(line) as { msg: string }).msg);
    expect(messages).toEqual(expect.arrayContaining(['stream planned', 'run planned', 'batch applied']));
    expectCleanLog();
  });

  it('omits the reason of a dead record, which stands in the record', async () => {
    world.configure(staff({ fields: { 'person.name': throwing } }));
    await world.sync();
    const record = (await world.recordsOf('staff'))[NUMBER];
    expect(record).toMatchObject({ status: 'dead', error_message: expect.stringContaining(NAME) });
    expectCleanLog();
  });

  it('stays clean after an interruption', async () => {
    const { queue } = await world.plan();
    world.sandbox.closeGate({ method: 'PUT' });
    const stopping = new AbortController();
    const applying = world.apply(queue[0] ?? 0, stopping.signal);
    await until(() => world.sandbox.gate().held, { describe: 'the request' });
    stopping.abort(new Error('stopping'));
    await expect(applying).rejects.toThrow('stopping');
    expectCleanLog();
  });

  it.each([
    ['PUT', PUT, 500],
    ['PUT', PUT, 403],
    ['find', '/objects/find', 400],
  ])(
    'stays clean, like the errors, when the service names a person in answer to a %s',
    async (_, path, status) => {
      await world.sync();
      await world.sql`UPDATE staff SET boss = 'somebody', phone = phone || '1'`;
      world.sandbox.failNext({ path, fault: 'status', status, body: ECHO, times: 3 });
      const { run, errors } = await world.sync();
      expectCleanLog();
      // A request that the service forbids is held, and not thrown.
      if (status === 403) expect(run.status).toBe('held');
      else expect(errors.length).toBeGreaterThan(0);
      for (const error of errors) expectCleanError(error);
    },
  );
});

describe('the queue', () => {
  let bullmq: Bullmq;

  beforeEach(async () => {
    await world.sql`DROP SCHEMA IF EXISTS slotsync_queue CASCADE`;
    await migrateQueue({ postgresUrl: world.url });
    bullmq = openBullmq({ postgresUrl: world.url }, 'privacy', world.log);
  });

  /** Every row of every table of the queue, as text. */
  async function dumpQueue(): Promise<string> {
    const tables = await world.sql<{ name: string }[]>`
      SELECT tablename AS name FROM pg_tables WHERE schemaname = 'slotsync_queue'`;
    const dumps = await Promise.all(
      tables.map(async ({ name }) => {
        const rows = await world.sql.unsafe<{ row: string }[]>(
          `SELECT t::text AS row FROM slotsync_queue."${name}" t`,
        );
        return rows.map(({ row }) => row).join('\n');
      }),
    );
    return dumps.join('\n');
  }

  /** Works the queue until `done`, and returns everything that was ever seen in it on the way. */
  async function work(done: (runId: number) => Promise<boolean>): Promise<string> {
    const producer = createProducer({ bullmq: async () => bullmq, state: world.state });
    const workers = createWorkers({
      ...world.deps(),
      bullmq: async () => bullmq,
      producer,
      probe: async () => undefined,
    });
    const seen = new Set<string>();
    const look = async () => {
      for (const line of (await dumpQueue()).split('\n')) seen.add(line);
    };
    try {
      const runId = await world.startRun();
      await producer.enqueueRun(runId, 'sync');
      await look();
      await workers.start();
      const check = async () => {
        await look();
        return done(runId);
      };
      await until(check, { describe: 'the queue to come so far' });
      await look(); // what `done` has found may be newer than the last look
    } finally {
      workers.abort();
      await workers.stop();
      await producer.close();
    }
    return [...seen].join('\n');
  }

  it('holds numbers of runs and batches, and nothing of what they contain', async () => {
    world.sandbox.closeGate({ method: 'PUT' }); // the batch stands in the queue until it has been seen there
    let isShown = false;
    const seen = await work(async (runId) => {
      if (isShown) world.sandbox.openGate();
      isShown = world.sandbox.gate().held > 0;
      return (await readRun(world.state.db, runId))?.finishedAt instanceof Date;
    });
    expect(seen).toContain('batchId');
    expect(seen).toContain('runId');
    expectClean('the queue', seen);
    expect(await world.statusesOf('staff')).toMatchObject({ [NUMBER]: 'synced' });
    expectCleanLog();
  });

  it('holds nothing of a failure that names a person', async () => {
    world.sandbox.failNext({ path: PUT, fault: 'status', status: 500, body: ECHO, times: 100 });
    const seen = await work(async () => (await dumpQueue()).includes('service_failed'));
    expectClean('the queue', seen);
    expectCleanLog();
  });
});

function escapeRegExp(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
