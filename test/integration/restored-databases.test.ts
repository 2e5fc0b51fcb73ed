// Guarantee 11
// Restored databases: objects that were sent since the backup are unknown to the state. Each restore is a real one: a database
// recreated from a copy, a backup of a whole server, or a replica that takes over.
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { createMirror } from '../../src/mirror/mirror.js';
import { startPresence } from '../../src/queue/presence.js';
import { readSituation } from '../../src/situation/situation.js';
import { readKnowledge } from '../../src/state/records/read/unsent-records.js';
import { describeSettled } from '../../src/documents/failures.js';
import { openState } from '../../src/state/database.js';
import {
  noteDatabase,
  readDatabase,
  readRestored,
  readStateFacts,
} from '../../src/state/restored-databases.js';
import { migrate } from '../../src/state/migrate.js';
import { notePresence, removeProcess } from '../../src/state/processes.js';
import { startRun } from '../../src/state/runs/start-run.js';
import { checkDatabases } from '../../src/sync/operator/check.js';
import { verify } from '../../src/sync/verify/verify.js';
import { backUpDatabase, inDatabase, startCluster, type Cluster } from '../support/clusters.js';
import {
  addRooms,
  codes,
  expectInSync,
  keepRoomWorlds,
  nameAtService,
  rename,
  rooms,
} from '../support/room-worlds.js';
import { createDatabase, type TestDatabase } from '../support/services.js';
import { until } from '../support/wait.js';
import { createSharedDatabase, type World } from '../support/world.js';
import { reasonHeld } from '../support/held-reason.js';

const open = keepRoomWorlds();

/** Opens a world in a database of its own. */
async function openOwn(): Promise<World> {
  const database = await createSharedDatabase();
  onTestFinished(() => database.drop());
  return open(rooms(), { database });
}

/** Dates all writes an hour back, so that no object needs a second reading. */
const settle = (world: World) =>
  world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour'`;

async function repair(world: World) {
  const request = { kind: 'repair', lane: 'verify', startedBy: 'command' } as const;
  const { run } = await startRun(world.state.db, { ...request, streams: ['rooms'] });
  return world.finish(run.id, (await world.planRun(run.id)).queue);
}

const saidOf = async ({ state }: World) => describeSettled(await readKnowledge(state.db));

describe('a state and a mirror restored together', () => {
  /** Two rooms were changed at the service since the backup. */
  async function restored(): Promise<World> {
    const world = await openOwn();
    await addRooms(world, ...codes(5));
    await world.sync();
    const putBack = await backUpDatabase(world.url);
    await rename(world, 'r001', 'sent since');
    await rename(world, 'r002', 'sent since');
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
    await putBack();
    return world;
  }

  it('leave no run succeeded, and nothing in sync, until a whole verify and a repair', async () => {
    const world = await restored();
    // Before any run, for who only looks.
    expect(await saidOf(world)).toContain('are unknown: slotsync verify --repair');
    expect(await readSituation(world.state.db)).toMatchObject({ known: { restored: { since: null } } });

    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'partial', errorCode: 'state_restored' });
    expect(run.errorMessage).toMatch(/^the state is another database of its server/);
    expect(nameAtService(world, 'r001')).toBe('sent since');
    expect(await saidOf(world)).toContain('are unknown');
    expect(await readSituation(world.state.db)).toMatchObject({
      known: { restored: { since: expect.any(Date) } },
    });

    await settle(world);
    await verify(world.verifying(), { sample: 1 });
    expect(await readRestored(world.state.db)).toBeDefined();
    expect(await verify(world.verifying())).toMatchObject({ drifting: 2 });
    expect(await readRestored(world.state.db)).toBeUndefined();
    // The mirror was put back as well: what it would repair is older, and is not sent unasked.
    const { run: repairing } = await repair(world);
    expect(repairing).toMatchObject({ status: 'held' });
    expect(reasonHeld(repairing, 'rooms', 'repair')).toMatch(
      /approve only if its data is whole and not older/,
    );
    expect(nameAtService(world, 'r001')).toBe('sent since');
    expect((await world.approve(repairing.id)).run).toMatchObject({ status: 'succeeded' });
    await expectInSync(world);
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded', errorCode: null });
    expect(await saidOf(world)).toBe('Every record is in sync as of the last plan.');
  });

  it('are not settled by a verify of one stream, or by a verify that began before', async () => {
    const world = await restored();
    await world.sync();
    await settle(world);
    const deps = world.verifying();
    const stream = world.stream('rooms');
    const streams = new Map([...deps.streams, ['other', { ...stream, name: 'other' }]]);
    await verify({ ...deps, streams }, { streams: [stream] });
    expect(await readRestored(world.state.db)).toBeDefined();
    await world.sql`UPDATE slotsync.databases SET restored_at = now() + interval '1 second' WHERE name = 'state'`;
    await verify(deps);
    expect(await readRestored(world.state.db)).toBeDefined();
  });
});

