// Guarantees 5, 6
// A stream that is renamed in the configuration: its records, and everything else in the state, follow the new name.
import { afterEach, describe, expect, it, vi } from 'vitest';
import { createAppBase, type App } from '../../src/app/app.js';
import { renameStream } from '../../src/commands/rename.js';
import { checkConfiguration } from '../../src/config/config-file.js';
import { loadSettings } from '../../src/config/settings.js';
import { openTriggers } from '../../src/mirror/install-triggers.js';
import { listActions } from '../../src/state/actions.js';
import { listFrozen } from '../../src/state/freezes.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { notePresence } from '../../src/state/processes.js';
import { listStreams } from '../../src/state/streams.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { listLostTriggers } from '../../src/state/inbox/read-inbox.js';
import { isForMirrorAlone } from '../support/services.js';
import {
  codes,
  COURSES,
  keepRooms,
  ROOMS,
  rooms,
  roomsAndCourses,
  type RoomWorld,
} from '../support/steps.js';

const open = keepRooms();
const halls = (changes: Partial<typeof ROOMS> = {}): SlotsyncConfig => ({
  streams: { halls: { ...ROOMS, ...changes } },
});
const references = { 'course.room': { stream: 'halls', key: 'room' } };
const hallsAndCourses = { streams: { courses: { ...COURSES, references }, halls: ROOMS } };

afterEach(() => void vi.restoreAllMocks());

/** Runs the command as an operator does, with the configuration that has the new name. */
async function run(world: RoomWorld, config: SlotsyncConfig, from = 'rooms', to = 'halls') {
  vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  const settings = loadSettings(['state'], { STATE_DATABASE_URL: world.url });
  const parts = { configuration: checkConfiguration(config), state: world.state };
  const app = createAppBase(settings, world.log, { command: 'rename-stream', parts });
  try {
    await renameStream(app as unknown as App, from, to, {});
  } finally {
    await app.close();
  }
}
/** Returns the tables of the state that contain this text, without tables of history. */
async function tablesWith(world: RoomWorld, text: string): Promise<string[]> {
  const tables = await world.sql<{ name: string }[]>`
    SELECT relname AS name FROM pg_class
    WHERE relnamespace = 'slotsync'::regnamespace AND relkind = 'r' AND relname NOT IN ('actions', 'removals') ORDER BY relname`;
  const found: string[] = [];
  for (const { name } of tables) {
    const rows = await world.sql.unsafe(
      `SELECT 1 FROM slotsync.${name} AS t WHERE position($1 IN to_jsonb(t)::text) > 0 LIMIT 1`,
      [text],
    );
    if (rows.length > 0) found.push(name);
  }
  return found;
}

