// Guarantee 11
// Verify as an operator runs it: a service that was restarted empty, and drift that is repaired. The commands, their
// messages and exit codes, and a worker that does it after the nightly sync.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { CONFIGURATION } from '../support/rehearsal.js';
import { rehearseEach } from '../support/rehearsals.js';
import { until } from '../support/wait.js';

const world = rehearseEach({ rows: 30, sandbox: { rate: 0 } });
const configure = (section: string) =>
  world.configure(CONFIGURATION.replace('streams: {', `${section},\n  streams: {`));
/** Ages the records by an hour, because verify reads recently written objects twice. */
const settle = () => world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour'`;
const rename = (code: string, name: string) =>
  world.sandbox.changeObject(`room_${code}`, { fields: [{ fieldId: 'room.name', values: [name] }] });

beforeEach(async () => {
  await configure("verify: { after: '0 5 * * *', share: 1 }");
  await world.read('sync');
  await settle();
});

it('verify finds everything missing at an emptied service, and repairs it after an approval', async () => {
  for (const { id } of world.sandbox.objects()) world.sandbox.removeObject(id);
  await world.read('sync');
  expect(world.sandbox.objects()).toEqual([]);
  await world.ends('status --full', 0, /rooms +never verified +– +–/);
  await world.ends(
    'check',
    0,
    /✓ verify: the next verify is due 20\d\d-\d\d-\d\d 05:00 UTC, if a worker is running/,
  );

  await world.ends(
    'verify',
    1,
    /rooms +30 +30\n/,
    "courses '1' (course_1) is not at the service",
    '60 objects drift',
    'To send them again: slotsync verify --repair',
  );
  const verified = /rooms +20\d\d-\d\d-\d\d \d\d:\d\d UTC +30 +30/;
  await world.ends('status --full', 0, verified, 'slotsync verify rooms --repair');
  await world.ends('failures', 0, '60 objects differ at the service');

  const restored =
    'The service holds none of the 30 objects: it may have been restored empty or from a backup';
  const repair = await world.ends('verify --repair', 3, restored);
  expect(world.sandbox.objects()).toEqual([]);
  const runId = /Run (\d+) held/.exec(repair)?.[1] ?? '';
  expect(repair).toContain(`→ slotsync approve ${runId} --stream rooms --operation repair`);
  await world.ends(`approve ${runId}`, 0, 'Approved: up to 30 repairs of rooms');
  expect(world.sandbox.objects()).toHaveLength(60);
  await settle();
  await world.ends('verify', 0, '60 objects compared', 'no drift');
  expect(await world.read('status --full')).not.toContain('Held in run');
});

it('verify names the object of a field that a person corrected, also when nothing drifts', async () => {
  await world.configure(
    CONFIGURATION.replace("'course.name': 'name'", "'course.name': { from: 'name', write: 'changed' }"),
  );
  await world.read('sync');
  await settle();
  world.sandbox.changeObject('course_1', { fields: [{ fieldId: 'course.name', values: ['Algebra'] }] });
  const verified = await world.ends('verify', 0, "courses '1' (course_1) keeps values of the service");
  expect(verified).not.toContain('The first');
});

it('verify names a few changes with both values, writes them to a file, and repairs them', async () => {
  rename('R1', '=Aula');
  world.sandbox.changeObject('room_R2', { active: false });
  world.sandbox.addObject({ typeId: 'room' });
  const verified = await world.ends(
    'verify rooms --out drift.csv',
    1,
    "rooms 'R1' (room_R1) was changed at the service",
    'room.name: "=Aula" at the service, "Sal 1" expected',
    '1 object belongs to no record, and is left as it is: slotsync verify --extras lists it.',
    'Written to drift.csv.',
  );
  for (const line of verified.split('\n')) expect(line.length).toBeLessThanOrEqual(160);
  const file = await readFile(path.join(world.folder, 'drift.csv'), 'utf8');
  expect(file.split('\n').slice(0, 3)).toEqual([
    '\uFEFFstream,key,external_id,kind,field,here,there,seen_at',
    expect.stringMatching(/^rooms,R1,room_R1,changed,room\.name,Sal 1,'=Aula,20/),
    expect.stringMatching(/^rooms,R2,room_R2,inactive,active,true,false,20/),
  ]);

  // The repair sends what drifts, and the other object is no drift.
  expect(JSON.parse(await world.read('verify rooms --extras --repair --json'))).toMatchObject({
    verify: { drifting: 2, extra: 1, drift: [{ kind: 'extra' }, { localKey: 'R1' }, { localKey: 'R2' }] },
    run: { kind: 'repair', status: 'succeeded', counts: { rooms: { synced: 2 } } },
  });
  expect(world.sandbox.object('room_R2')).toMatchObject({ active: true });
  const status = await world.ends('status --full', 0, '1 object belongs to no record, and is left as it is');
  expect(status).not.toMatch(/--repair|drifts?\b.* at the service/); // an object without a record is not sent
  expect(await world.read('failures')).not.toContain('seen to differ');
  await settle();
  await world.read('verify rooms');
  expect((await world.read('runs --kind verify')).match(/verify/g)).toHaveLength(3);
  await world.ends('runs 2', 0, /Drift: 2 found, 0 resolved/);
  const listed = await world.ends(
    'verify rooms --extras',
    0,
    '1 object belongs to no record, and is left as it is.\n',
    '; to link it to a row: slotsync match.',
  );
  expect(listed.match(/belongs to no record/g)).toHaveLength(2); // the number, and the one object
});

it('a worker verifies after its nightly sync and repairs within limits', async () => {
  await configure("schedule: { nightly: '0 2 * * *' }, verify: { after: 'sync', repair: 'within-limits' }");
  rename('R1', 'Aula');
  // As if a worker had been running, and the night were due now.
  await world.sql`
    INSERT INTO slotsync.schedules (name, pattern, timezone, registered_at)
    VALUES ('nightly', '0 2 * * *', 'UTC', now() - interval '2 days'), ('verify', 'sync', 'UTC', now() - interval '2 days')`;
  const worker = await world.startWorker();
  await until(() => world.sandbox.object('room_R1')?.fields[0]?.values[0] === 'Sal 1', {
    describe: () => `the repair: ${worker.output()}`,
  });
  const rows = await world.sql`
    SELECT kind, started_by, range FROM slotsync.runs WHERE started_by = 'schedule' ORDER BY id`;
  expect(rows).toMatchObject([
    { kind: 'sync' },
    { kind: 'verify', range: null },
    { kind: 'repair', range: null },
  ]);
});
