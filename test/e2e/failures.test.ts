// Guarantee 10
// One refused object, and everything that waits for it: each surface names the cause, and the printed command works.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { readCsvFile } from '../../src/files/csv-file.js';
import { SCHEMA } from '../support/rehearsal.js';
import { rehearseOnce } from '../support/rehearsals.js';

const CONFIGURATION = `
import { defineConfig } from 'slotsync';
export default defineConfig({
  streams: {
    departments: { from: 'departments', key: 'id', type: 'department', externalId: 'dep_{id}',
      fields: { 'department.name': 'name' } },
    rooms: { from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}', fields: { 'room.name': 'name' },
      references: { 'room.department': { stream: 'departments', key: 'department' } } },
    courses: { from: 'courses', key: 'id', type: 'course', externalId: 'course_{id}', fields: { 'course.name': 'name' },
      references: { 'course.room': { stream: 'rooms', key: 'room' } }, retire: 'deactivate' },
  },
});
`;
const REASON = '=1+1 is no name';
const HEADLINE =
  "departments '3': given up (refused_400) → 6 records wait for it (4 of courses, 2 of rooms), since ";

const world = rehearseOnce({
  rows: 40,
  sandbox: {
    rate: 0,
    schema: {
      types: [...SCHEMA.types, { extId: 'department' }],
      fields: [
        ...SCHEMA.fields,
        { extId: 'department.name' },
        { extId: 'room.department', reference: 'department' },
      ],
    },
  },
});
beforeAll(async () => {
  await world.configure(CONFIGURATION);
  await world.sql`CREATE TABLE departments (id text PRIMARY KEY, name text)`;
  await world.sql`ALTER TABLE rooms ADD department text`;
  await world.sql`INSERT INTO departments VALUES ('1', 'Arts'), ('3', 'Law')`;
  await world.sql`UPDATE rooms SET department = CASE WHEN code IN ('R1', 'R2') THEN '3' ELSE '1' END`;
  await world.sql`UPDATE courses SET room = 'R1' WHERE id IN (3, 4)`;
  world.sandbox.refuseObject('dep_3', { status: 400, message: REASON });
});

const flat = (text: string) => text.replaceAll(/\s+/g, ' ');

it('failures says that nothing is known before the first run', async () => {
  const nothing = 'Nothing was planned yet. To see what would be sent: slotsync plan, then slotsync sync';
  await world.run(['migrate']);
  expect(await world.read('failures')).toBe(`${nothing}\n`);
  expect(await world.read('failures --status dead')).toBe(`${nothing}\n`);
  expect(await world.read('status --full')).toContain(nothing);
  const report = await world.read('report');
  expect(flat(report)).toContain(nothing);
  expect(report, 'a command in one piece').not.toMatch(/slotsync$/m);
  expect(await world.read('check')).toContain('the tables exist; the first accepted write binds them');
  expect(await world.read('failures rooms')).toBe(
    'Nothing was planned of rooms yet. To see what would be sent: slotsync plan rooms, then slotsync sync rooms\n',
  );
});

it('the summary of a run, failures and status name the cause and what waits for it', async () => {
  const { stdout, code } = await world.run(['sync']);
  expect(code).toBe(1);
  expect(stdout).toContain(HEADLINE);
  const text = await world.read('failures');
  expect(text).toContain(HEADLINE);
  expect(text).toContain(`\n    ${REASON}\n    → Correct the row, and the next run sends it.`);
  expect(text).toMatch(/since \d{4}-\d\d-\d\d \d\d:\d\d UTC \(\d+ \w+\)\n/);
  expect(text).toContain('7 records are not in sync (1 cause).');
  const status = await world.read('status --full');
  expect(status).toContain('7 records are not in sync: slotsync failures');
  expect(status).toContain(`- ${HEADLINE}`);
});

