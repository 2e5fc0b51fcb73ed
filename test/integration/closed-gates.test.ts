// Guarantees 6, 10, 11
// Closed gates as operators meet them: shown from what is held now, answered once, and forgotten with a key.
import { afterEach, describe, expect, it, vi } from 'vitest';
import { isLatestNightlyBad } from '../../src/alerts/note-nightly.js';
import type { App } from '../../src/app/app.js';
import { exitCodeOfRun } from '../../src/commands/exit-code.js';
import { unfreeze } from '../../src/commands/freeze.js';
import { startAndWork } from '../../src/commands/work-run.js';
import { checkConfiguration } from '../../src/config/config-file.js';
import { readHoldingGate } from '../../src/situation/holding-gate.js';
import { readSituation } from '../../src/situation/situation.js';
import { freezeStreams, listFrozen } from '../../src/state/freezes.js';
import { rejectGates } from '../../src/state/gates/answers.js';
import { readGates } from '../../src/state/gates/gates.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { readInbox, readInboxAge } from '../../src/state/inbox/read-inbox.js';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { listBadReadings, readRun } from '../../src/state/runs/read-runs.js';
import { startRun } from '../../src/state/runs/start-run.js';
import { listStreams } from '../../src/state/streams.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { approve } from '../../src/sync/operator/approve.js';
import { addRooms, codes, keepRoomWorlds, rename, rooms, ROOMS } from '../support/room-worlds.js';
import { statusOf } from '../support/status.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const HOUR = 60 * 60 * 1000;
const OPERATOR = { by: 'ada', via: 'command' } as const;
const RETIRING = rooms({ retire: 'deactivate' });

afterEach(() => void vi.restoreAllMocks());

/** A world of 40 rooms, of which 11 are gone: their retirements are held. */
async function openHeld(): Promise<{ world: World; runId: number }> {
  const world = await open(RETIRING);
  await addRooms(world, ...codes(40));
  await world.sync();
  await world.sql`DELETE FROM rooms WHERE code < 'r011'`;
  const { run } = await world.sync();
  expect(run.status).toBe('held');
  return { world, runId: run.id };
}
const freeze = ({ state }: World, ...streams: string[]) =>
  freezeStreams(state.db, {
    streams: streams.length === 0 ? null : streams,
    endsAt: new Date(Date.now() + HOUR),
    reason: 'exam weeks',
    by: 'ada',
  });
const gatesOf = ({ state }: World) => readGates(state.db);
const shownIn = async ({ state }: World) => (await statusOf(state)).replaceAll(/\s+/g, ' ');

/** As much of the program as these commands use. */
function appOf(world: World, config: SlotsyncConfig): App {
  vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  return {
    configuration: async () => checkConfiguration(config),
    state: async () => world.state,
    timeZone: async () => 'UTC',
    actor: async () => OPERATOR,
    queue: async () => ({ producer: { enqueueRun: async () => undefined } }),
  } as unknown as App;
}

describe('an approval', () => {
  it('starts a whole sync together with the note on the gate, and allows the number once', async () => {
    const { world, runId } = await openHeld();
    const { run, started, approvals } = await approve(world.approving(), { runId, shown: 11 });
    expect({ started, kind: run.kind, range: run.range }).toEqual({
      started: true,
      kind: 'sync',
      range: null,
    });
    expect(approvals).toMatchObject([{ stream: 'rooms', approval: { allowed: 11, runId: run.id } }]);
    await expect(approve(world.approving(), { runId })).rejects.toThrow('is approved already');
    const { queue } = await world.planRun(run.id);
    expect((await world.finish(run.id, queue)).run.status).toBe('succeeded');
    expect(await gatesOf(world)).toEqual([]);
    await expect(approve(world.approving(), { runId })).rejects.toThrow('was sent or planned again since');
  });

  it('approves nothing while another run over the stream is unfinished, or the stream is frozen', async () => {
    const { world, runId } = await openHeld();
    await freeze(world, 'rooms');
    await expect(approve(world.approving(), { runId })).rejects.toThrow('rooms is frozen until');
    await world.sql`DELETE FROM slotsync.freezes`;
    const other = await world.startRun();
    expect(await approve(world.approving(), { runId })).toMatchObject({ started: false, run: { id: other } });
    expect(await gatesOf(world)).toMatchObject([{ approval: null }]);
  });

  it('is refused for a stream that left the configuration, with the way out', async () => {
    const { world, runId } = await openHeld();
    const configuration = checkConfiguration({ streams: { halls: ROOMS } });
    const given = approve({ ...world.approving(), configuration }, { runId });
    await expect(given).rejects.toMatchObject({
      message: 'rooms is not in the configuration, so nothing of it is sent',
      remedy: 'Put the stream back. If it was renamed: slotsync rename-stream rooms <new>',
    });
  });
});

it('rejection: the gate stays closed and is quiet until its keys change; the run is done then', async () => {
  const { world, runId } = await openHeld();
  expect(await shownIn(world)).toContain('Needs a person: 1 hold.');
  await rejectGates(world.state.db, runId, {}, OPERATOR);
  expect(await shownIn(world)).toContain('Nothing needs a person.');
  const { run } = await world.sync();
  expect({ status: run.status, code: exitCodeOfRun(run) }).toEqual({ status: 'held', code: 0 });
  expect(await shownIn(world)).toContain('Nothing needs a person.');
  await world.sql`DELETE FROM rooms WHERE code = 'r011'`;
  const changed = await world.sync();
  expect(exitCodeOfRun(changed.run)).toBe(3);
  expect(await shownIn(world)).toContain('Needs a person: 1 hold.');
});

