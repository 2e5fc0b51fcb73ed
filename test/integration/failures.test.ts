// Guarantees 10, 11
// Every failure says what happens next: it is tried again, it waits, or it is a person's turn; and by which command.
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { nextStep } from '../../src/documents/causes.js';
import { failureToPoint } from '../../src/documents/failures.js';
import { runDocument } from '../../src/documents/runs.js';
import { answerToText, contentToText } from '../../src/render/text.js';
import { readRunFacts } from '../../src/situation/run-facts.js';
import { isGivenUpByCode, remedyFor, type Disposition } from '../../src/errors/error-catalogue.js';
import { dispositionOf } from '../../src/errors/errors.js';
import { listFailures, type Failure } from '../../src/state/records/read/list-failures.js';
import { readBatch } from '../../src/state/runs/batches.js';
import { failBatch } from '../../src/state/runs/finish-batch.js';
import type { Run } from '../../src/state/runs/read-runs.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { COURSES, ROOMS } from '../support/campus.js';
import { type World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const SRC = fileURLToPath(new URL('../../src/', import.meta.url));
const sources = (folder: string) =>
  readdirSync(SRC + folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !/^(sandbox|demo)\//.test(file))
    .map((file) => readFileSync(`${SRC}${folder}${file}`, 'utf8'));

/** The commands there are. */
const COMMANDS = sources('commands/').flatMap((text) =>
  [...text.matchAll(/program\.command\('(\w+)'\)/g)].map(([, name = '']) => name),
);

type Turn = 'retry' | 'wait' | 'person';
const TURNS: Record<Turn, RegExp> = {
  retry: /\btries again\b|\bonce it answers again\b/i,
  wait: /\bno action needed\b/i,
  person: /\b(correct|check|deactivate|update|grant|raise|approve|ask)\b/i,
};

/** The text names who acts next, and a command that exists. */
function expectNextStep(text: string, turn: Turn): void {
  expect(text).toMatch(TURNS[turn]);
  const named = [...text.matchAll(/\bslotsync (\w+)/g)].map(([, name]) => name);
  expect(named, `a command in: ${text}`).not.toEqual([]);
  expect(COMMANDS).toEqual(expect.arrayContaining(named));
}

const openWorld = keepWorlds();

const CONFIG = {
  streams: {
    rooms: {
      ...ROOMS,
      externalId: 'room_{number}',
      fields: { 'room.name': (row) => (row.name === 'bad' ? { not: 'sendable' } : row.name) as string },
      retire: 'deactivate',
    },
    courses: COURSES,
  },
} satisfies SlotsyncConfig;

async function open(): Promise<World> {
  const world = await openWorld(CONFIG);
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text, number text)`;
  await world.sql`CREATE TABLE courses (code text PRIMARY KEY, name text, room text)`;
  await world.sql`INSERT INTO rooms VALUES ('A', 'a', '1'), ('B', 'b', '2')`;
  return world;
}

/** The one failure there must be, as `slotsync failures` reads it. */
async function failureIn(world: World, stream: string): Promise<Failure> {
  const failures = await listFailures(world.state.db, { stream, limit: 10 });
  expect(failures).toHaveLength(1);
  const [failure] = failures;
  if (!failure) throw new Error('no failure');
  return failure;
}

/** The output of `slotsync sync` and `slotsync runs <run>`. */
async function printed(world: World, run: Run): Promise<string> {
  const document = runDocument(await readRunFacts(world.state.db, run), new Date());
  return answerToText(document, { timeZone: 'UTC', columns: Infinity });
}

const describeFailure = (failure: Failure) =>
  contentToText({ points: [failureToPoint(failure)] }, { timeZone: 'UTC', columns: Infinity }).join('\n');

describe('a record', () => {
  const dead: [code: string, arrange: (world: World) => Promise<unknown>][] = [
    ['mapping_failed', (world) => world.sql`UPDATE rooms SET name = 'bad' WHERE code = 'A'`],
    ['refused_422', async ({ sandbox }) => sandbox.refuseObject('room_1', { status: 422, message: 'no' })],
    ['external_id_taken', async ({ sandbox }) => sandbox.putObject({ extId: 'room_1', typeId: 'course' })],
    [
      'external_id_changed',
      (world) => world.sync().then(() => world.sql`UPDATE rooms SET number = '9' WHERE code = 'A'`),
    ],
  ];

  it.each(dead)(
    'dead for %s is a person’s turn, with the command that sends it again',
    async (code, arrange) => {
      const world = await open();
      await arrange(world);
      await world.sync();
      const failure = await failureIn(world, 'rooms');
      expect(failure).toMatchObject({ localKey: 'A', status: 'dead', errorCode: code });
      expectNextStep(nextStep(failure), 'person');
      expect(nextStep(failure)).toContain('slotsync retry rooms A');
      const text = describeFailure(failure);
      expect(text).toContain("rooms 'A'");
      expect(text).toContain(failure.errorMessage);
    },
  );

  it('with a key that a shell would take apart is named so that it can be pasted', () => {
    const failure = {
      stream: 'rooms',
      localKey: "a b|'c",
      status: 'dead',
      errorCode: 'refused_400',
    } as Failure;
    expect(nextStep(failure)).toContain(String.raw`slotsync retry rooms 'a b|'\''c'`);
  });

  it('that shares its external id is a person’s turn', async () => {
    const world = await open();
    await world.sql`UPDATE rooms SET number = '1'`;
    await world.sync();
    const failures = await listFailures(world.state.db, { limit: 10 });
    expect(failures.map(({ errorCode }) => errorCode)).toEqual(['external_id_shared', 'external_id_shared']);
    for (const failure of failures) expectNextStep(nextStep(failure), 'person');
  });

  it.each([
    ['whose row is not there', 'nowhere', async (world: World) => world.sync()],
    ['that is refused', 'A', refused],
    ['that waits for the next run', 'A', async (world: World) => world.sync('courses')],
  ])('that waits for a parent %s says so', async (_, parent, arrive) => {
    const world = await open();
    await world.sql`INSERT INTO courses VALUES ('c', 'C', ${parent})`;
    await arrive(world);
    const failure = await failureIn(world, 'courses');
    expect(failure).toMatchObject({ status: 'deferred', errorCode: 'reference_missing' });
    expectNextStep(nextStep(failure), 'wait');
  });

  async function refused(world: World): Promise<void> {
    world.sandbox.refuseObject('room_1', { status: 400, message: 'no' });
    await world.sync();
  }

  it('a record whose parent never came needs a person', async () => {
    const world = await open();
    await world.sql`INSERT INTO courses VALUES ('c', 'C', 'nowhere')`;
    await world.sync();
    world.passDays(15);
    await world.sync();
    const failure = await failureIn(world, 'courses');
    expect(failure).toMatchObject({ status: 'dead', errorCode: 'reference_never_came' });
    expectNextStep(nextStep(failure), 'person');
  });

  it('a record whose object is still booked waits for the end of its bookings, and says which', async () => {
    const world = await open();
    await world.sync();
    const begin = Math.floor(Date.now() / 1000) + 3600;
    world.sandbox.addReservation({
      extId: 'res_1',
      begin,
      end: begin + 3600,
      objects: [{ typeId: 'room', objectId: 'room_1' }],
    });
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.sync();
    const failure = await failureIn(world, 'rooms');
    expect(failure).toMatchObject({ localKey: 'A', status: 'deferred', errorCode: 'still_reserved' });
    expectNextStep(nextStep(failure), 'wait');
    expect(describeFailure(failure)).toMatch(
      /rooms 'A' \(room_1\): deferred, its row is gone, but it is booked: res_1 at \d{4}-\d\d-\d\d \d\d:\d\d UTC\n {4}→ No action needed/,
    );
  });

  it('that is in doubt is tried again', async () => {
    const world = await open();
    await world.sql`DELETE FROM rooms WHERE code = 'B'`;
    const { queue } = await world.plan();
    world.sandbox.failNext({ path: '/v1/objects', fault: 'loseAnswer' });
    await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({ code: 'answer_lost' });
    const failure = await failureIn(world, 'rooms');
    expect(failure).toMatchObject({ status: 'pending' });
    expectNextStep(nextStep(failure), 'wait');
  });
});

