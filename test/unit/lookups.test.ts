// Lookups: codes of the mirror translated into values of the service, from the configuration or a CSV file beside it.
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkConfiguration, loadConfiguration } from '../../src/config/config-file.js';
import { UsageError } from '../../src/errors/errors.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { fillLookups } from '../../src/streams/lookups.js';
import { mapRow } from '../../src/streams/map-row.js';
import type { Stream } from '../../src/streams/stream.js';

const folder = mkdtempSync(path.join(tmpdir(), 'slotsync-lookups-'));

type Lookups = SlotsyncConfig['lookups'];
type Field = SlotsyncConfig['streams'][string]['fields'][string];

const GROUP: Field = { column: 'group', lookup: 'group' };
const declare = (lookups: Lookups, group: Field = GROUP): SlotsyncConfig => ({
  lookups,
  streams: {
    rooms: {
      from: 'rooms',
      key: 'code',
      type: 'room',
      externalId: 'room_{code}',
      fields: { 'room.group': group },
    },
  },
});
const resolve = (lookups: Lookups, group?: Field): Stream =>
  checkConfiguration(declare(lookups, group), 'sync.config.ts', { folder }).streams[0] as Stream;
const groupOf = (stream: Stream, group: unknown) =>
  mapRow(stream, { code: 'A', group }).values.get('room.group');
function faultsOf(lookups: Lookups, group?: Field): readonly string[] {
  try {
    resolve(lookups, group);
  } catch (error) {
    if (error instanceof UsageError) return error.faults;
    throw error;
  }
  return [];
}

const CODES = { group: { Manufacturing: 'MFG', Nursing: 'NUR', Closed: null } };

describe('lookup: a column', () => {
  it('lookup: each code becomes its value; null, and a code without a value, send nothing', () => {
    const stream = resolve(CODES);
    expect(groupOf(stream, 'Manufacturing')).toEqual(['MFG']);
    expect(groupOf(stream, ['Nursing', null, 'Closed', 'Manufacturing'])).toEqual(['NUR', 'MFG']);
    expect(groupOf(stream, null)).toEqual([]);
    expect(groupOf(resolve({ group: { 5: 'five', true: 'yes' } }), 5)).toEqual(['five']);
  });

  it('lookup: a code that it does not have refuses the row, without the code; or is kept; or sends nothing', () => {
    expect(() => groupOf(resolve(CODES), 'Anna Berg')).toThrow(
      "rooms.fields['room.group']: column group holds a code that lookup 'group' does not have",
    );
    expect(() => groupOf(resolve(CODES), 'Anna Berg')).not.toThrow('Anna');
    expect(groupOf(resolve(CODES, { ...GROUP, otherwise: 'keep' }), 'Other')).toEqual(['Other']);
    expect(groupOf(resolve(CODES, { ...GROUP, otherwise: null }), 'Other')).toEqual([]);
    // The properties of every JavaScript object are no codes.
    expect(groupOf(resolve(CODES, { ...GROUP, otherwise: null }), 'constructor')).toEqual([]);
  });

  it('lookup: codes may be called like the keys of a file', () => {
    const group = { column: 'group', lookup: 'group' };
    expect(groupOf(resolve({ group: { key: 'K', file: 'F' } }, group), 'file')).toEqual(['F']);
  });
});

describe('lookup: a CSV file', () => {
  const file = { group: { file: 'groups.csv', key: 'code', value: 'name' } };
  const write = (text: string) => writeFileSync(path.join(folder, 'groups.csv'), text);

  it('lookup: is read beside the configuration file, from .json configurations too', async () => {
    write('\uFEFFcode;name\r\nMAN;Manufacturing\r\nNUR;\r\n');
    expect(groupOf(resolve(file), 'MAN')).toEqual(['Manufacturing']);
    expect(groupOf(resolve(file), 'NUR')).toEqual([]);
    writeFileSync(path.join(folder, 'sync.config.json'), JSON.stringify(declare(file)));
    const { streams } = await loadConfiguration(path.join(folder, 'sync.config.json'));
    expect(groupOf(streams[0] as Stream, 'MAN')).toEqual(['Manufacturing']);
  });

  it('lookup: a missing file or column and a repeated code are faults with their place', () => {
    write('code,name\nA,1\nB,2\nA,3\n');
    expect(faultsOf(file)).toEqual([
      "lookups.group.file: groups.csv: lines 2 and 4 both have the code 'A'; keep one of them",
    ]);
    write('code,title\nA,1\n');
    expect(faultsOf(file)).toEqual(['lookups.group.file: groups.csv has no column name']);
    expect(faultsOf({ group: { file: 'none.csv', key: 'code', value: 'name' } })).toEqual([
      'lookups.group.file: none.csv cannot be read (ENOENT)',
    ]);
  });
});

