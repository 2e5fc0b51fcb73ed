// The noted actions of operators: who, when and why. An action without an effect is not noted.
import { expect, it } from 'vitest';
import { actionsDocument } from '../../src/documents/actions.js';
import { answerToText } from '../../src/render/text.js';
import { actAs, listActions, noteAction, requireReason, toRecords, toRuns } from '../../src/state/actions.js';
import { rejectGates } from '../../src/state/gates/answers.js';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { pruneNotes } from '../../src/state/retention.js';
import { setPaused } from '../../src/state/runs/advance-run.js';
import { approve } from '../../src/sync/operator/approve.js';
import { FEW, keepRooms, OPERATOR, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

/** Returns the noted actions, oldest first. */
async function noted({ state, sql }: RoomWorld) {
  expect(await sql`SELECT FROM slotsync.actions WHERE at > now()`).toHaveLength(0);
  const actions = await listActions(state.db, { limit: 100 });
  return actions
    .toReversed()
    .map(({ by, via, action, subject, runId, reason }) => ({ by, via, action, subject, runId, reason }));
}

it('an approval and a rejection are noted with run, number, person and reason', async () => {
  const world = await open(rooms({ retire: 'deactivate', limits: { retire: FEW } }), {
    synced: ['A', 'B', 'C', 'D'],
  });
  await world.remove('B', 'C', 'D');
  await world.sync();
  const approving = {
    ...world.approving(),
    actor: { by: 'ada', via: 'command', reason: 'moved to Lund' } as const,
  };
  await rejectGates(world.state.db, 2, {}, { by: null, via: 'page' });
  await approve(approving, { runId: 2 });
  await expect(approve(approving, { runId: 2 })).rejects.toThrow('is already approved');
  await expect(rejectGates(world.state.db, 2, {}, OPERATOR)).rejects.toThrow();
  const facts = { subject: 'rooms: retire 3', runId: 2 };
  expect(await noted(world)).toEqual([
    { by: null, via: 'page', action: 'reject', ...facts, reason: null },
    { by: 'ada', via: 'command', action: 'approve', ...facts, reason: 'moved to Lund' },
  ]);

  const [action] = await listActions(world.state.db, { limit: 1 });
  const document = actionsDocument(action ? [{ ...action, at: new Date('2026-03-02T05:00:00Z') }] : []);
  const text = answerToText(document, { timeZone: 'UTC', columns: 80 });
  expect(text).toContain('2026-03-02 05:00:00 UTC: ada approved rooms: retire 3, run 2\n');
  expect(text).toContain('Reason: moved to Lund');
});

it('an action is noted once for each run and stream, and only if it had an effect', async () => {
  const world = await open(rooms());
  const { db } = world.state;
  await world.addRooms('A');
  const runId = await world.startRun();
  const pause = (paused: boolean) =>
    actAs(db, OPERATOR, paused ? 'pause' : 'resume', (tx) => setPaused(tx, paused, runId), toRuns);
  await pause(true);
  await pause(true);
  await pause(false);
  await actAs(db, OPERATOR, 'retry', (tx) => retryRecords(tx, { keys: [] }), toRecords);
  const keys = ['1', '2', '3', '4', '5', '6', '7'].map((localKey) => ({ stream: 'rooms', localKey }));
  const subjects = toRecords([...keys, { stream: 'halls', localKey: 'H' }]);
  for (const subject of subjects) await noteAction(db, OPERATOR, 'retry', subject);
  expect((await noted(world)).map(({ action, subject, runId: run }) => [action, subject, run])).toEqual([
    ['pause', null, runId],
    ['resume', null, runId],
    ['retry', "rooms '1', '2', '3', '4', '5' and 2 more", null],
    ['retry', "halls 'H'", null],
  ]);
  // An action that fails is rolled back and is not noted.
  const failing = actAs(
    db,
    OPERATOR,
    'pause',
    async (tx) => {
      await setPaused(tx, true, runId);
      throw new Error('no connection');
    },
    toRuns,
  );
  await expect(failing).rejects.toThrow('no connection');
  expect(await noted(world)).toHaveLength(4);
  expect(await world.sql`SELECT FROM slotsync.runs WHERE paused_at IS NOT NULL`).toHaveLength(0);
});

it('forgetting a key clears the actions that quote it, and its own action names no key', async () => {
  const world = await open(rooms());
  const { db } = world.state;
  await world.addRooms('Eva-1', 'Eva-11');
  await world.sync();
  for (const localKey of ['Eva-1', 'Eva-11'])
    for (const subject of toRecords([{ stream: 'rooms', localKey }]))
      await noteAction(db, { ...OPERATOR, reason: `${localKey} asked for it` }, 'retry', subject);
  await world.remove('Eva-1');
  await actAs(
    db,
    OPERATOR,
    'forget',
    (tx) => forgetKey(tx, { stream: 'rooms', localKey: 'Eva-1' }),
    () => ({ subject: 'rooms' }),
  );
  const cleared = 'removed: this text named a deleted key';
  expect((await noted(world)).map(({ action, subject, reason }) => [action, subject, reason])).toEqual([
    ['retry', cleared, cleared],
    ['retry', "rooms 'Eva-11'", 'Eva-11 asked for it'],
    ['forget', 'rooms', null],
  ]);
});

it('actions are listed by run or by period, and are kept for three years', async () => {
  const world = await open(rooms());
  const { db } = world.state;
  for (const runId of [1, 2]) await noteAction(db, OPERATOR, 'cancel', { runId });
  await world.sql`UPDATE slotsync.actions SET at = now() - make_interval(days => 365 * 3 + 1) WHERE run_id = 1`;
  const idsOf = async (filter: Partial<Parameters<typeof listActions>[1]>) =>
    (await listActions(db, { limit: 10, ...filter })).map(({ runId }) => runId);
  const yesterday = new Date(Date.now() - 24 * 60 * 60 * 1000);
  expect(await idsOf({})).toEqual([2, 1]);
  expect(await idsOf({ runId: 1 })).toEqual([1]);
  expect(await idsOf({ from: yesterday })).toEqual([2]);
  expect(await idsOf({ to: yesterday })).toEqual([1]);
  expect(await idsOf({ limit: 1 })).toEqual([2]);
  await pruneNotes(db);
  expect(await idsOf({})).toEqual([2]);
});

it('a reason is one line of at most 1000 characters', async () => {
  expect(requireReason(' see ticket 12 ')).toBe('see ticket 12');
  expect([requireReason(undefined), requireReason('  ')]).toEqual([undefined, undefined]);
  expect(() => requireReason('x'.repeat(1001))).toThrow('a reason has at most 1000 characters, not 1001');
});
