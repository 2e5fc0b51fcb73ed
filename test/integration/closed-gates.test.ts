// Guarantees 6, 10, 11
// Closed gates as operators meet them: shown from the keys that are held now, answered once, and forgotten with a key.
import { afterEach, describe, expect, it, vi } from 'vitest';
import { isLatestNightlyBad } from '../../src/alerts/evaluate-alerts.js';
import type { App } from '../../src/app/app.js';
import { exitCodeOfRun } from '../../src/commands/command.js';
import { unfreeze } from '../../src/commands/freeze.js';
import { startAndWork } from '../../src/commands/work-run.js';
import { checkConfiguration } from '../../src/config/config-file.js';
import { listFrozen } from '../../src/state/freezes.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { readInbox, readInboxAge } from '../../src/state/inbox/read-inbox.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import { listStreams } from '../../src/state/streams.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { approve, requireStarted } from '../../src/sync/operator/approve.js';
import { codes, keepRooms, OPERATOR, rooms, ROOMS, statusOf, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

afterEach(() => void vi.restoreAllMocks());

const shownIn = async ({ state }: RoomWorld) => (await statusOf(state)).replaceAll(/\s+/g, ' ');

/** The parts of the program that these commands use. */
function appOf(world: RoomWorld, config: SlotsyncConfig): App {
  vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  return {
    configuration: async () => checkConfiguration(config),
    state: async () => world.state,
    timeZone: async () => 'UTC',
    actor: async () => OPERATOR,
    queue: async () => ({ producer: { enqueueRun: async () => undefined } }),
  } as unknown as App;
}

it('an approval does nothing while another run over the stream is unfinished or a freeze lasts', async () => {
  const world = await open(rooms({ retire: 'deactivate' }), { synced: codes(40) });
  await world.remove(...codes(11));
  const { run } = await world.sync();
  const runId = run.id;
  await world.freeze();
  await expect(approve(world.approving(), { runId })).rejects.toThrow('rooms is frozen until');
  await world.sql`DELETE FROM slotsync.freezes`;
  const other = await world.startRun();
  const answer = await approve(world.approving(), { runId });
  expect(answer).toMatchObject({ started: false, run: { id: other }, approvals: [] });
  expect(() => requireStarted(answer)).toThrow(
    `nothing was approved: run ${other} over the same streams is not finished yet`,
  );
  expect(await world.gates()).toEqual(['rooms retire limit 11']);
});

describe('a freeze', () => {
  it('is no failure: the exit code is 0, the nightly run is not bad, and no person is needed', async () => {
    const world = await open(rooms(), { synced: ['A'] });
    await world.rename('A', 'new');
    await world.freeze(null);
    const { run } = await world.sync();
    await world.sql`UPDATE slotsync.runs SET started_by = 'schedule'`;
    expect({ status: run.status, code: exitCodeOfRun(run) }).toEqual({ status: 'held', code: 0 });
    expect(await isLatestNightlyBad(world.state.db)).toBe(false);
    const shown = await shownIn(world);
    expect(shown).toContain('All streams: frozen until');
    expect(shown).toContain('Waiting: 1 record held.');
    expect(shown).toMatch(/^Frozen until /);
    expect(shown).not.toContain('is in sync');
  });

  it('does not count towards the age of a change, which begins at the end of the freeze', async () => {
    const world = await open(rooms());
    await addChanges(world.state.db, 'rooms', ['A']);
    await world.sql`UPDATE slotsync.changes SET requested_at = now() - interval '2 days'`;
    await world.freeze();
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

  it('ends by its name for a stream that left the configuration, or without names if it is of all', async () => {
    const world = await open(rooms());
    await world.freeze();
    const halls = { streams: { halls: ROOMS } };
    await expect(unfreeze(appOf(world, halls), ['attics'], {})).rejects.toThrow("no stream 'attics'");
    await unfreeze(appOf(world, halls), ['rooms'], {});
    expect(await listFrozen(world.state.db, ['rooms'])).toEqual([]);
    await world.freeze(null);
    await unfreeze(appOf(world, rooms()), [], {});
    expect(await listFrozen(world.state.db, ['rooms', 'new'])).toEqual([]);
    expect(await world.due()).toEqual({ rooms: 'frozen' });
  });
});

describe('a detached sync beside an unfinished run', () => {
  it.each([
    ['over whole streams makes them due', {}, 0, 'busy', 'rooms is due: a worker starts the sync'],
    ['over a part of a stream fails', { limit: 1 }, 1, undefined, 'nothing was queued. Repeat the command'],
  ])('%s, and says so', async (_, range, code, reason, said) => {
    const config = rooms();
    const world = await open(config);
    const { fingerprints } = checkConfiguration(config);
    const part = { lane: 'backfill', range: { keys: ['A'] }, fingerprints };
    const runId = await world.startRunOf({ ...part, kind: 'backfill' });
    const request = { kind: 'sync', lane: 'sync', range: 'limit' in range ? range : undefined } as const;
    const options = { json: false, detach: true, concurrency: undefined };
    const { streams } = checkConfiguration(config);
    const work = { resumeCommand: 'slotsync sync' };
    expect(await startAndWork(appOf(world, config), streams, request, options, work)).toBe(code);
    const printed = vi.mocked(process.stdout.write).mock.calls.join('');
    expect(printed).toContain(`Run ${runId} over the same streams is unfinished`);
    expect(printed).toContain(said);
    expect((await readRun(world.state.db, runId))?.finishedAt).toBeNull();
    expect((await listStreams(world.state.db))[0]?.dueReason).toBe(reason);
  });
});
