// The nights of the streams, read from the runs of the state.
import { describe, expect, it } from 'vitest';
import { readHistory } from '../../src/situation/history.js';
import { listNights } from '../../src/state/runs/count-runs.js';
import { ROOMS } from '../support/campus.js';
import { keepWorlds } from '../support/worlds.js';

const open = keepWorlds();
const ZONE = 'Europe/Stockholm';

describe('the nights of streams', () => {
  it('date a run by the clock of the zone, and end for each stream in its own way', async () => {
    const world = await open({ streams: { rooms: ROOMS } });
    const insert = (row: Record<string, unknown>) => {
      const { at, ...given } = row;
      const run = {
        kind: 'sync',
        lane: 'sync',
        started_by: 'schedule',
        status: 'succeeded',
        streams: ['a', 'b', 'c'],
        plan: { a: {}, b: {}, c: {} },
        counts: {},
        accepted: {},
        holds: {},
        ...given,
        requested_at: at,
        finished_at: 'finished_at' in given ? given['finished_at'] : at,
      };
      return world.sql`INSERT INTO slotsync.runs ${world.sql(run as never)}`;
    };
    const [{ now } = { now: new Date() }] = await world.sql<{ now: Date }[]>`SELECT now()`;
    const ago = (hours: number) => new Date(now.getTime() - hours * 3_600_000);
    await insert({
      at: ago(72),
      status: 'partial',
      plan: { a: {}, b: { staleLoad: 'too_old' } },
      counts: { a: { failed: 0, dead: 2 } },
      accepted: { a: { create: 1, update: 2, retire: 3 } },
    });
    await insert({ at: ago(48), status: 'held', holds: { b: {} } });
    // By a command of the same time: the night is that of the schedule.
    await insert({ at: ago(48), status: 'failed', started_by: 'command', accepted: { b: { create: 5 } } });
    await insert({ at: ago(24), status: 'failed' });
    await insert({ at: ago(24), kind: 'backfill' });
    await insert({ at: ago(24), range: { limit: 5 } });
    await insert({ at: ago(0), status: 'running', finished_at: null });
    const nights = await listNights(world.state.db, 14, ZONE);
    const ofStream = (name: string) => nights.filter(({ stream }) => stream === name);
    expect(ofStream('a').map(({ status, sent }) => [status, sent])).toEqual([
      ['partial', 6],
      ['succeeded', 0],
      ['failed', 0],
      ['running', 0],
    ]);
    expect(ofStream('b').map(({ status, sent }) => [status, sent])).toEqual([
      ['partial', 0],
      ['held', 5],
      ['failed', 0],
      ['running', 0],
    ]);
    expect(ofStream('c')[0]).toMatchObject({ status: 'failed' });
    const { days } = await readHistory(world.state.db, { now, timeZone: ZONE });
    expect(days).toHaveLength(30);
    expect(days.at(-1)).toBe(nights.at(-1)?.day);
  });
});