describe('rename-stream', () => {
  it('lets the next sync of the stream and of referring streams send nothing and hold nothing', async () => {
    const world = await open(roomsAndCourses());
    await world.addRooms(...codes(20));
    await world.sql`INSERT INTO courses SELECT 'c' || code, 'Course', code FROM rooms`;
    await world.sync();
    world.configure(hallsAndCourses);
    await run(world, hallsAndCourses);
    world.sandbox.clearArrivals();
    const { run: synced, errors } = await world.sync();
    expect(errors).toEqual([]);
    const unchanged = { unchanged: 20 };
    expect(synced).toMatchObject({ status: 'succeeded', plan: { halls: unchanged, courses: unchanged } });
    expect(synced.holds).toEqual({});
    expect(world.writes()).toEqual([]);
    expect(Object.keys(await world.statusesOf('halls'))).toHaveLength(20);
    expect(await world.recordsOf('rooms')).toEqual({});
    expect(await listActions(world.state.db, { limit: 1 })).toMatchObject([
      { action: 'rename_stream', subject: 'rooms to halls' },
    ]);
    await world.rename('r003', 'new');
    await world.sync();
    expect(world.nameOf('r003')).toBe('new');
  });

  it('opens the gate that a sync under the new name has closed', async () => {
    const world = await open(rooms(), { synced: codes(20) });
    world.configure(halls());
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.writes()).toEqual([]);
    const gates = () => world.sql`SELECT stream, reason, count FROM slotsync.gates`;
    expect(await gates()).toEqual([{ stream: 'halls', reason: 'owned_by_former_stream', count: 20 }]);
    await run(world, halls());
    expect(await gates()).toEqual([]);
    expect(await world.sql`SELECT FROM slotsync.held`).toHaveLength(0);
    expect((await world.sync()).run.status).toBe('succeeded');
    expect(world.writes()).toEqual([]);
    expect(await listStreams(world.state.db)).toMatchObject([{ stream: 'halls', dueSince: null }]);
  });

  it('leaves the former name in no table', async () => {
    const world = await open(roomsAndCourses());
    const { sql, state } = world;
    await world.addRooms('A', 'B');
    await sql`INSERT INTO courses VALUES ('C', 'Course', 'later'), ('D', 'Course', 'A')`;
    await world.sync();
    await addChanges(state.db, 'rooms', ['A']);
    await world.freeze(['rooms', 'courses']);
    await sql`INSERT INTO slotsync.freezes (streams, except_streams, ends_at, reason) VALUES (NULL, '{rooms}', now() + interval '1 hour', 'y')`;
    await sql.unsafe(`
      INSERT INTO slotsync.links (stream, local_key, external_id, linked_by) VALUES ('rooms', 'L', 'linked', 'match');
      INSERT INTO slotsync.drift (stream, local_key, kind, seen_at) VALUES ('rooms', 'A', 'missing', now());
      INSERT INTO slotsync.drift_events (stream, local_key, to_kind) VALUES ('rooms', 'A', 'missing');
      INSERT INTO slotsync.verifications (stream, verified_at, objects) VALUES ('rooms', now(), 1);
      INSERT INTO slotsync.freshness (stream, max_hours, read_at) VALUES ('rooms', 1, now());
      INSERT INTO slotsync.schedules (name, pattern, timezone, streams) VALUES ('own', '0 1 * * *', 'UTC', '{rooms,courses}');
      INSERT INTO slotsync.gates (stream, operation, reason, run_id, count, digest, facts)
        VALUES ('rooms', 'update', 'limit', 1, 1, 'd', '{"accepted": 1}');
      INSERT INTO slotsync.held (stream, local_key, operation, gate, reason) VALUES ('rooms', 'B', 'update', 'update', 'limit');
      UPDATE slotsync.runs SET holds = '{"rooms": {"update": {"operation": "update", "reason": "limit", "count": 1, "facts": {"accepted": 1}}}}'`);
    expect((await tablesWith(world, '"rooms"')).length).toBeGreaterThan(10);
    world.configure(hallsAndCourses);
    await run(world, hallsAndCourses);
    expect(await tablesWith(world, '"rooms')).toEqual([]);
    expect(await listFrozen(state.db, ['halls', 'courses'])).toHaveLength(2);
    const [waiting] = await sql`SELECT waits_for FROM slotsync.records WHERE waits_for IS NOT NULL`;
    expect(waiting).toEqual({ waits_for: JSON.stringify(['halls', 'later']) });
  });

  it.skipIf(isForMirrorAlone())('renames the triggers of the stream', async () => {
    const world = await open(rooms(), { synced: ['A'] });
    const triggers = openTriggers({ url: world.url, channel: 'slotsync_changes' });
    await triggers.install(world.stream('rooms'));
    world.configure(halls());
    await run(world, halls());
    expect(await triggers.list()).toEqual(['slotsync_changes_halls']);
    expect(await listLostTriggers(world.state.db, ['halls'])).toEqual([]);
    await triggers.close();
    await world.renameAll('new');
    expect(await world.sql`SELECT stream, local_key AS key FROM slotsync.changes`).toEqual([
      { stream: 'halls', key: 'A' },
    ]);
  });

  const synced = () => open(rooms(), { synced: ['A'] });
  /** Nothing has changed. */
  const expectRefused = async (world: RoomWorld, refused: Promise<void>, message: string | RegExp) => {
    await expect(refused).rejects.toThrow(message);
    expect(Object.keys(await world.recordsOf('rooms'))).toEqual(['A']);
    expect(await listActions(world.state.db, { limit: 1 })).toEqual([]);
  };

  it('is refused for wrong names, and while a run over the stream is under way', async () => {
    const world = await synced();
    const refused = (config: SlotsyncConfig, names: [string?, string?], message: string) =>
      expectRefused(world, run(world, config, ...names), message);
    await refused(rooms(), ['rooms', 'rooms'], "both names are 'rooms'");
    await refused(halls(), ['room'], "the state has no stream 'room'");
    await refused(halls(), ['rooms', 'hall'], "no stream 'hall' is in the configuration");
    const both = { streams: { ...rooms().streams, ...halls({ externalId: 'hall_{code}' }).streams } };
    await refused(both, [], "the stream 'rooms' is still in the configuration");
    const id = await world.startRun('rooms');
    await refused(halls(), [], `run ${id} of 'rooms' or 'halls' has not ended`);
    await world.cancel(id);
    await world.sql`INSERT INTO slotsync.records (stream, local_key, status) VALUES ('halls', 'H', 'synced')`;
    await refused(halls(), [], "the stream 'halls' already has records");
  });

  it.skipIf(isForMirrorAlone())('is refused while the table of its triggers is busy', async () => {
    const world = await synced();
    const triggers = openTriggers({ url: world.url, channel: 'slotsync_changes' });
    await triggers.install(world.stream('rooms'));
    await world.sql.begin(async (tx) => {
      await tx`UPDATE rooms SET seats = 1`;
      await expectRefused(world, run(world, halls()), "the table of 'halls' is locked by other writers");
    });
    expect(await triggers.list()).toEqual(['slotsync_changes_rooms']);
    await triggers.close();
  });

  it('is refused while a process works with the former configuration', async () => {
    const world = await synced();
    const { fingerprints } = checkConfiguration(rooms());
    const worker = { id: 'w', command: 'worker', host: 'night', pid: 7 };
    await notePresence(world.state.db, worker, null, {
      configuration: { ...fingerprints, loadedAt: new Date() },
    });
    await expectRefused(
      world,
      run(world, halls()),
      "worker on night, process 7, still has 'rooms' in its configuration",
    );
  });
});