/** Every code with which a planning or a batch can be given up, and who acts then. */
const GIVEN_UP: Record<string, Turn> = {
  answer_contradicts: 'retry',
  answer_incomplete: 'retry',
  answer_invalid: 'retry',
  answer_lost: 'retry',
  answer_too_large: 'retry',
  reading_moved: 'retry',
  service_fails_on_object: 'retry',
  claim_lost: 'retry',
  run_stopped: 'retry',
  claimed: 'retry',
  configuration: 'person',
  destination_changed: 'person',
  external_ids_not_unique: 'person',
  forbidden: 'person',
  gateway_answered: 'retry',
  key_not_unique: 'person',
  key_null: 'person',
  key_order: 'person',
  key_reserved: 'person',
  limiter_closed: 'retry',
  mirror_failed: 'retry',
  mirror_raised: 'person',
  mirror_read_only: 'person',
  mirror_refused: 'person',
  mirror_row_security: 'person',
  mirror_source: 'person',
  mirror_timeout: 'retry',
  mirror_unreachable: 'retry',
  quota_unavailable: 'retry',
  redirected: 'person',
  refused: 'person',
  row_too_large: 'person',
  service_failed: 'retry',
  service_unreachable: 'retry',
  state_failed: 'retry',
  state_refused: 'person',
  state_rights: 'person',
  state_unreachable: 'retry',
  throttled: 'retry',
  unauthorized: 'person',
  unexpected: 'retry',
};
/** Found while planning, before there is a batch. */
const OF_PLANNING = new Set([
  'key_not_unique',
  'key_null',
  'key_reserved',
  'key_order',
  'external_ids_not_unique',
]);
/** A command ends with these, or a worker sends nothing, and says what to do itself; no batch and no record has them. */
const OF_COMMANDS = new Set([
  'not_found',
  'queue_unreachable',
  'reconcile_running',
  'run_cancelled',
  'run_lost',
  'state_locked',
  'state_read_only',
  'state_restored',
  'triggers_busy',
  'triggers_failed',
  'usage',
  'verify_running',
  'worker_ended',
]);

