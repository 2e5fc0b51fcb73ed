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
import { readGates } from '../../src/state/gates/gates.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { readInbox, readInboxAge } from '../../src/state/inbox/read-inbox.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import { startRun } from '../../src/state/runs/start-run.js';
import { listStreams } from '../../src/state/streams.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { approve, requireStarted } from '../../src/sync/operator/approve.js';
import { freeze } from '../support/gated-rooms.js';
import { codes, keepRoomWorlds, rename, rooms, ROOMS } from '../support/room-worlds.js';
import { OPERATOR } from '../support/operator.js';
import { statusOf } from '../support/status.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const RETIRING = rooms({ retire: 'deactivate' });

afterEach(() => void vi.restoreAllMocks());

/** Opens a world of 40 rooms, of which 11 are gone. Their deactivations are held. */
async function openHeld(): Promise<{ world: World; runId: number }> {
  const world = await open(RETIRING, { synced: codes(40) });
  await world.sql`DELETE FROM rooms WHERE code < 'r011'`;
  const { run } = await world.sync();
  expect(run.status).toBe('held');
  return { world, runId: run.id };
}
const gatesOf = ({ state }: World) => readGates(state.db);
const shownIn = async ({ state }: World) => (await statusOf(state)).replaceAll(/\s+/g, ' ');

/** The parts of the program that these commands use. */
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

it('an approval does nothing while another run over the stream is unfinished or a freeze lasts', async () => {
  const { world, runId } = await openHeld();
  await freeze(world);
  await expect(approve(world.approving(), { runId })).rejects.toThrow('rooms is frozen until');
  await world.sql`DELETE FROM slotsync.freezes`;
  const other = await world.startRun();
  const answer = await approve(world.approving(), { runId });
  expect(answer).toMatchObject({ started: false, run: { id: other }, approvals: [] });
  expect(() => requireStarted(answer)).toThrow(
    `nothing was approved: run ${other} over the same streams is not finished yet`,
  );
  expect(await gatesOf(world)).toMatchObject([{ approval: null }]);
});

describe('a freeze', () => {
  it('is no failure: the exit code is 0, the nightly run is not bad, and no person is needed', async () => {
    const world = await open(rooms(), { synced: ['A'] });
    await rename(world, 'A', 'new');
    await freeze(world, null);
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
    await freeze(world);
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
    await freeze(world);
    const halls = { streams: { halls: ROOMS } };
    await expect(unfreeze(appOf(world, halls), ['attics'], {})).rejects.toThrow("no stream 'attics'");
    await unfreeze(appOf(world, halls), ['rooms'], {});
    expect(await listFrozen(world.state.db, ['rooms'])).toEqual([]);
  });

  it('ends without names if it is of all streams, and makes the streams due', async () => {
    const world = await open(rooms());
    await freeze(world, null);
    await unfreeze(appOf(world, rooms()), [], {});
    expect(await listFrozen(world.state.db, ['rooms', 'new'])).toEqual([]);
    expect(await listStreams(world.state.db)).toMatchObject([{ stream: 'rooms', dueReason: 'frozen' }]);
  });
});

describe('a detached sync beside an unfinished run', () => {
  it.each([
    ['over whole streams makes them due', {}, 0, 'busy'],
    ['over a part of a stream fails', { limit: 1 }, 1, undefined],
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
