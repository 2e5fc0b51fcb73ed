// Exceptions by command: made, changed, listed, ended and refused.
import { afterAll, beforeAll, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';

let world: Rehearsal;
beforeAll(async () => {
  world = await rehearse({ rows: 3 });
});
afterAll(() => world.close());

const nameOf = (key: string) =>
  world.sandbox.object(`room_${key}`)?.fields.find(({ fieldId }) => fieldId === 'room.name')?.values;

it('except makes an exception that every surface shows, keeps its record as it is, and ends it', async () => {
  await world.run(['sync']);
  const [key = ''] = await world.sql<{ local_key: string }[]>`
    SELECT local_key FROM slotsync.records WHERE stream = 'rooms' ORDER BY 1 LIMIT 1`.then((rows) =>
    rows.map(({ local_key }) => local_key),
  );
  const before = nameOf(key);
  const made = await world.run([
    'except',
    'rooms',
    key,
    '--reason',
    'the caretaker names it',
    '--until',
    '2099-01-01',
  ]);
  expect(made.stdout).toMatch(
    /^Left as it is until 2099-01-01 00:00 \w+: 1 record of rooms\. A request in progress is answered\.\nTo end it: slotsync except rooms <key> --end\n$/,
  );
  await world.sql`UPDATE rooms SET name = 'new'`;

  const plan = await world.run(['plan', 'rooms']);
  expect(plan.stdout).toContain(
    'rooms: 1 exception: slotsync does not change this record. To list it: slotsync exceptions',
  );
  const sync = await world.run(['sync']);
  expect(sync.code).toBe(0);
  expect(nameOf(key)).toEqual(before);
  const status = await world.run(['status', '--full']);
  expect(status.stdout).toContain('1 exception: slotsync does not change this record.');
  expect((await world.run(['failures'])).stdout).toContain('1 exception');
  const explained = await world.run(['explain', 'rooms', key]);
  expect(explained.stdout).toContain(
    `no action needed: an exception protects the object. To end the exception: slotsync except rooms ${key} --end`,
  );
  expect(explained.stdout).toContain('the caretaker names it');

  const twice = await world.run(['except', 'rooms', key, '--reason', 'again']);
  expect(twice).toMatchObject({ code: 2 });
  expect(twice.stderr).toContain(`rooms '${key}' is an exception since `);
  expect(twice.stderr).toContain('To change its end and reason, add --until. To end the exception: --end');
  const longer = await world.run(['except', 'rooms', key, '--reason', 'longer', '--until', '2098-01-01']);
  expect(longer.stdout).toContain('(the caretaker names it).\n');
  const listed = JSON.parse((await world.run(['exceptions', '--json'])).stdout) as { exceptions: object[] };
  expect(listed.exceptions).toMatchObject([{ stream: 'rooms', localKey: key, reason: 'longer' }]);
  expect((await world.run(['exceptions'])).stdout).toContain('longer');

  const ended = await world.run(['except', 'rooms', key, '--end']);
  expect(ended.stdout).toBe(
    '1 exception of rooms ended. The key is in the inbox; without a worker: slotsync sync rooms\n',
  );
  expect((await world.run(['exceptions'])).stdout).toContain('There are no exceptions.');
  await world.run(['sync']);
  expect(nameOf(key)).toEqual(['new']);
  const actions = await world.run(['actions']);
  expect(actions.stdout).toContain(`made exceptions of rooms '${key}'`);
  expect(actions.stdout).toContain(`ended the exceptions of rooms '${key}'`);
});

it.each([
  [
    'a key that has neither row nor record',
    ['rooms', 'nobody', '--reason', 'x'],
    "no row and no record of rooms has the key 'nobody'",
  ],
  [
    'a time in the past',
    ['rooms', 'R1', '--reason', 'x', '--until', '2001-01-01'],
    '--until is in the past: 2001-01-01',
  ],
  ['no reason', ['rooms', 'R1'], '--reason is missing'],
  ['an unknown stream', ['halls', 'R1', '--reason', 'x'], "'halls'"],
  ['the end of a missing exception', ['rooms', 'R1', '--end'], "rooms 'R1' is not an exception"],
  [
    'both an end and a time',
    ['rooms', 'R1', '--end', '--until', '2099-01-01'],
    'use --end or --until, not both',
  ],
])('except refuses %s', async (_, args, message) => {
  const { code, stderr } = await world.run(['except', ...args]);
  expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
  expect(await world.sql`SELECT FROM slotsync.exceptions`).toHaveLength(0);
});