describe('given up', () => {
  it('may have any code of the program: none is missing here', () => {
    const codes = sources('').flatMap((text) =>
      [...text.matchAll(/SlotsyncError\(\s*'(\w+)'|'((?:state|mirror)_(?:re|un|fail|so)\w+)'/g)].map(
        ([, literal, computed]) => literal ?? computed ?? '',
      ),
    );
    const missing = new Set(codes.filter((code) => !(code in GIVEN_UP) && !OF_COMMANDS.has(code)));
    expect([...missing]).toEqual([]);
    expect(new Set(codes).size).toBeGreaterThan(20);
  });

  it.each(Object.entries(GIVEN_UP))(
    '%s: a run that ends so says that it is %s, and the command',
    (code, turn) => {
      expectNextStep(remedyFor(code), turn);
    },
  );

  it.each(Object.entries(GIVEN_UP).filter(([code]) => !OF_PLANNING.has(code)))(
    '%s: its records say that it is %s, and the command',
    async (code, turn) => {
      const failure = {
        stream: 'rooms',
        localKey: 'A',
        status: 'failed',
        errorCode: code,
        waitsFor: null,
      } as Failure;
      // Failed records are sent again, whatever they were refused for.
      expectNextStep(nextStep(failure), isGivenUpByCode(code) ? 'wait' : turn);
    },
  );

  it('stands in the records of its batch with its code and message', async () => {
    const world = await open();
    const { queue } = await world.plan();
    const batch = await readBatch(world.state.db, queue[0] ?? 0);
    if (!batch) throw new Error('no batch');
    await failBatch(world.state, batch, { code: 'service_failed', message: 'PUT /v1/objects answered 503' });
    const failures = await listFailures(world.state.db, { limit: 10 });
    expect(failures).toMatchObject([
      {
        localKey: 'A',
        status: 'failed',
        errorCode: 'service_failed',
        errorMessage: 'PUT /v1/objects answered 503',
      },
      { localKey: 'B', status: 'failed', errorCode: 'service_failed' },
    ]);
  });

  it('leaves the records of a batch that has ended meanwhile as they are', async () => {
    const world = await open();
    const { queue } = await world.plan();
    const batch = await readBatch(world.state.db, queue[0] ?? 0);
    if (!batch) throw new Error('no batch');
    await world.apply(batch.id);
    await failBatch(world.state, batch, { code: 'service_failed', message: 'PUT /v1/objects answered 503' });
    expect(await listFailures(world.state.db, { limit: 10 })).toEqual([]);
    expect(await readBatch(world.state.db, batch.id)).toMatchObject({ state: 'done' });
  });
});

describe('a run', () => {
  const situations: [code: string, disposition: Disposition, arrange: (world: World) => unknown][] = [
    [
      'configuration',
      'dead',
      (world) => world.sandbox.defineSchema({ types: [{ extId: 'rom' }], fields: [] }),
    ],
    [
      'unauthorized',
      'dead',
      ({ sandbox }) => {
        for (const path of ['/types/find', '/fields/find'])
          sandbox.failNext({ path, fault: 'status', status: 403, times: 9 });
      },
    ],
    [
      'forbidden',
      'dead',
      ({ sandbox }) => sandbox.failNext({ path: '/types/find', fault: 'status', status: 403, times: 2 }),
    ],
    [
      'refused',
      'dead',
      ({ sandbox }) => sandbox.failNext({ path: '/types/find', fault: 'status', status: 400 }),
    ],
    [
      'redirected',
      'dead',
      ({ sandbox }) => sandbox.failNext({ path: '/types/find', fault: 'status', status: 301 }),
    ],
    ['mirror_source', 'dead', (world) => world.sql`ALTER TABLE rooms RENAME TO lokaler`],
    [
      'key_not_unique',
      'dead',
      (world) =>
        world.sql`ALTER TABLE rooms DROP CONSTRAINT rooms_pkey`.then(
          () => world.sql`UPDATE rooms SET code = 'A'`,
        ),
    ],
    [
      'key_null',
      'dead',
      (world) =>
        world.sql`ALTER TABLE rooms DROP CONSTRAINT rooms_pkey`
          .then(() => world.sql`ALTER TABLE rooms ALTER code DROP NOT NULL`)
          .then(() => world.sql`UPDATE rooms SET code = NULL`),
    ],
    [
      'service_failed',
      'retry',
      ({ sandbox }) => sandbox.failNext({ path: '/types/find', fault: 'status', status: 500, times: 9 }),
    ],
    ['service_unreachable', 'retry', ({ sandbox }) => sandbox.close()],
  ];

  it.each(situations)(
    'that fails for %s prints the reason and the next step',
    async (code, disposition, arrange) => {
      const world = await open();
      await arrange(world);
      const { run, errors } = await world.sync();
      expect(run).toMatchObject({ status: 'failed', errorCode: code });
      for (const error of errors) expect(dispositionOf(error)).toBe(disposition);
      const text = await printed(world, run);
      expect(text).toContain(`Failed: ${run.errorMessage}`);
      expectNextStep(text, disposition === 'dead' ? 'person' : 'retry');
    },
  );

  it('that left records behind names their causes, and the command that shows all of them', async () => {
    const world = await open();
    for (let at = 0; at < 9; at++) {
      await world.sql`INSERT INTO rooms VALUES (${`X${at}`}, 'x', ${`x${at}`})`;
      world.sandbox.refuseObject(`room_x${at}`, { status: 400, message: `no ${at}` });
    }
    const { run } = await world.sync();
    const text = await printed(world, run);
    expect(text).toMatch(/^- 9 records of rooms given up \(refused_400\), since /m);
    expect(text).toContain("rooms 'X0', rooms 'X1', rooms 'X2', rooms 'X3', rooms 'X4', …");
    expect(text).toContain("9 different reasons; that of 'X0': no 0");
    expectNextStep(text, 'person');
    expect(text).toMatch(/9 records are not in sync: slotsync failures/);
  });

  it('that holds retirements says why, and that it is a person’s turn', async () => {
    const world = await open();
    await world.sync();
    await world.sql`DELETE FROM rooms`;
    const { run } = await world.sync();
    expect(run.status).toBe('held');
    const text = await printed(world, run);
    expect(text).toMatch(
      /2 deactivations of rooms, held in run \d+\n {4}2 of 2 records would be deactivated, but the source is empty/,
    );
    expectNextStep(text, 'person');
  });
});
