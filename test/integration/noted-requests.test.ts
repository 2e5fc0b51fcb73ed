// Facts that processes note in the state: requests by the second, the last answer of the service, and their presence.
import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, it } from 'vitest';
import { bindDestination, readBinding } from '../../src/state/destination-binding.js';
import {
  countOrphanedClaims,
  listProcesses,
  notePresence,
  removeProcess,
} from '../../src/state/processes.js';
import { listRequestSteps, noteRequests, readRequestTotals } from '../../src/state/requests.js';
import { queryOne } from '../../src/state/database.js';
import { startPresence } from '../../src/queue/presence.js';
import { keepRooms, rooms, statusOf, until, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
let world: RoomWorld;
beforeEach(async () => {
  world = await open(rooms());
});

const SECOND = 1000;
const second = (ago: number) => new Date(Math.floor(Date.now() / SECOND) * SECOND - ago * SECOND);
const nothing = { latest: undefined, success: undefined };

describe('noted requests by the second', () => {
  it('add up over several processes, with the fastest second', async () => {
    const { db } = world.state;
    const [early, late] = [second(70), second(69)];
    await noteRequests(db, { seconds: [{ second: early, requests: 12, throttled: 0 }], ...nothing });
    await noteRequests(db, {
      seconds: [
        { second: early, requests: 8, throttled: 1 },
        { second: late, requests: 3, throttled: 0 },
      ],
      ...nothing,
    });
    const totals = await readRequestTotals(db, second(100), second(0));
    expect(totals).toEqual({ requests: 23, throttled: 1, fastest: 20, fastestAt: early });
    expect(await readRequestTotals(db, late, second(0))).toMatchObject({ requests: 3, fastestAt: late });
    const none = { requests: 0, throttled: 0, fastest: 0, fastestAt: null };
    expect(await readRequestTotals(db, second(0), second(0))).toEqual(none);
    const minutes = await listRequestSteps(db, { from: second(3600), seconds: 60, steps: 61 });
    expect(minutes).toHaveLength(61);
    expect(minutes.reduce((sum, { requests }) => sum + requests, 0)).toBe(23);
  });

  it('are deleted after a week, and so are killed processes, even if no run is planned', async () => {
    const { db } = world.state;
    const week = 7 * 24 * 60 * 60;
    const seconds = [week + 60, week - 60].map((ago) => ({ second: second(ago), requests: 1, throttled: 0 }));
    await noteRequests(db, { seconds, ...nothing });
    await notePresence(db, { id: 'killed', command: 'sync', host: 'h', pid: 1 }, null);
    await world.sql`UPDATE slotsync.processes SET seen_at = now() - interval '8 days'`;
    const presence = await startPresence({ state: world.state, log: world.log, command: 'worker' });
    await until(
      async () =>
        (await listProcesses(db)).every(({ id }) => id === presence.id) &&
        (await readRequestTotals(db, second(2 * week), second(0))).requests === 1,
      { describe: 'what is old to be deleted' },
    );
    await presence.close();
    expect(await listProcesses(db)).toEqual([]);
  });

  it('keep the latest answer of all processes, whoever notes it last', async () => {
    const { db } = world.state;
    await bindDestination(world.state, { baseUrl: 'http://s', organizationId: 'o', region: 'r' });
    const note = (answer: string, ago: number, successAgo?: number) =>
      noteRequests(db, {
        seconds: [],
        latest: { answer, at: second(ago) },
        success: successAgo === undefined ? undefined : { at: second(successAgo) },
      });
    const secondsAgo = async () => {
      const bound = await readBinding(world.state);
      const ago = (at: Date | null | undefined) =>
        Math.round((Date.now() - (at?.getTime() ?? Number.NaN)) / SECOND / 10) * 10;
      return { answer: bound?.answer, answered: ago(bound?.answeredAt), succeeded: ago(bound?.succeededAt) };
    };
    await note('unreachable', 100, 4000);
    await note('200', 3000, 3000);
    expect(await secondsAgo()).toEqual({ answer: 'unreachable', answered: 100, succeeded: 3000 });
    await note('503', 50);
    expect(await secondsAgo()).toEqual({ answer: '503', answered: 50, succeeded: 3000 });

    // The clock of a host is an hour fast: what it notes is as long ago as it says, and not in the future.
    const ahead = 3600 * SECOND;
    const at = new Date(second(20).getTime() + ahead);
    const fast = { answer: '200', at };
    await noteRequests(world.state.db, { seconds: [], latest: fast, success: fast }, Date.now() + ahead);
    expect(await secondsAgo()).toEqual({ answer: '200', answered: 20, succeeded: 20 });
    await note('503', 0);
    expect(await secondsAgo()).toEqual({ answer: '503', answered: 0, succeeded: 20 });
  });
});

describe('noted processes', () => {
  const worker = { command: 'worker', host: 'north', pid: 7 };

  it('keep the time when they stopped sending until they send again', async () => {
    const { db } = world.state;
    await notePresence(db, { id: 'a', ...worker }, null);
    expect(await listProcesses(db)).toMatchObject([{ id: 'a', isAlive: true, stoppedSince: null }]);
    await notePresence(db, { id: 'a', ...worker }, { code: 'service_failed', message: 'HTTP 503' });
    const [first] = await listProcesses(db);
    await notePresence(db, { id: 'a', ...worker }, { code: 'unauthorized', message: 'HTTP 401' });
    const [again] = await listProcesses(db);
    expect(again).toMatchObject({ errorCode: 'unauthorized', stoppedSince: first?.stoppedSince });
    await notePresence(db, { id: 'a', ...worker }, null);
    expect(await listProcesses(db)).toMatchObject([
      { stoppedSince: null, errorCode: null, errorMessage: null },
    ]);
    await removeProcess(db, 'a');
    expect(await listProcesses(db)).toEqual([]);
  });

  it('have orphaned claims from their silence on, until the claims expire', async () => {
    const { db } = world.state;
    await notePresence(db, { id: 'alive', ...worker }, null);
    await notePresence(db, { id: 'killed', ...worker }, null);
    await world.sql`UPDATE slotsync.processes SET seen_at = now() - interval '31 seconds' WHERE id = 'killed'`;
    const claim = (key: string, by: string, seconds: number) => world.sql`
      INSERT INTO slotsync.records (stream, local_key, status, claimed_by, claimed_until)
      VALUES ('rooms', ${key}, 'pending', ${`${by} ${randomUUID()}`}, now() + ${seconds} * interval '1 second')`;
    await claim('R1', 'alive batch 1', 60);
    await claim('R2', 'killed batch 1', 60);
    await claim('R3', 'killed batch 1', 90);
    await claim('R4', 'killed batch 1', -1);
    // A run of a version that did not note its processes.
    await claim('R5', 'batch 7', 90);
    const { records, until } = await countOrphanedClaims(db);
    expect(records).toBe(2);
    expect(until?.getTime()).toBeGreaterThan(Date.now() + 60 * SECOND);
  });

  it('have records read for orphaned claims only within minutes after their kill', async () => {
    const { db } = world.state;
    /** The server still counts the readings of this connection's last second. */
    const readings = () =>
      db.transaction(async (tx) => {
        const count = () => queryOne<{ count: number }>(tx)`
          SELECT (seq_scan + coalesce(idx_scan, 0))::int AS count FROM pg_stat_xact_user_tables WHERE relname = 'records'`;
        const before = await count();
        await countOrphanedClaims(tx);
        return (await count()).count - before.count;
      });
    const seen = (ago: string) =>
      world.sql`UPDATE slotsync.processes SET seen_at = now() - ${ago}::text::interval WHERE id = 'killed'`;
    await notePresence(db, { id: 'alive', ...worker }, null);
    await notePresence(db, { id: 'killed', ...worker }, null);
    expect(await readings()).toBe(0);
    await seen('14 minutes');
    expect(await readings()).toBeGreaterThan(0);
    await seen('16 minutes');
    expect(await readings()).toBe(0);
  });

  const status = () => statusOf(world.state);

  it('are named by status for a day, as no failure, if they are silent beside a worker; none alive is reported', async () => {
    const { db } = world.state;
    await world.sql`
      INSERT INTO slotsync.runs (kind, lane, started_by, status, streams)
      VALUES ('sync', 'sync', 'command', 'running', '{rooms}')`;
    const unattended = 'Run 1 is unfinished, but no process works on it\n    → slotsync worker';
    expect(await status()).toContain(unattended);
    await notePresence(db, { id: 'alive', ...worker }, null);
    expect(await status()).not.toContain('no process works');
    for (const pid of [11, 12, 13, 14]) await notePresence(db, { id: `${pid}`, ...worker, pid }, null);
    expect(await status()).not.toContain('process 11');
    await notePresence(db, { id: '9', ...worker, command: 'sync', pid: 9 }, null);
    await notePresence(db, { id: '25', ...worker, pid: 25 }, null);
    await world.sql`UPDATE slotsync.processes SET seen_at = now() - pid * interval '1 hour' WHERE id <> 'alive'`;
    const said = await status();
    expect(said).toMatch(
      /^- \d processes were killed, are suspended, or cannot reach the state\n +Last seen \S+ \S+ UTC: worker on north, process 11\.$/m,
    );
    expect(said).toContain('1 process more was seen before that.');
    expect(said).not.toMatch(/process 14|process 7|process 9|process 25|Not seen since/);
  });
});
