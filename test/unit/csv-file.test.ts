import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { openCsvFile, readCsvFile } from '../../src/files/csv-file.js';

const folder = mkdtempSync(path.join(tmpdir(), 'slotsync-csv-'));
const file = path.join(folder, 'table.csv');

async function writeAndRead(rows: readonly Record<string, string>[]) {
  const csv = await openCsvFile(file, ['key', 'name']);
  await csv.write(rows);
  await csv.close();
  return readCsvFile(file, ['key', 'name']).map(({ values }) => values);
}

it('csv: any text comes back as it was written', async () => {
  const text = fc.string({ unit: 'grapheme', minLength: 1 });
  const rows = fc.array(fc.record({ key: text, name: text }), { minLength: 1, maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(rows, async (given) => {
      expect(await writeAndRead(given)).toEqual(given);
    }),
    { numRuns: 40 },
  );
  const awkward = [' a ', "'", '007', 'a,"b"\nc;d\te', '=1+1', '-1', '@x', '\r'];
  const given = awkward.map((key) => ({ key, name: key }));
  expect(await writeAndRead(given)).toEqual(given);
});

it('csv: a cell that a spreadsheet would compute is written as text', async () => {
  await writeAndRead([{ key: '=HYPERLINK("http://x")', name: '+1' }]);
  const text = readFileSync(file, 'utf8');
  expect(text).toBe('\uFEFFkey,name\n"\'=HYPERLINK(""http://x"")",\'+1\n');
});

it('csv: what a spreadsheet of another country saves is read, with the line of each row', () => {
  writeFileSync(file, 'name;key\r\n"a;b";1\r\n\r\n;\r\nc,d;2\r\n');
  expect(readCsvFile(file, ['key', 'name'])).toEqual([
    { line: 2, values: { name: 'a;b', key: '1' } },
    { line: 5, values: { name: 'c,d', key: '2' } },
  ]);
});

it('csv: the line of a row is where it begins, behind cells of several lines', () => {
  writeFileSync(file, 'key,name\n"1\r\n1",a\n2,"b\nb\nb"\n\n3,c\n');
  expect(readCsvFile(file, ['key', 'name']).map(({ line }) => line)).toEqual([2, 4, 8]);
});

it('csv: a file that is no table, or lacks a column, or cannot be written is one error that names it', async () => {
  writeFileSync(file, 'key,other\n1,2\n');
  expect(() => readCsvFile(file, ['key', 'name'])).toThrow(`${file} has no column name`);
  writeFileSync(file, '');
  expect(() => readCsvFile(file, ['key', 'name'])).toThrow(`${file} has no column key, name`);
  writeFileSync(file, 'key,name\n"1,2\n');
  expect(() => readCsvFile(file, ['key', 'name'])).toThrow(`${file} is not a CSV file: `);
  writeFileSync(file, 'key,name\n1,2,3\n');
  expect(() => readCsvFile(file, ['key', 'name'])).toThrow(/is not a CSV file: .*line 2/);
  expect(() => readCsvFile(path.join(folder, 'none.csv'), ['key'])).toThrow('none.csv');
  await expect(openCsvFile(path.join(folder, 'none', 'x.csv'), ['key'])).rejects.toThrow('cannot be written');
});
