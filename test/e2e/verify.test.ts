// Guarantee 11
// Verify as an operator runs it: a service that was restarted empty, and drift that is repaired. The commands, their
// messages and exit codes, and a worker that does it after the nightly sync.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { CONFIGURATION, rehearse, type Rehearsal } from '../support/rehearsal.js';
import { until } from '../support/wait.js';

let world: Rehearsal;
afterEach(() => world.close());

const open = async (rows = 30) => {
  world = await rehearse({ rows, sandbox: { rate: 0 } });
  await world.configure(
    CONFIGURATION.replace('streams: {', "verify: { after: '0 5 * * *', share: 1 },\n  streams: {"),
  );
  expect((await world.run(['sync'])).code).toBe(0);
  await settle();
};
/** Ages the records by an hour, because verify reads recently written objects twice. */
const settle = () => world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour'`;
const removeAll = () => {
  for (const { id } of world.sandbox.objects()) world.sandbox.removeObject(id);
};
const rename = (code: string, name: string) =>
  world.sandbox.changeObject(`room_${code}`, { fields: [{ fieldId: 'room.name', values: [name] }] });

describe('slotsync verify', () => {
  it('finds everything missing at an emptied service, and repairs it after an approval', async () => {
    await open();
    removeAll();
    const sync = await world.run(['sync']);
    expect(sync.code).toBe(0);
    expect(world.sandbox.objects()).toEqual([]);
    expect((await world.run(['status', '--full'])).stdout).toMatch(/rooms +never verified +– +–/);

    const verify = await world.run(['verify']);
    expect(verify.stdout).toMatch(/rooms +30 +30\n/);
    expect(verify.stdout).toContain("courses '1' (course_1) is not at the service");
    expect(verify.stdout).toContain('60 objects drift');
    expect(verify.stdout).toContain('To send them again: slotsync verify --repair');
    expect(verify.code).toBe(1);
    const status = await world.run(['status', '--full']);
    expect(status.stdout).toMatch(/rooms +20\d\d-\d\d-\d\d \d\d:\d\d UTC +30 +30/);
    expect(status.stdout).toContain('slotsync verify rooms --repair');
    expect((await world.run(['failures'])).stdout).toContain('60 objects differ at the service');

    const repair = await world.run(['verify', '--repair']);
    expect(repair.stdout).toContain(
      'The service holds none of the 30 objects: it may have been restored empty or from a backup',
    );
    expect(repair.code).toBe(3);
    expect(world.sandbox.objects()).toEqual([]);
    const runId = /Run (\d+) held/.exec(repair.stdout)?.[1] ?? '';
    expect(repair.stdout).toContain(`→ slotsync approve ${runId} --stream rooms --operation repair`);

    const approve = await world.run(['approve', runId]);
    expect(approve.stdout).toContain('Approved: up to 30 repairs of rooms');
    expect(approve.code).toBe(0);
    expect(world.sandbox.objects()).toHaveLength(60);
    await settle();
    const again = await world.run(['verify']);
    expect(again.stdout).toContain('60 objects compared');
    expect(again.stdout).toContain('no drift');
    expect(again.code).toBe(0);
    expect((await world.run(['status', '--full'])).stdout).not.toContain('Held in run');
  });

  it('names the object of a field that a person corrected, also when nothing drifts', async () => {
    world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
    await world.configure(
      CONFIGURATION.replace("'course.name': 'name'", "'course.name': { from: 'name', write: 'changed' }"),
    );
    expect((await world.run(['sync'])).code).toBe(0);
    await settle();
    world.sandbox.changeObject('course_1', { fields: [{ fieldId: 'course.name', values: ['Algebra'] }] });
    const { stdout, code } = await world.run(['verify']);
    expect(stdout).toContain("courses '1' (course_1) keeps values of the service");
    expect(stdout).not.toContain('The first');
    expect(code).toBe(0);
  });

  it('names a few changes with both values, writes them to a file, and repairs them', async () => {
    await open();
    rename('R1', '=Aula');
    world.sandbox.changeObject('room_R2', { active: false });
    world.sandbox.addObject({ typeId: 'room' });
    const { stdout, code } = await world.run(['verify', 'rooms', '--out', 'drift.csv']);
    expect(stdout).toContain("rooms 'R1' (room_R1) was changed at the service");
    expect(stdout).toContain('room.name: "=Aula" at the service, "Sal 1" expected');
    expect(stdout).toContain(
      '1 object belongs to no record, and is left as it is: slotsync verify --extras lists it.',
    );
    expect(stdout).toContain('Written to drift.csv.');
    expect(code).toBe(1);
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(160);
    const file = await readFile(path.join(world.folder, 'drift.csv'), 'utf8');
    expect(file.split('\n').slice(0, 3)).toEqual([
      '\uFEFFstream,key,external_id,kind,field,here,there,seen_at',
      expect.stringMatching(/^rooms,R1,room_R1,changed,room\.name,Sal 1,'=Aula,20/),
      expect.stringMatching(/^rooms,R2,room_R2,inactive,active,true,false,20/),
    ]);

    const extras = await world.run(['verify', 'rooms', '--extras', '--repair', '--json']);
    expect(JSON.parse(extras.stdout)).toMatchObject({
      verify: { drifting: 2, extra: 1, drift: [{ kind: 'extra' }, { localKey: 'R1' }, { localKey: 'R2' }] },
      run: { kind: 'repair', status: 'succeeded', counts: { rooms: { synced: 2 } } },
    });
    expect(extras.code).toBe(0); // the repair sent what drifts, and the other object is no drift
    expect(world.sandbox.object('room_R2')).toMatchObject({ active: true });
    const status = await world.run(['status', '--full']);
    expect(status.stdout).toContain('1 object belongs to no record, and is left as it is');
    expect(status.stdout).not.toContain('--repair'); // an object without a record is not sent
    expect(status.stdout).not.toMatch(/drifts?\b.* at the service/);
    expect((await world.run(['failures'])).stdout).not.toContain('seen to differ');
    await settle();
    expect((await world.run(['verify', 'rooms'])).code).toBe(0);
    const runs = await world.run(['runs', '--kind', 'verify']);
    expect(runs.stdout.match(/verify/g)).toHaveLength(3);
    expect((await world.run(['runs', '2'])).stdout).toMatch(/Drift: 2 found, 0 resolved/);
    const listed = (await world.run(['verify', 'rooms', '--extras'])).stdout;
    expect(listed.match(/belongs to no record/g)).toHaveLength(2); // the number, and the one object
    expect(listed).toContain('1 object belongs to no record, and is left as it is.\n');
    expect(listed).toContain('; to link it to a row: slotsync match.');
  });

  it.each([
    [['--sample', '0'], "--sample takes a whole number from 1 on, not '0'"],
    [['--adopt', '--repair'], '--adopt makes records and compares nothing: leave out --repair'],
    [['--adopt', '--sample', '5'], '--adopt makes records and compares nothing: leave out --sample'],
    [['--detach'], '--detach is about a repair: add --repair'],
    [['halls'], "no stream 'halls' in the configuration"],
    [['--out', 'no/such/folder/drift.csv'], 'no/such/folder/drift.csv cannot be written'],
  ])('is refused before anything is read: %j', async (args, says) => {
    world = await rehearse({ rows: 1, sandbox: { rate: 0 } });
    const { code, stderr } = await world.run(['verify', ...args]);
    expect(stderr).toContain(says);
    expect(code).toBe(2);
    expect(world.sandbox.arrivals()).toEqual([]);
  });

  it('has its next time shown by check', async () => {
    await open(1);
    expect((await world.run(['check'])).stdout).toMatch(
      /✓ verify: the next verify is due 20\d\d-\d\d-\d\d 05:00 UTC, if a worker is running/,
    );
  });
});

describe('a worker', () => {
  it('verifies after its nightly sync and repairs within limits', async () => {
    world = await rehearse({ rows: 30, sandbox: { rate: 0 } });
    expect((await world.run(['sync'])).code).toBe(0);
    await settle();
    const night = "schedule: { nightly: '0 2 * * *' }, verify: { after: 'sync', repair: 'within-limits' },";
    await world.configure(CONFIGURATION.replace('streams: {', `${night}\n  streams: {`));
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
});