it('a state whose tables were restored into the same database is recognized as restored', async () => {
  const world = await openOwn();
  await addRooms(world, 'r001');
  await world.sync();
  await world.sql`CREATE TABLE slotsync.restored (LIKE slotsync.destination INCLUDING ALL)`;
  await world.sql`DROP TABLE slotsync.destination`;
  await world.sql`ALTER TABLE slotsync.restored RENAME TO destination`;
  expect((await world.sync()).run).toMatchObject({ status: 'partial', errorCode: 'state_restored' });
});

it('a state of an earlier version is noted, and is not recognized as restored', async () => {
  const world = await open(rooms());
  await addRooms(world, 'r001');
  await world.sync();
  await world.sql`DELETE FROM slotsync.databases`;
  expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
  expect(await readDatabase(world.state.db, 'state')).toMatchObject({ restoredAt: null });
});

it('a process at work recognizes a restored state by the loss of its last note', async () => {
  const world = await open(rooms());
  const { state, log, sql } = world;
  const presence = await startPresence({ state, log, command: 'worker' });
  onTestFinished(() => presence.close());
  const seen = async () =>
    (await sql`SELECT seen_at FROM slotsync.processes`)[0]?.['seen_at'] as Date | undefined;
  await until(seen, { describe: 'the process to be noted' });
  const isRestored = async () => (await readRestored(state.db)) !== undefined;

  presence.sendingResumed();
  const first = await seen();
  await until(async () => (await seen())?.getTime() !== first?.getTime(), { describe: 'the renewal' });
  expect(await isRestored()).toBe(false);
  await sql`UPDATE slotsync.processes SET seen_at = seen_at - interval '1 minute'`;
  presence.sendingResumed();
  await until(isRestored, { describe: 'the state to count as restored' });
});

it('a process that slept until its row was deleted recognizes no restored state', async () => {
  const world = await open(rooms());
  const { db } = world.state;
  const process_ = { id: 'slept', command: 'worker', host: 'h', pid: 1 };
  const daysAgo = (days: number) => new Date(Date.now() - days * 24 * 60 * 60 * 1000).toISOString();
  expect(await notePresence(db, process_, null, { notedAt: daysAgo(8) })).toMatchObject({ isPutBack: false });
  await removeProcess(db, process_.id);
  expect(await notePresence(db, process_, null, { notedAt: daysAgo(6) })).toMatchObject({ isPutBack: true });
});

describe('a mirror that is another database', () => {
  let other: TestDatabase;
  beforeAll(async () => (other = await createDatabase()));
  afterAll(() => other.drop());

  /** The mirror is another database from now on, with these rooms. */
  async function moveMirror(world: World, names: Record<string, string>): Promise<void> {
    await inDatabase(other.url, async (sql) => {
      await sql`CREATE TABLE rooms (code text PRIMARY KEY, name text, seats integer, number text)`;
      for (const [code, name] of Object.entries(names))
        await sql`INSERT INTO rooms (code, name) VALUES (${code}, ${name})`;
    });
    const mirror = createMirror({ url: other.url });
    onTestFinished(() => mirror.close());
    world.useMirror(mirror);
  }

  it('has the next plan of a stream held until an approval', async () => {
    const world = await open(rooms({ retire: 'deactivate' }));
    await addRooms(world, 'r001', 'r002', 'r003');
    await world.sync();
    await world.sql`UPDATE slotsync.records SET in_doubt = true WHERE local_key = 'r002'`;
    await moveMirror(world, { r001: 'older', r002: 'Room r002', r004: 'new' });

    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'held' });
    expect(run.holds['rooms']).toMatchObject({
      create: { count: 1, reason: 'restored' },
      update: { count: 1 },
      retire: { count: 1 },
    });
    expect(reasonHeld(run, 'rooms', 'update')).toMatch(
      /^the mirror is another database of its server \(.*\): approve only if .*; 1 of 3 records would be updated; if that is so: slotsync approve/,
    );
    expect(nameAtService(world, 'r001')).toBe('Room r001');
    const single = await world.planChanges('rooms', 'r001');
    expect(single.queue).toEqual([]);
    expect((await world.finish(single.runId, [])).run).toMatchObject({ status: 'held' });

    const { run: next } = await world.sync();
    expect(next.status).toBe('held');
    expect((await world.approve(next.id)).run).toMatchObject({ status: 'succeeded' });
    expect(nameAtService(world, 'r001')).toBe('older');

    await inDatabase(other.url, (sql) => sql`UPDATE rooms SET name = 'later'`);
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
    expect(nameAtService(world, 'r001')).toBe('later');
  });
});