it('failures --all and explain name the end of a chain of waiting records', async () => {
  const chain = `waits for rooms 'R1', which waits for departments '3', which is given up (refused_400): ${REASON}`;
  const next =
    "It is sent once departments '3' is accepted. For departments '3': correct the row, and the next run sends it. " +
    'To send it again unchanged: slotsync retry departments 3';
  const text = await world.read('failures courses --all');
  expect(text.match(/^- courses '\d+' /gm)).toHaveLength(4);
  expect(text).toContain(`    It ${chain}\n    → ${next}\n`);
  const explained = await world.read('explain courses 4');
  expect(explained).toContain(`Waits for: it ${chain}\n`);
  expect(explained).toContain(`Next: ${next}\n`);
});

it('failures filters records, and writes the same facts as JSON and as CSV for a spreadsheet', async () => {
  const json = (...args: string[]) =>
    world.json<Record<string, Record<string, unknown>[]>>(['failures', '--json', ...args]);
  expect((await json('--status', 'dead', '--all'))['failures']).toMatchObject([
    { stream: 'departments', localKey: '3', errorCode: 'refused_400', chain: null },
  ]);
  expect((await json('--code', 'reference_missing', '--stream', 'rooms', '--all'))['failures']).toMatchObject(
    [
      { localKey: 'R1', chain: { end: { stream: 'departments', localKey: '3', status: 'dead' } } },
      { localKey: 'R2' },
    ],
  );
  const { causes } = await json('--since', '1h');
  expect(causes).toMatchObject([
    { stream: 'departments', waiting: 6, command: 'slotsync retry departments 3' },
  ]);
  expect((await json('--status', 'failed'))['causes']).toEqual([]);

  const filtered = await world.read('failures rooms --status deferred');
  expect(filtered).toContain(HEADLINE);
  expect(filtered).toMatch(
    /^2 of 2 records of rooms not in sync match --status deferred \(1 cause\); each with all its records\.\nTo list each record: slotsync failures rooms --status deferred --all\n\n/,
  );
  expect(await world.read('failures --status dead')).toContain(
    '1 of 7 records not in sync matches --status dead (1 cause);',
  );
  expect(await world.read('failures --status failed')).toBe(
    '7 records are not in sync, but none matches --status failed.\n',
  );
  expect(await world.read('failures --status held')).toBe('No record is held.\n');

  const columns = ['stream', 'key', 'reason', 'cause_stream', 'cause_key', 'next'];
  const file = path.join(world.folder, 'failures.csv');
  expect(await world.read(`failures --all --out ${file}`)).toContain(`Written to ${file}.`);
  const rows = readCsvFile(file, columns).map(({ values }) => values);
  expect(rows).toHaveLength(7);
  expect(rows.find(({ key }) => key === 'R2')).toMatchObject({ cause_stream: 'departments', cause_key: '3' });
  expect(await readFile(file, 'utf8')).toContain(`,'${REASON},`);
  await world.read(`failures --out ${file}`);
  expect(readCsvFile(file, ['command', 'waiting', 'reason'])[0]?.values).toMatchObject({
    command: 'slotsync retry departments 3',
    waiting: '6',
    reason: REASON,
  });
});

it('the retry command that failures prints for a group sends only the records of the group', async () => {
  for (const key of ['R10', 'R11', 'R12']) {
    await world.sql`UPDATE rooms SET name = 'new' WHERE code = ${key}`;
    const status = key === 'R12' ? 422 : 400;
    world.sandbox.refuseObject(`room_${key}`, { status, message: `no ${key}` });
  }
  await world.sql`UPDATE rooms SET name = 'newer' WHERE code = 'R13'`;
  await world.run(['sync', 'rooms']);
  const text = await world.read('failures rooms');
  expect(text).toMatch(
    /2 records of rooms given up \(refused_400\), since .*\n {4}2 different[^]*?\n {4}rooms 'R10', rooms 'R11'\n/,
  );
  const [, command = ''] = / slotsync (retry rooms --.*)$/m.exec(text) ?? [];
  expect(await world.read(command)).toBe('2 records will be sent by the next run: slotsync sync\n');
  const again = await world.run(command.split(' '));
  expect(again).toMatchObject({ code: 1, stdout: expect.stringContaining('nothing was changed') });
  const left = JSON.parse(await world.read('failures rooms --all --json')) as {
    failures: { localKey: string; status: string }[];
  };
  expect(Object.fromEntries(left.failures.map(({ localKey, status }) => [localKey, status]))).toMatchObject({
    R10: 'failed',
    R11: 'failed',
    R12: 'dead',
  });
});

