// Lookups translate codes of the mirror into values of the service. They stand in the configuration or in a CSV file beside it.
import { mkdtempSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkConfiguration, loadConfiguration } from '../../src/config/config-file.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { fillLookups } from '../../src/streams/lookups.js';
import { mapRow } from '../../src/streams/map-row.js';
import type { Stream } from '../../src/streams/stream.js';
import { createFolder } from '../support/folders.js';
import { refusalOf } from './declare.js';

const folder = createFolder('lookups');

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
const faultsOf = (lookups: Lookups, group?: Field) => refusalOf(() => resolve(lookups, group)).faults;

const CODES = { group: { Manufacturing: 'MFG', Nursing: 'NUR', Closed: null } };

describe('a lookup for a column', () => {
  it('translates each code, and sends nothing for null or for a code without a value', () => {
    const stream = resolve(CODES);
    expect(groupOf(stream, 'Manufacturing')).toEqual(['MFG']);
    expect(groupOf(stream, ['Nursing', null, 'Closed', 'Manufacturing'])).toEqual(['NUR', 'MFG']);
    expect(groupOf(stream, null)).toEqual([]);
    expect(groupOf(resolve({ group: { 5: 'five', true: 'yes' } }), 5)).toEqual(['five']);
  });

  it('refuses, keeps or drops an unknown code as `otherwise` says, and does not quote the code', () => {
    expect(() => groupOf(resolve(CODES), 'Anna Berg')).toThrow(
      "rooms.fields['room.group']: column group holds a code that lookup 'group' does not have",
    );
    expect(() => groupOf(resolve(CODES), 'Anna Berg')).not.toThrow('Anna');
    expect(groupOf(resolve(CODES, { ...GROUP, otherwise: 'keep' }), 'Other')).toEqual(['Other']);
    expect(groupOf(resolve(CODES, { ...GROUP, otherwise: null }), 'Other')).toEqual([]);
    // The properties of every JavaScript object are no codes.
    expect(groupOf(resolve(CODES, { ...GROUP, otherwise: null }), 'constructor')).toEqual([]);
  });

  it('may have codes named `key` and `value`', () => {
    const stream = resolve({ group: { key: 'K', value: 'V' } });
    expect(['key', 'value'].map((code) => groupOf(stream, code))).toEqual([['K'], ['V']]);
  });

  it.each([
    ['from', 'a table of the mirror', { key: 'K', value: 'V', other: 'O' }],
    ['from', 'a table of the mirror', { key: 'code', vale: 'name' }],
    ['file', 'a CSV file', { key: 'code', value: 'name', rowSecurity: 'filtered' }],
    ['file', 'a CSV file', { folder: 'F' }],
  ])('may have no code named `%s`, which makes it %s: beside %o', (key, kind, more) => {
    expect(faultsOf({ group: { [key]: 'F', ...more } as Record<string, string> })).toEqual([
      `lookups.group: '${key}' makes the lookup ${kind}, which needs 'key' and 'value' and nothing else; ` +
        `a code named '${key}' must be in a CSV file`,
    ]);
  });
});

describe('a lookup from a CSV file', () => {
  const file = { group: { file: 'groups.csv', key: 'code', value: 'name' } };
  const write = (text: string) => writeFileSync(path.join(folder, 'groups.csv'), text);

  it('is read beside the configuration file, also for a .json configuration', async () => {
    write('\uFEFFcode;name\r\nMAN;Manufacturing\r\nNUR;\r\n');
    expect(groupOf(resolve(file), 'MAN')).toEqual(['Manufacturing']);
    expect(groupOf(resolve(file), 'NUR')).toEqual([]);
    writeFileSync(path.join(folder, 'sync.config.json'), JSON.stringify(declare(file)));
    const { streams } = await loadConfiguration(path.join(folder, 'sync.config.json'));
    expect(groupOf(streams[0] as Stream, 'MAN')).toEqual(['Manufacturing']);
  });

  it('is refused with its place if the file or column is missing, or a code repeats', () => {
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

describe('a lookup in the configuration', () => {
  it('is refused with the nearest name if it is unknown', () => {
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

  it('changes the fingerprint with its content, but not with its order', () => {
    const fingerprint = (lookups: Lookups) => resolve(lookups).fingerprint;
    const base = fingerprint({ group: { a: '1', b: '2' } });
    expect(fingerprint({ group: { b: '2', a: '1' } })).toBe(base);
    expect(fingerprint({ group: { a: '1', b: '3' } })).not.toBe(base);
    // A lookup that no field of the stream uses changes nothing.
    expect(fingerprint({ group: { a: '1', b: '2' }, other: { c: '3' } })).toBe(base);
  });

  it('changes the fingerprint with the content of its table, not with the number of readings', () => {
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

describe('the fingerprint of a stream with modules of the configuration', () => {
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
    'changes in %s with a constant of the imported module %s, imported as %s',
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

  it('ignores modules if the stream has no functions, and ignores the folder', async () => {
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
