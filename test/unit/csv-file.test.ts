import { readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { createFolder } from '../support/folders.js';
import { AWKWARD, OBEYED } from '../support/situations.js';
import { openCsvFile, readCsvFile } from '../../src/files/csv-file.js';

const folder = createFolder('csv');
const file = path.join(folder, 'table.csv');

async function writeAndRead(rows: readonly Record<string, string>[]) {
  const csv = await openCsvFile(file, ['key', 'name']);
  await csv.write(rows);
  await csv.close();
  return readCsvFile(file, ['key', 'name']).map(({ values }) => values);
}

it('a CSV file returns any text as it was written', async () => {
  const text = fc.string({ unit: 'grapheme', minLength: 1 });
  const rows = fc.array(fc.record({ key: text, name: text }), { minLength: 1, maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(rows, async (given) => {
      expect(await writeAndRead(given)).toEqual(given);
    }),
    { numRuns: 40 },
  );
  const formulas = ['=1+1', '-1', '@x', '\r', '007'];
  const quoted = ['C:\\u000a', 'C:\\new', "a;'b", 'a; "=b"', ' a ', "'", 'a,"b"\nc;d\te'];
  const awkward = [AWKWARD, ...quoted, ...formulas];
  const given = awkward.map((key) => ({ key, name: key }));
  expect(await writeAndRead(given)).toEqual(given);
});

it('a CSV file marks a cell that a spreadsheet would compute as text', async () => {
  await writeAndRead([{ key: '=HYPERLINK("http://x")', name: '+1' }]);
  const text = readFileSync(file, 'utf8');
  expect(text).toBe('\uFEFFkey,name\n"\'=HYPERLINK(""http://x"")",\'+1\n');
});

it.each(['=1+1', '+1', '-1', '@x', '＝1+1', '＋1', '－1', '＠x', ' =1+1', '"=1+1"'])(
  'a CSV file marks %s as text, also after a semicolon, a tab or a line break',
  async (formula) => {
    const keys = [formula, `a;${formula}`, `a\t${formula}`, `a\r${formula}`, `a\n${formula}`];
    expect(await writeAndRead(keys.map((key) => ({ key, name: 'x' })))).toEqual(
      keys.map((key) => ({ key, name: 'x' })),
    );
    const cells = readFileSync(file, 'utf8')
      .split(/[,;\t\r\n]/)
      .map((cell) => cell.replaceAll(/["\s]/g, ''));
    expect(cells.filter((cell) => /^[=+\-@＝＋－＠]/.test(cell))).toEqual([]);
  },
);

it('a CSV file has one line for each row, whatever its cells contain', async () => {
  await writeAndRead([{ key: AWKWARD, name: AWKWARD }]);
  const text = readFileSync(file, 'utf8');
  expect(text.split('\n')).toHaveLength(3);
  expect(text).not.toMatch(OBEYED);
});

it('a CSV file is readable by its owner only, and replaces the former file when it is complete', async () => {
  writeFileSync(file, 'former', { mode: 0o644 });
  const csv = await openCsvFile(file, ['key']);
  await csv.write([{ key: 'a' }]);
  expect(readFileSync(file, 'utf8')).toBe('former');
  const [unfinished = ''] = readdirSync(folder).filter((name) => name.endsWith('.unfinished'));
  expect(statSync(path.join(folder, unfinished)).mode & 0o777).toBe(0o600);
  await csv.close();
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(readdirSync(folder)).toEqual([path.basename(file)]);
});

it('a CSV file follows no symbolic link, and replaces only an ordinary file', async () => {
  const target = path.join(folder, 'target');
  const link = path.join(folder, 'link.csv');
  writeFileSync(target, 'untouched');
  symlinkSync(target, link);
  await expect(openCsvFile(link, ['key'])).rejects.toThrow('link.csv is a folder, a link or a device');
  await expect(openCsvFile('/dev/null', ['key'])).rejects.toThrow(
    '/dev/null is a folder, a link or a device',
  );
  await expect(openCsvFile(folder, ['key'])).rejects.toThrow(`${folder} is a folder`);
  rmSync(link);
  // A link that takes its place, or that of the unfinished file, meanwhile.
  symlinkSync(target, `${link}.${process.pid}.unfinished`);
  const csv = await openCsvFile(link, ['key']);
  symlinkSync(target, link);
  await csv.close();
  expect(readFileSync(target, 'utf8')).toBe('untouched');
  expect(readFileSync(link, 'utf8')).toBe('\uFEFFkey\n');
  rmSync(link);
  rmSync(target);
});

it('a CSV file with semicolons and CRLF is read, with the line of each row', () => {
  writeFileSync(file, 'name;key\r\n"a;b";1\r\n\r\n;\r\nc,d;2\r\n');
  expect(readCsvFile(file, ['key', 'name'])).toEqual([
    { line: 2, values: { name: 'a;b', key: '1' } },
    { line: 5, values: { name: 'c,d', key: '2' } },
  ]);
});

it('csv: the line of a row is where it ends, also behind cells of several lines', () => {
  writeFileSync(file, 'key,name\n"1\n1",a\n2,"b\nb\nb"\n\n3,c\n');
  expect(readCsvFile(file, ['key', 'name']).map(({ line }) => line)).toEqual([3, 6, 8]);
});

it('a CSV file that cannot be read or written is named in the error', async () => {
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
