// Guarantee 10
// Root causes: whatever waits, through however many others, is counted where something has to be done.
import { beforeEach, describe, expect, it } from 'vitest';
import { readChains } from '../../src/readings/chains.js';
import { listCauses, type Cause } from '../../src/readings/causes.js';
import { eachFailure, eachHeld } from '../../src/readings/failures.js';
import { commandOfCause, describeCause, describeChain, headlineOf } from '../../src/report/failures.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { COURSES, ROOMS } from '../support/campus.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const openWorld = keepWorlds();
let world: World;
beforeEach(async () => {
  world = await openWorld({ streams: { rooms: ROOMS, courses: COURSES } });
});

interface Given {
  status: string;
  code?: string;
  message?: string;
  waitsFor?: string;
  at?: string;
}

/** Records as runs leave them, by `stream key`. */
async function given(records: Record<string, Given>): Promise<void> {
  for (const [name, record] of Object.entries(records)) {
    const [stream = '', key = ''] = name.split(' ');
    const { status, code = null, message = null, waitsFor, at = '2026-11-01T06:00:00Z' } = record;
    const parent = waitsFor === undefined ? null : JSON.stringify(waitsFor.split(' '));
    await world.sql`
      INSERT INTO slotsync.records (stream, local_key, status, error_code, error_message, waits_for, waits_since, updated_at)
      VALUES (${stream}, ${key}, ${status}, ${code}, ${message}, ${parent}, ${parent && at}, ${at})`;
  }
}
const waits = (waitsFor: string, at?: string): Given => ({
  status: 'deferred',
  code: 'reference_missing',
  message: `refers to ${waitsFor}`,
  waitsFor,
  ...(at === undefined ? {} : { at }),
});

const read = (filter = {}) => listCauses(world.state.db, filter);
const inShort = (causes: readonly Cause[]) => causes.map(headlineOf);

describe('causes', () => {
  it('a chain of several levels is counted with its end, the one that most wait for first', async () => {
    await given({
      'departments 3': { status: 'dead', code: 'refused_400', message: 'too long' },
      'departments 4': {
        status: 'dead',
        code: 'refused_400',
        message: 'too short',
        at: '2026-11-03T06:00:00Z',
      },
      'buildings b': waits('departments 3'),
      'rooms r': waits('buildings b'),
      'courses c1': waits('rooms r', '2026-10-31T06:00:00Z'),
      'courses c2': waits('rooms r'),
      'groups g': { status: 'failed', code: 'service_failed', message: 'answered 503' },
      'groups h': { status: 'failed', code: 'refused_400', message: 'retried' },
    });
    const causes = await read();
    expect(causes.map((cause) => describeCause(cause, { timeZone: 'UTC', now: new Date() }).next)).toEqual([
      'Correct the row, and the next run sends it. To send it again unchanged: slotsync retry departments --status dead --code refused_400',
      'Action: none. The next run sends it again: slotsync sync groups',
      'Nothing is lost. Once it answers again: slotsync sync',
    ]);
    expect(inShort(causes)).toEqual([
      "2 records of departments are dead (refused_400): '3', '4' → 4 records wait for them (2 of courses, 1 of buildings, 1 of rooms)",
      "groups 'h' failed (refused_400)",
      "groups 'g' failed (service_failed)",
    ]);
    expect(causes[0]).toMatchObject({
      records: 2,
      messages: 2,
      message: 'too long',
      depth: 3,
      since: new Date('2026-10-31T06:00:00Z'),
    });
  });

  it('a parent may be absent, accepted meanwhile, retired or pending', async () => {
    await given({
      'rooms 1': { status: 'synced' },
      'rooms 2': { status: 'retired' },
      'rooms 3': { status: 'pending' },
      'courses a': waits('rooms 9'),
      'courses b': waits('rooms 1'),
      'courses c': waits('rooms 2'),
      'courses d': waits('rooms 3'),
    });
    const causes = await read();
    expect(Object.fromEntries(causes.map((cause) => [headlineOf(cause), commandOfCause(cause)]))).toEqual({
      "rooms '9' has no record → 1 record of courses waits for it": 'slotsync explain rooms 9',
      "rooms '1' was accepted meanwhile → 1 record of courses waits for it": 'slotsync sync courses',
      "rooms '2' is retired → 1 record of courses waits for it": 'slotsync explain rooms 2',
      "rooms '3' is pending → 1 record of courses waits for it": 'slotsync status',
    });
  });

  it('records that refer to themselves or to each other are a cause, and what waits for them is counted once', async () => {
    await given({
      'units own': waits('units own'),
      'units a': waits('units b'),
      'units b': waits('units c'),
      'units c': waits('units a'),
      'units behind': waits('units b'),
      'courses c': waits('units behind'),
    });
    const causes = await read();
    expect(inShort(causes)).toEqual([
      "4 records of units are part of a circular reference: 'a', 'own', … → 2 records wait for them (1 of courses, 1 of units)",
    ]);
    const chains = await readChains(world.state.db, [{ stream: 'units', localKey: 'behind' }]);
    expect([...chains.values()].map(describeChain)).toEqual([
      "units 'behind', which waits for units 'a', which is part of a circular reference",
    ]);
  });

  it('a chain of a thousand records is followed to its end, and named in short', async () => {
    await world.sql`
      INSERT INTO slotsync.records (stream, local_key, status, error_code, waits_for)
      SELECT 'units', 'u' || i, 'deferred', 'reference_missing', jsonb_build_array('units', 'u' || i + 1)::text
      FROM generate_series(1, 1000) AS i`;
    const [cause] = await read();
    expect(cause).toMatchObject({ status: 'absent', keys: ['u1001'], waiting: 1000, depth: 1000 });
    const pages = eachFailure(world.state.db, {}, 1);
    const { value } = await pages.next();
    await pages.return(undefined);
    const [first] = value ?? [];
    expect(first?.chain && describeChain(first.chain)).toBe(
      "units 'u2', which waits for units 'u3', which waits for 997 more, the last of which waits for " +
        "units 'u1001', which has no record: its row is missing in the mirror, or no run has sent it yet",
    );
  });

  it('a filter names records, and their causes are counted whole', async () => {
    await given({
      'rooms 1': { status: 'dead', code: 'refused_400', message: 'no', at: '2026-11-01T06:00:00Z' },
      'courses c': waits('rooms 1', '2026-11-02T06:00:00Z'),
      'groups g': { status: 'failed', code: 'service_failed', message: '503', at: '2026-11-03T06:00:00Z' },
    });
    const room = "rooms '1' is dead (refused_400) → 1 record of courses waits for it";
    const group = "groups 'g' failed (service_failed)";
    const shown = async (filter: object) => inShort(await read(filter));
    expect(await shown({ stream: 'courses' })).toEqual([room]);
    expect(await shown({ status: 'deferred' })).toEqual([room]);
    expect(await shown({ status: 'dead' })).toEqual([room]);
    expect(await shown({ code: 'service_failed' })).toEqual([group]);
    expect(await shown({ since: new Date('2026-11-03T00:00:00Z') })).toEqual([group]);
    expect(await shown({ since: new Date('2026-11-02T00:00:00Z') })).toEqual([room, group]);
    expect(await shown({ stream: 'rooms', status: 'failed' })).toEqual([]);
  });
});

