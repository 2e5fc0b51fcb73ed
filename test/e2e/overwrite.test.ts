// Guarantee 6
// First sync into a service where people keep rooms under our external ids: the plan shows each field, and sync holds the
// overwriting.
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'csv-parse/sync';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';

let world: Rehearsal;
beforeAll(async () => {
  world = await rehearse({ rows: 60, sandbox: { rate: 0 } });
  for (let at = 1; at <= 40; at++) {
    const fields = [{ fieldId: 'room.name', values: [`By hand ${at}`] }];
    world.sandbox.putObject({ extId: `room_R${at}`, typeId: 'room', fields });
  }
});
afterAll(() => world.close());

const byHand = () =>
  world.sandbox.objects().filter(({ fields }) => fields[0]?.values[0]?.startsWith('By hand'));

describe('a plan with objects to overwrite', () => {
  it('counts new, equal and overwritten objects, and says that they would be held', async () => {
    const { code, stdout } = await world.run(['plan', 'rooms']);
    expect(stdout).toMatch(/overwrite rooms 'R1' → room_R1\n {2}room\.name: "By hand 1" → "Sal 1"/);
    expect(stdout).toContain(
      'rooms: 60 records never accepted: 20 new, 0 already equal at the service, 40 would overwrite an existing object.',
    );
    expect(stdout).toMatch(/rooms: held: 40 of 60 records that were never accepted would overwrite objects/);
    expect(code).toBe(3);
    const { streams } = JSON.parse((await world.run(['plan', 'rooms', '--json'])).stdout) as {
      streams: unknown[];
    };
    expect(streams).toMatchObject([{ counts: { create: 60, new: 20, equal: 0, overwrite: 40 } }]);
  });

  it('shows every operation field by field with --full', async () => {
    const { stdout } = await world.run(['plan', 'rooms', '--full']);
    expect(stdout.match(/^overwrite rooms/gm)).toHaveLength(40);
    expect(stdout.match(/^create rooms/gm)).toHaveLength(20);
    const { code, stderr } = await world.run(['plan', '--full', '--json']);
    expect(stderr).toContain('--full prints text, not JSON');
    expect(code).toBe(2);
  });

  it('writes fields to a .csv file or operations to a .jsonl file with --out', async () => {
    expect((await world.run(['plan', '--out', 'plan.csv'])).code).toBe(3);
    const text = readFileSync(path.join(world.folder, 'plan.csv'), 'utf8');
    const rows: Record<string, string>[] = parse(text, { bom: true, columns: true });
    const overwriting = rows.filter(({ operation }) => operation === 'overwrite');
    expect(new Set(overwriting.map(({ key }) => key)).size).toBe(40);
    expect(rows).toContainEqual({
      stream: 'rooms',
      operation: 'overwrite',
      key: 'R1',
      external_id: 'room_R1',
      field: 'room.name',
      there: 'By hand 1',
      here: 'Sal 1',
      kept_by: '',
      problem: '',
    });
    expect((await world.run(['plan', 'rooms', '--out', 'plan.jsonl'])).code).toBe(3);
    const operations = readFileSync(path.join(world.folder, 'plan.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { operation: string; key: string; changes: unknown });
    expect(operations).toHaveLength(60);
    for (const name of ['plan.csv', 'plan.jsonl'])
      expect(statSync(path.join(world.folder, name)).mode & 0o777).toBe(0o600);
    expect(operations.find(({ key }) => key === 'R1')).toMatchObject({
      stream: 'rooms',
      operation: 'overwrite',
      external_id: 'room_R1',
      changes: [
        { field: 'room.name', there: ['By hand 1'], here: ['Sal 1'] },
        { field: 'room.seats', there: [], here: ['1'] },
      ],
    });
  });

  it('refuses another ending of the file, and a file that cannot be written', async () => {
    const wrong = await world.run(['plan', '--out', 'plan.xlsx']);
    expect(wrong.stderr).toContain("--out needs a file name that ends with .csv or .jsonl, not 'plan.xlsx'");
    expect(wrong.code).toBe(2);
    writeFileSync(path.join(world.folder, 'file'), '');
    const unwritable = await world.run(['plan', '--out', 'file/plan.csv']);
    expect(unwritable.stderr).toMatch(/^slotsync: .*plan\.csv cannot be written \(ENOTDIR\)/);
    expect(unwritable.code).toBe(2);
    const match = await world.run(['match', '--out', 'file/matches.csv']);
    expect(match.stderr).toMatch(/^slotsync: file\/matches\.csv cannot be written \(ENOTDIR\)/);
  });
});

describe('a sync with objects to overwrite', () => {
  it('holds them with samples, sends the rest, and holds them again the next time', async () => {
    for (const night of [1, 2]) {
      const { code, stdout } = await world.run(['sync', 'rooms']);
      expect(stdout).toMatch(
        /40 overwritings of rooms, held in run \d+\n {4}40 of \d+ records that were never accepted would overwrite objects/,
      );
      expect(stdout).toMatch(/'R1' → room_R1\n {8}room\.name: "By hand 1" → /);
      expect(code, `night ${night}`).toBe(3);
      expect(byHand()).toHaveLength(40);
    }
    expect(world.sandbox.objects()).toHaveLength(60);
    expect((await world.run(['status', '--full'])).stdout).toMatch(
      /holds 40 overwritings of rooms\n[^]*'R1' → room_R1/,
    );
  });
});
