// Guarantee 6
// First sync into a service where people keep rooms under our external ids: the plan shows each field, and sync holds the
// overwriting.
import { readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'csv-parse/sync';
import { beforeAll, describe, expect, it } from 'vitest';
import { rehearseOnce } from '../support/rehearsals.js';

const world = rehearseOnce({ rows: 60, sandbox: { rate: 0 } });
beforeAll(() => {
  for (let at = 1; at <= 40; at++) {
    const fields = [{ fieldId: 'room.name', values: [`By hand ${at}`] }];
    world.sandbox.putObject({ extId: `room_R${at}`, typeId: 'room', fields });
  }
});

const byHand = () =>
  world.sandbox.objects().filter(({ fields }) => fields[0]?.values[0]?.startsWith('By hand'));

describe('a plan with objects to overwrite', () => {
  it('counts new, equal and overwritten objects, and says that they would be held', async () => {
    await world.ends(
      'plan rooms',
      3,
      /overwrite rooms 'R1' → room_R1\n {2}room\.name: "By hand 1" → "Sal 1"/,
      'rooms: 60 records never accepted: 20 new, 0 already equal at the service, 40 would overwrite an existing object.',
      /rooms: held: 40 of 60 records that were never accepted would overwrite objects/,
    );
    expect(await world.json('plan rooms --json')).toMatchObject({
      streams: [{ counts: { create: 60, new: 20, equal: 0, overwrite: 40 } }],
    });
  });

  it('shows every operation field by field with --full', async () => {
    const shown = await world.ends('plan rooms --full', 3);
    expect(shown.match(/^overwrite rooms/gm)).toHaveLength(40);
    expect(shown.match(/^create rooms/gm)).toHaveLength(20);
    const both = await world.run(['plan', '--full', '--json']);
    expect(both).toMatchObject({ code: 2, stderr: expect.stringContaining('--full prints text, not JSON') });
  });

  it('writes fields to a .csv file or operations to a .jsonl file with --out', async () => {
    await world.ends('plan --out plan.csv', 3);
    const text = readFileSync(path.join(world.folder, 'plan.csv'), 'utf8');
    const rows: Record<string, string>[] = parse(text, { bom: true, columns: true });
    const overwriting = rows.filter(({ operation }) => operation === 'overwrite');
    expect(new Set(overwriting.map(({ key }) => key)).size).toBe(40);
    const first = { stream: 'rooms', operation: 'overwrite', key: 'R1', external_id: 'room_R1' };
    const values = { field: 'room.name', there: 'By hand 1', here: 'Sal 1', kept_by: '', problem: '' };
    expect(rows).toContainEqual({ ...first, ...values });
    await world.ends('plan rooms --out plan.jsonl', 3);
    const operations = readFileSync(path.join(world.folder, 'plan.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { operation: string; key: string; changes: unknown });
    expect(operations).toHaveLength(60);
    for (const name of ['plan.csv', 'plan.jsonl'])
      expect(statSync(path.join(world.folder, name)).mode & 0o777).toBe(0o600);
    expect(operations.find(({ key }) => key === 'R1')).toMatchObject({
      ...first,
      changes: [
        { field: 'room.name', there: ['By hand 1'], here: ['Sal 1'] },
        { field: 'room.seats', there: [], here: ['1'] },
      ],
    });
  });
});

describe('a sync with objects to overwrite', () => {
  it('holds them with samples, sends the rest, and holds them again the next time', async () => {
    for (const night of [1, 2]) {
      await world.ends(
        'sync rooms',
        3,
        /40 overwritings of rooms, held in run \d+\n {4}40 of \d+ records that were never accepted would overwrite objects/,
        /'R1' → room_R1\n {8}room\.name: "By hand 1" → /,
      );
      expect(byHand(), `night ${night}`).toHaveLength(40);
    }
    expect(world.sandbox.objects()).toHaveLength(60);
    expect(await world.read('status --full')).toMatch(/holds 40 overwritings of rooms\n[^]*'R1' → room_R1/);
  });
});