it('forget: a held key is deleted, and its gate keeps back the others', async () => {
  const { world } = await openHeld();
  const key = { stream: 'rooms', localKey: 'r000' };
  expect(await readHoldingGate(world.state.db, key)).toMatchObject({ operation: 'retire', reason: 'limit' });
  expect(await forgetKey(world.state.db, key)).toMatchObject({ deleted: { records: 1, held: 1 } });
  expect(await readHoldingGate(world.state.db, key)).toBeUndefined();
  expect(await gatesOf(world)).toMatchObject([
    { count: 10, firstKeys: ['r001', 'r002', 'r003', 'r004', 'r005'] },
  ]);
});

describe('a freeze', () => {
  it('is no failure: the exit code is 0, the nightly run is not bad, and nothing needs a person', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    await rename(world, 'A', 'new');
    await freeze(world);
    const { run } = await world.sync();
    await world.sql`UPDATE slotsync.runs SET started_by = 'schedule'`;
    expect({ status: run.status, code: exitCodeOfRun(run) }).toEqual({ status: 'held', code: 0 });
    expect(await isLatestNightlyBad(world.state.db, 1000)).toBe(false);
    const shown = await shownIn(world);
    expect(shown).toContain('All streams: frozen until');
    expect(shown).toContain('What waits: 1 record held.');
    expect(shown).toContain('Nothing needs a person.');
    expect(shown).not.toContain('is in sync');
  });

  it('counts not as the age of a change: it is as old as the end of the freeze', async () => {
    const world = await open(rooms());
    await addChanges(world.state.db, 'rooms', ['A']);
    await world.sql`UPDATE slotsync.changes SET requested_at = now() - interval '2 days'`;
    await freeze(world, 'rooms');
    await world.sql`UPDATE slotsync.freezes SET begins_at = now() - interval '3 days', ends_at = now() - interval '1 minute'`;
    const { streams } = await readInbox(world.state.db, ['rooms']);
    expect(streams[0]?.oldestSeconds).toBeLessThan(120);
    const ageForMonitoring = async () => (await readInboxAge(world.state.db)).oldestSeconds;
    expect(await ageForMonitoring()).toBeCloseTo(60, -1);
    await world.sql`UPDATE slotsync.freezes SET ends_at = now() + interval '1 day'`;
    expect(await ageForMonitoring()).toBe(0);
    await world.sql`UPDATE slotsync.freezes SET ends_at = now() - interval '50 hours'`;
    expect(await ageForMonitoring()).toBeGreaterThan(47 * 60 * 60);
  });

  it('ends by its name for a stream that left the configuration', async () => {
    const world = await open(rooms());
    await freeze(world, 'rooms');
    const halls = { streams: { halls: ROOMS } };
    await expect(unfreeze(appOf(world, halls), ['attics'], {})).rejects.toThrow("no stream 'attics'");
    await unfreeze(appOf(world, halls), ['rooms'], {});
    expect(await listFrozen(world.state.db, ['rooms'])).toEqual([]);
  });

  it('ends without names when it is of all streams, which are due then', async () => {
    const world = await open(rooms());
    await freeze(world);
    await unfreeze(appOf(world, rooms()), [], {});
    expect(await listFrozen(world.state.db, ['rooms', 'new'])).toEqual([]);
    expect(await listStreams(world.state.db)).toMatchObject([{ stream: 'rooms', dueReason: 'frozen' }]);
  });
});

describe('a detached sync beside an unfinished run', () => {
  it.each([
    ['of whole streams is due', {}, 0, 'busy'],
    ['of a part fails', { limit: 1 }, 1, undefined],
  ])('%s', async (_, range, code, reason) => {
    const config = rooms();
    const world = await open(config);
    const { run } = await startRun(world.state.db, {
      kind: 'backfill',
      lane: 'backfill',
      startedBy: 'command',
      streams: ['rooms'],
      range: { keys: ['A'] },
      fingerprints: checkConfiguration(config).fingerprints,
    });
    const request = { kind: 'sync', lane: 'sync', range: 'limit' in range ? range : undefined } as const;
    const options = { json: false, detach: true, concurrency: undefined };
    const { streams } = checkConfiguration(config);
    const work = { resumeCommand: 'slotsync sync' };
    expect(await startAndWork(appOf(world, config), streams, request, options, work)).toBe(code);
    expect((await readRun(world.state.db, run.id))?.finishedAt).toBeNull();
    expect((await listStreams(world.state.db))[0]?.dueReason).toBe(reason);
  });
});

it('readings: a reconcile of changes does not end the failure of one of a window, and a later window ends both', async () => {
  const world = await open(rooms());
  const add = (status: string, hours: number) => world.sql`
    INSERT INTO slotsync.runs (kind, lane, started_by, streams, status, error_code, finished_at, range)
    VALUES ('reconcile', 'sync', 'schedule', '{}', ${status}, ${status === 'failed' ? 'timeout' : null}, now(),
      jsonb_build_object('to', (now() + make_interval(hours => ${hours}))::text))`;
  const bad = async () => (await listBadReadings(world.state.db)).map(({ id }) => id);
  await add('failed', 48);
  await add('succeeded', -1);
  expect(await bad()).toEqual([1]);
  await add('failed', -1);
  expect(await bad()).toEqual([3, 1]);
  expect((await readSituation(world.state.db)).badReadings).toHaveLength(2);
  await add('succeeded', 48);
  expect(await bad()).toEqual([]);
});
