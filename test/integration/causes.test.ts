// Guarantees 10, 11
// Root causes: a waiting record is counted at the end of its chain, where an operator has to act.
import { plain } from '../../src/render/text.js';
import { reportDocument } from '../../src/documents/report.js';
import { readSituation } from '../../src/situation/situation.js';
import { beforeEach, describe, expect, it } from 'vitest';
import { readChains } from '../../src/situation/chains.js';
import { listCauses, type Cause } from '../../src/situation/causes.js';
import { eachFailure, eachHeld } from '../../src/situation/failures.js';
import { commandOfCause, describeChain, headlineOf, nextStep } from '../../src/documents/causes.js';
import { describeSettled } from '../../src/documents/failures.js';
import { readReport } from '../../src/situation/report.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import type { Failure } from '../../src/state/records/read/failures.js';
import { readKnowledge } from '../../src/state/records/read/unsent-records.js';
import { cancelRun } from '../../src/state/runs/end-run.js';
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

/** Writes records as runs leave them, by `stream key`. */
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

describe('root causes', () => {
  it('count a chain of several levels at its end, the cause with most waiting records first', async () => {
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
    expect(inShort(causes)).toEqual([
      "2 records of departments given up (refused_400): '3', '4' → 4 records wait for them (2 of courses, 1 of buildings, 1 of rooms)",
      "groups 'h': failed (refused_400)",
      "groups 'g': failed (service_failed)",
    ]);
    expect(causes[0]).toMatchObject({
      records: 2,
      messages: 2,
      message: 'too long',
      depth: 3,
      since: new Date('2026-10-31T06:00:00Z'),
    });
  });

  it('include parents that are absent, synced, retired or pending', async () => {
    await given({
      'rooms 1': { status: 'synced' },
      'rooms 2': { status: 'retired' },
      'rooms 3': { status: 'pending' },
      'courses a': waits('rooms 9'),
      'courses b': waits('rooms 1'),
      'courses c': waits('rooms 2'),
      'courses d': waits('rooms 3'),
    });
    const found = (await read()).map(({ status, keys: [key], waiting }) => `${status} ${key} ${waiting}`);
    expect(new Set(found)).toEqual(new Set(['absent 9 1', 'pending 3 1', 'retired 2 1', 'synced 1 1']));
  });

  it('include circular references, and count the records that wait for them once', async () => {
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

  it('follow a chain of a thousand records to its end, and name the chain in short', async () => {
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

  it('are counted whole when a filter names only some of their records', async () => {
    await given({
      'rooms 1': { status: 'dead', code: 'refused_400', message: 'no', at: '2026-11-01T06:00:00Z' },
      'courses c': waits('rooms 1', '2026-11-02T06:00:00Z'),
      'groups g': { status: 'failed', code: 'service_failed', message: '503', at: '2026-11-03T06:00:00Z' },
    });
    const room = "rooms '1': given up (refused_400) → 1 record of courses waits for it";
    const group = "groups 'g': failed (service_failed)";
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

describe('a held operation as a root cause', () => {
  beforeEach(async () => {
    await world.sql`
      INSERT INTO slotsync.gates (stream, operation, reason, run_id, count, digest, facts)
      VALUES ('rooms', 'overwrite', 'limit', 1, 2, '2 1 1', '{"accepted": 2}')`;
    await world.sql`
      INSERT INTO slotsync.held (stream, local_key, operation, gate, reason)
      SELECT 'rooms', key, 'overwrite', 'overwrite', 'limit' FROM unnest('{7,8}'::text[]) AS key`;
    await given({ 'courses c': waits('rooms 8'), 'courses d': waits('rooms 9') });
  });

  it('names the command that approves it, and counts the records that wait for it', async () => {
    const [held, absent] = await read();
    expect(held && headlineOf(held)).toBe(
      "2 overwritings of rooms are held in run 1: '8', '7' → 1 record of courses waits for them",
    );
    expect(held && commandOfCause(held)).toBe('slotsync approve 1 --stream rooms --operation overwrite');
    expect(absent).toMatchObject({ status: 'absent', keys: ['9'] });
    expect(inShort(await read({ status: 'held' }))).toHaveLength(1);
    expect(inShort(await read({ stream: 'groups' }))).toEqual([]);
  });

  it('lists its keys one by one, and ends the chains that wait for it', async () => {
    const held = [];
    for await (const page of eachHeld(world.state.db, {})) held.push(...page);
    expect(held).toMatchObject([
      { stream: 'rooms', localKey: '7', runId: 1, gate: 'overwrite', operation: 'overwrite' },
      { stream: 'rooms', localKey: '8' },
    ]);
    const chains = await readChains(world.state.db, [{ stream: 'rooms', localKey: '8' }]);
    expect([...chains.values()].map(describeChain)).toEqual([
      "rooms '8', which is held in run 1 (overwrite)",
    ]);
  });
});

it('the retry of a cause sends again only records with its stream, status and code', async () => {
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

describe('a retried record', () => {
  it('needs no operator while it is in the inbox, in every document', async () => {
    await given({
      'rooms A': { status: 'dead', code: 'refused_400', message: 'no' },
      'rooms B': { status: 'dead', code: 'refused_400', message: 'no' },
    });
    const { db } = world.state;
    await retryRecords(db, { stream: 'rooms', keys: ['A', 'B'] });
    const inInbox = async () => (await read()).map((cause) => [cause.status, cause.inInbox]);
    expect(await inInbox()).toEqual([['failed', 0]]);
    await addChanges(db, 'rooms', ['A']);
    expect(await inInbox()).toEqual([['failed', 1]]);
    await addChanges(db, 'rooms', ['B', 'B']);
    expect(await inInbox()).toEqual([['failed', 2]]);
    const report = reportDocument(await readReport(world.state.db, {}, { requestsPerSecond: 20 }));
    const needed = report.sections.find(({ id }) => id === 'attention');
    const notInSync = report.sections.find(({ id }) => id === 'failures');
    expect(needed?.points).toEqual([]);
    expect(JSON.stringify(notInSync)).toContain('in the inbox to be sent again');
    const records = eachFailure(db, {});
    const page = (await records.next()).value as Failure[];
    expect(page.map(nextStep)).toEqual(
      ['A', 'B'].map(
        () =>
          'No action needed: it is in the inbox, and a worker sends it again. To send now: slotsync sync rooms',
      ),
    );
  });
});

it('the situation dates the wait for a first success from the binding of the state', async () => {
  const begunAt = async () => (await readSituation(world.state.db)).begunAt?.toISOString();
  expect(await begunAt()).toBeUndefined();
  await world.sql`
    INSERT INTO slotsync.destination (base_url, organization_id, region, bound_at)
    VALUES ('http://s.example', 'demo', 'EU', '2026-11-01T06:00:00Z')`;
  expect(await begunAt()).toBe('2026-11-01T06:00:00.000Z');
});

describe('the sentence that every record is in sync', () => {
  const said = async (stream?: string) =>
    plain(describeSettled(await readKnowledge(world.state.db, { stream }), stream), 'UTC');

  it('is said only when everything was planned, sent and accepted', async () => {
    expect(await said()).toMatch(/^Nothing was planned yet\. .*slotsync plan, then slotsync sync$/);
    await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text)`;
    await world.sql`CREATE TABLE courses (code text PRIMARY KEY, name text, room text)`;
    await world.sync();
    expect(await said()).toMatch(/^No record yet, because no run has sent any\./);
    await world.sql`INSERT INTO rooms VALUES ('A', 'a')`;
    await world.sync();
    expect(await said()).toBe('Every record is in sync as of the last plan.');
    expect(await said('courses')).toMatch(/^No record of courses yet/);
    expect(await said('staff')).toMatch(/^Nothing was planned of staff yet/);
  });

  it('is not said while a run has planned records that are not sent', async () => {
    await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text)`;
    await world.sql`CREATE TABLE courses (code text PRIMARY KEY, name text, room text)`;
    await world.sql`INSERT INTO rooms VALUES ('A', 'a'), ('B', 'b')`;
    await world.sync();
    await world.sql`UPDATE rooms SET name = 'new'`;
    const { runId } = await world.plan();
    expect(await said()).toBe('2 records in run 2 are not sent yet: slotsync runs 2');
    expect(await said('courses')).toMatch(/^No record of courses yet/);
    await cancelRun(world.state.db, runId);
    expect(await said('rooms')).toMatch(
      /^rooms is due for a whole sync since .* UTC: an operator cancelled its sync\.$/,
    );
    // Also where another record is out of sync.
    await world.sql`UPDATE slotsync.records SET status = 'dead', error_code = 'refused_400' WHERE local_key = 'B'`;
    const report = reportDocument(await readReport(world.state.db, {}, { requestsPerSecond: 20 }));
    const notices = report.sections.find(({ id }) => id === 'notices')?.points ?? [];
    expect(notices.map(({ text }) => plain(text, 'UTC'))).toContainEqual(
      expect.stringMatching(
        /^courses, rooms are due for a whole sync since .*: an operator cancelled its sync$/,
      ),
    );
    await world.sync();
    expect(await said()).toBe('Every record is in sync as of the last plan.');
  });
});