describe('what is held', () => {
  beforeEach(async () => {
    const hold = { count: 2, reason: '2 of 2 records would be overwritten', approvable: true };
    await world.sql`
      INSERT INTO slotsync.runs (kind, lane, started_by, streams, status, holds, finished_at)
      VALUES ('sync', 'sync', 'command', '{rooms}', 'held', ${world.sql.json({ rooms: { overwrite: hold } })}, now())`;
    await world.sql`
      INSERT INTO slotsync.batches (run_id, stream, level, operation, keys, state)
      VALUES (1, 'rooms', 0, 'overwrite', '{7,8}', 'held')`;
    await given({ 'courses c': waits('rooms 8'), 'courses d': waits('rooms 9') });
  });

  it('is a cause with the command that approves it, and with what waits for it', async () => {
    const [held, absent] = await read();
    expect(held && headlineOf(held)).toBe(
      "2 overwritings of rooms are held in run 1: '8', '7' → 1 record of courses waits for them",
    );
    expect(held && commandOfCause(held)).toBe('slotsync approve 1 --stream rooms --operation overwrite');
    expect(absent).toMatchObject({ status: 'absent', keys: ['9'] });
    expect(inShort(await read({ status: 'held' }))).toHaveLength(1);
    expect(inShort(await read({ stream: 'groups' }))).toEqual([]);
  });

  it('has its keys one by one, and is the end of the chains that wait for it', async () => {
    const held = [];
    for await (const page of eachHeld(world.state.db, {})) held.push(...page);
    expect(held).toMatchObject([
      { stream: 'rooms', localKey: '7', runId: 1, operation: 'overwrite' },
      { stream: 'rooms', localKey: '8' },
    ]);
    const chains = await readChains(world.state.db, [{ stream: 'rooms', localKey: '8' }]);
    expect([...chains.values()].map(describeChain)).toEqual([
      "rooms '8', which is held in run 1 (overwrite)",
    ]);
  });
});

it('retry: a cause is named by stream, status and code, and nothing else is sent again', async () => {
  await given({
    'rooms 1': { status: 'dead', code: 'refused_400' },
    'rooms 2': { status: 'dead', code: 'refused_400' },
    'rooms 3': { status: 'dead', code: 'refused_422' },
    'rooms 4': { status: 'failed', code: 'refused_400' },
    'courses 1': { status: 'dead', code: 'refused_400' },
  });
  const chosen = { stream: 'rooms', status: 'dead', code: 'refused_400', keys: [] } as const;
  const retried = await retryRecords(world.state.db, chosen);
  expect(retried.map(({ localKey }) => localKey).toSorted()).toEqual(['1', '2']);
  expect(await world.statusesOf('rooms')).toEqual({ 1: 'failed', 2: 'failed', 3: 'dead', 4: 'failed' });
  expect(await world.statusesOf('courses')).toEqual({ 1: 'dead' });
});