describe('lookup: the configuration', () => {
  it('lookup: an unknown name is a fault that names the nearest one', () => {
    expect(faultsOf(CODES, { column: 'group', lookup: 'groop' })).toEqual([
      "streams.rooms.fields.room.group.lookup: no lookup 'groop'; did you mean group?",
    ]);
    expect(faultsOf(undefined)).toEqual([
      "streams.rooms.fields.room.group.lookup: no lookup 'group'; none is declared",
    ]);
    expect(faultsOf({ group: { from: 'a.b.c.d', key: 'code', value: 'name' } })[0]).toMatch(
      /^lookups\.group\.from: 'a\.b\.c\.d' is not a table name/,
    );
    expect(faultsOf(CODES, { column: 'group', lookup: 'group', otherwise: 'drop' as 'keep' })[0]).toMatch(
      /^streams\.rooms\.fields\.room\.group/,
    );
  });

  it('lookup: its content is a part of the fingerprint, in whatever order it is written', () => {
    const fingerprint = (lookups: Lookups) => resolve(lookups).fingerprint;
    const base = fingerprint({ group: { a: '1', b: '2' } });
    expect(fingerprint({ group: { b: '2', a: '1' } })).toBe(base);
    expect(fingerprint({ group: { a: '1', b: '3' } })).not.toBe(base);
    // A lookup that no field of the stream uses changes nothing.
    expect(fingerprint({ group: { a: '1', b: '2' }, other: { c: '3' } })).toBe(base);
  });

  it('lookup: a table that is read again has the fingerprint of what it holds, not of how often it was read', () => {
    const declared = resolve({ group: { from: 'groups', key: 'code', value: 'name' } });
    const one = new Map([['group', new Map([['a', '1']])]]);
    const other = new Map([['group', new Map([['a', '2']])]]);
    const filled = fillLookups(declared, one);
    expect(filled.fingerprint).not.toBe(declared.fingerprint);
    expect(fillLookups(filled, other).fingerprint).not.toBe(filled.fingerprint);
    expect(fillLookups(fillLookups(filled, other), one).fingerprint).toBe(filled.fingerprint);
    expect(() => groupOf(declared, 'a')).toThrow("lookup 'group' could not be read");
    expect(groupOf(filled, 'a')).toEqual(['1']);
  });
});

describe('fingerprint: modules of the configuration', () => {
  const config = (fields: string, from = "'./codes.js'") => `
    import { GROUPS } from ${from};
    const unused = GROUPS;
    export default { streams: {
      rooms: { from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}', fields: ${fields} } } };`;
  const load = async (name: string) =>
    (await loadConfiguration(path.join(folder, name))).streams[0]?.fingerprint;

  it.each([
    ['sync.config.ts', 'codes.ts', "'./codes.js'"],
    ['sync.config.mjs', 'codes.js', '"./codes.js"'],
    ['sync.config.ts', 'codes.ts', String.raw`"\u002e/codes.js"`],
  ])(
    'fingerprint: %s with a function sees a constant of an imported module change: %s from %s',
    async (name, imported, from) => {
      const own = mkdtempSync(path.join(folder, 'modules-'));
      const write = (file: string, text: string) => writeFileSync(path.join(own, file), text);
      write('package.json', '{ "type": "module" }');
      write('names.json', '{ "MFG": "Manufacturing" }');
      const json = name.endsWith('.ts')
        ? "import names from './names.json';"
        : "import names from './names.json' with { type: 'json' };";
      write(imported, `${json} export const GROUPS = { MFG: '1', ...names };`);
      write(name, config("{ 'room.group': (row) => GROUPS[row.group] }", from));
      const file = path.relative(folder, path.join(own, name));
      const before = await load(file);
      expect(await load(file)).toBe(before);
      write(imported, `${json} export const GROUPS = { MFG: '2', ...names };`);
      const after = await load(file);
      expect(after).not.toBe(before);
      write('names.json', '{ "MFG": "Factory" }');
      expect(await load(file)).not.toBe(after);
    },
  );

  it('fingerprint: a stream without functions does not depend on modules, and a folder elsewhere changes nothing', async () => {
    const places = ['one', 'two'].map((prefix) => mkdtempSync(path.join(folder, `${prefix}-`)));
    const fingerprints: (bigint | undefined)[] = [];
    for (const place of places) {
      writeFileSync(path.join(place, 'codes.ts'), 'export const GROUPS = {};');
      for (const fields of ["{ 'room.name': (row) => row.name }", "{ 'room.name': 'name' }"]) {
        writeFileSync(path.join(place, 'sync.config.ts'), config(fields));
        fingerprints.push(await load(path.relative(folder, path.join(place, 'sync.config.ts'))));
      }
    }
    expect(fingerprints[2]).toBe(fingerprints[0]);
    expect(fingerprints[3]).toBe(fingerprints[1]);
    const [one = ''] = places;
    writeFileSync(path.join(one, 'codes.ts'), 'export const GROUPS = { A: 1 };');
    expect(await load(path.relative(folder, path.join(one, 'sync.config.ts')))).toBe(fingerprints[1]);
  });
});