it('retry --all sends a corrected record and everything that waited for it', async () => {
  world.sandbox.allowObject('dep_3');
  for (const key of ['R10', 'R11', 'R12']) world.sandbox.allowObject(`room_${key}`);
  await world.run(['retry', '--all', '--status', 'dead']);
  expect((await world.run(['sync'])).code).toBe(0);
  expect(await world.read('failures')).toBe('Every record is in sync as of the last plan.\n');
});

it('failures lists held records as a cause with the approve command, and their keys with --all', async () => {
  await world.sql`DELETE FROM courses WHERE id > 20`;
  expect((await world.run(['sync', 'courses'])).code).toBe(3);
  const text = await world.read('failures');
  expect(text).toMatch(
    /^- 20 deactivations of courses are held in run \d+, since .*\n[^]*?\n {4}courses '21', courses '22', courses '23', /m,
  );
  expect(text).toMatch(
    /\n {4}→ If this is intended: slotsync approve \d+ --stream courses --operation retire\n/,
  );
  expect(text).toContain('20 records are held for approval.');
  expect(text.match(/slotsync approve/g)).toHaveLength(1);
  const [, held] = /^- 20 deactivations of courses are held in run (\d+)/m.exec(text) ?? [];
  const explained = await world.read('explain courses 21');
  expect(explained).toContain(
    'Next: it is held (retire); for the reason and the remedy: slotsync failures courses --status held\n',
  );
  expect(explained).toMatch(new RegExp(`^Held: retire, since .*, by run ${held}$`, 'm'));
  const all = await world.read('failures --all');
  expect(all.match(/^- courses '\d+': held in run \d+ \(retire\)$/gm)).toHaveLength(20);
  const [, command = ''] = / slotsync (approve .*)$/m.exec(text) ?? [];
  expect((await world.run(command.split(' '))).code).toBe(0);
  expect(await world.read('failures')).toBe('Every record is in sync as of the last plan.\n');
});

it('failures keeps a stream that left the configuration as long as it has records', async () => {
  world.sandbox.refuseObject('course_1', { status: 422, message: 'no' });
  await world.sql`UPDATE courses SET name = 'new' WHERE id = 1`;
  await world.sql`UPDATE rooms SET name = 'newest' WHERE code = 'R13'`;
  await world.run(['sync']);
  await world.configure(CONFIGURATION.replace(/courses: [^]*?retire: 'deactivate' },/, ''));
  const next =
    'courses is not in the configuration, so its records are neither sent nor deactivated. Add the stream again, and the next run continues ' +
    'with it. To delete the stored data of the record, and leave its object at the service: slotsync forget courses 1';
  expect(await world.read('failures courses')).toContain(`→ ${next}\n`);
  expect(await world.read('failures courses --all')).toContain(`→ ${next}\n`);
  expect(await world.read('retry courses 1')).toContain(
    'courses is not in the configuration. Its records are sent when the stream is added again.',
  );
  expect((await world.run(['sync', 'courses'])).code).toBe(2);
  const refused = await world.run(['forget', 'courses', '1']);
  expect(refused.stderr).toContain('courses is not in the configuration, so no run deactivates it.');
  expect((await world.run(['forget', 'courses', '1', '--force'])).code).toBe(0);
  expect(await world.read('failures courses')).toBe(
    'Every record of courses is in sync as of the last plan.\n',
  );
  const { code, stderr } = await world.run(['failures', '--stream', 'curses']);
  expect(stderr).toContain('Did you mean courses?');
  expect((await world.run(['failures', '--stream', 'buildings'])).stderr).not.toContain('Did you mean');
  expect(code).toBe(2);
});