describe('a server of PostgreSQL', () => {
  let cluster: Cluster;
  let url: string;
  beforeAll(async () => {
    cluster = await startCluster();
    url = await cluster.createDatabase('campus');
    await migrate(url);
  });
  afterAll(() => cluster.stop());

  async function connect(at: string) {
    const state = openState({ url: at });
    const mirror = createMirror({ url: at });
    onTestFinished(async () => {
      await mirror.close();
      await state.close();
    });
    const { db } = state;
    return {
      db,
      mirror,
      noteState: () => noteDatabase(db, 'state', readStateFacts),
      /** The mirror as another state sees it. */
      noteMirrorOf: (seen: typeof mirror) => noteDatabase(db, 'mirror', () => seen.facts()),
    };
  }

  it('is recognized as restored for the mirror, after recovery to a new timeline for the state too', async () => {
    const backup = await cluster.backUp();
    const database = await createDatabase();
    onTestFinished(() => database.drop());
    const state = await connect(database.url);
    const primary = await connect(url);
    await primary.noteState();
    const noted = await cluster.backUp();
    await inDatabase(url, async (sql) => {
      // More than an idle server writes, and on disk: the position is not ahead of what a crash would leave.
      await sql`CREATE TABLE since AS SELECT generate_series(1, 200000)`;
      await sql`CHECKPOINT`;
    });
    expect(await state.noteMirrorOf((await connect(url)).mirror)).toEqual({ is: 'same' });

    const old = await connect((await cluster.start(backup, 'it was', 'campus')).url);
    expect(await state.noteMirrorOf(old.mirror)).toMatchObject({
      is: 'other',
      why: expect.stringContaining('restored to an earlier time'),
    });
    expect(await state.noteMirrorOf(old.mirror)).toEqual({ is: 'same' });
    const restored = await connect((await cluster.start(noted, 'recovery', 'campus')).url);
    const recovered = {
      is: 'other',
      why: expect.stringContaining('recovered from a backup (timeline 2, before 1)'),
    };
    expect(await state.noteMirrorOf(restored.mirror)).toMatchObject({ is: 'other' });
    expect(await readRestored(restored.db)).toMatchObject({ since: null });
    expect(await restored.noteState()).toMatchObject(recovered);
  });

  it('is read again by a process that has read an earlier moment than another has noted', async () => {
    const { db, mirror } = await connect(url);
    const late = await mirror.facts();
    await noteDatabase(db, 'mirror', async () => late);
    const early = { ...late, walPosition: (late.walPosition ?? 0) - 1000 };
    const readings = [early, late];
    expect(await noteDatabase(db, 'mirror', async () => readings.shift() ?? late)).toEqual({ is: 'same' });
    expect(readings).toEqual([]);
    expect(await noteDatabase(db, 'mirror', async () => early)).toMatchObject({ is: 'other' });
  });

  it('is the same mirror as its replica, even after the promotion of the replica', async () => {
    const data = await cluster.backUp();
    const primary = await connect(url);
    const replica = await cluster.start(data, 'replica', 'campus');
    const second = await connect(replica.url);
    await primary.noteState();
    for (const { mirror } of [primary, second, primary])
      expect(await primary.noteMirrorOf(mirror)).toEqual({ is: 'same' });
    await inDatabase(url, (sql) => sql`CREATE TABLE last_of_the_primary ()`);
    await until(
      async () =>
        (await inDatabase(replica.url, (sql) => sql`SELECT to_regclass('last_of_the_primary') AS it`))[0]?.[
          'it'
        ],
      { describe: 'the replica to follow' },
    );
    await cluster.halt();
    await replica.promote();

    expect(await readRestored(second.db)).toBeUndefined();
    expect(await second.noteState()).toEqual({ is: 'promoted' });
    expect(await second.noteMirrorOf(second.mirror)).toEqual({ is: 'promoted' });
    expect(await second.noteState()).toEqual({ is: 'same' });
    expect(await readRestored(second.db)).toBeUndefined();
    await cluster.restart();
  });

  it('is known by its oid only to a role that may not ask it, and check names the missing right', async () => {
    const { db, mirror } = await connect(url);
    await inDatabase(url, async (sql) => {
      await sql`REVOKE EXECUTE ON FUNCTION pg_control_system(), pg_walfile_name(pg_lsn) FROM PUBLIC`;
      await sql`CREATE ROLE reader LOGIN PASSWORD 'reader'`;
    });
    const reader = new URL(url);
    reader.username = reader.password = 'reader';
    const asReader = createMirror({ url: reader.href });
    onTestFinished(() => asReader.close());
    await noteDatabase(db, 'mirror', () => mirror.facts());
    expect(await noteDatabase(db, 'mirror', () => asReader.facts())).toEqual({ is: 'same' });
    const findings = [];
    for await (const finding of checkDatabases({ db }, asReader)) findings.push(finding);
    expect(findings).toMatchObject([
      { what: 'database of the state', result: 'ok', text: expect.stringContaining('system identifier ') },
      {
        what: 'database of the mirror',
        result: 'ok',
        text: expect.stringMatching(/does not tell: system identifier, timeline$/),
      },
    ]);
    const other = await inDatabase(url, async (sql) => {
      await sql`CREATE DATABASE another`;
      return new URL(url.replace('campus', 'another'));
    });
    [other.username, other.password] = ['reader', 'reader'];
    const another = createMirror({ url: other.href });
    onTestFinished(() => another.close());
    expect(await noteDatabase(db, 'mirror', () => another.facts())).toMatchObject({ is: 'other' });
  });
});
