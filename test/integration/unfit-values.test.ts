// Values without a text for the service: NaN, infinities, and dates that are not YYYY-MM-DD. The record is given up and names
// the column. The value is never sent, and all other records are.
import { describe, expect, it } from 'vitest';
import type { Row } from '../../src/streams/config-schema.js';
import type { Declaration } from '../support/campus.js';
import { keepWorlds } from '../support/worlds.js';

const openWorld = keepWorlds();
const THING = { from: 'things', key: 'id', type: 'thing', externalId: 'thing_{id}', fields: {} };
const open = (things: Partial<Declaration>) => openWorld({ streams: { things: { ...THING, ...things } } });

const UNFIT: readonly (readonly [type: string, value: string, fit: string, sent: string, words: string])[] = [
  ['date', 'infinity', '2026-03-29', '2026-03-29', 'infinity'],
  ['date', '-infinity', '0099-01-01', '0099-01-01', '-infinity'],
  ['date', '0044-03-15 BC', '9999-12-31', '9999-12-31', 'a date before the year 1'],
  ['date', '12026-03-29', '0001-01-01', '0001-01-01', 'a date after the year 9999'],
  ['timestamp', 'infinity', '2026-03-29 02:30:00', '2026-03-29 02:30:00', 'infinity'],
  [
    'timestamptz',
    '10000-01-01 00:00:00+00',
    '2026-03-29 02:30:00+00',
    '2026-03-29 02:30:00+00',
    'a date after',
  ],
  ['numeric', 'NaN', '1.50', '1.50', 'NaN'],
  ['real', 'NaN', '0.1', '0.1', 'NaN'],
  ['double precision', '-Infinity', '1.5', '1.5', '-Infinity'],
  ['numeric[]', '{1,NaN}', '{1.0,NULL}', '1.0', 'NaN'],
  ['date[]', '{{2026-01-01},{infinity}}', '{2026-01-01,2026-01-02}', '2026-01-01,2026-01-02', 'infinity'],
  ['double precision[]', '{Infinity}', '{1,2}', '1,2', 'Infinity'],
];

describe('a value that cannot be sent', () => {
  it('makes its record dead, by column or by function, while other values of its type are sent', async () => {
    const uses = {
      'thing.named': 'value',
      'thing.computed': (row: Row) => `of ${row.value}`,
    };
    const streams = UNFIT.flatMap(([type, unfit, fit, sent, words], at) =>
      (['thing.named', 'thing.computed'] as const).map((used) => {
        const [name, from] = [`${used.slice('thing.'.length)}_${at}`, `things_${at}`];
        const fields = { [used]: uses[used], 'thing.other': 'id' };
        const declaration = { ...THING, from, externalId: `${name}_{id}`, fields };
        return { name, from, used, type, unfit, fit, sent, words, declaration };
      }),
    );
    const world = await openWorld({
      streams: Object.fromEntries(streams.map(({ name, declaration }) => [name, declaration])),
    });
    for (const [at, [type, unfit, fit]] of UNFIT.entries())
      await world.sql.unsafe(`CREATE TABLE things_${at} (id integer PRIMARY KEY, value ${type});
        INSERT INTO things_${at} VALUES (1, '${unfit}'), (2, '${fit}')`);
    await world.sync();
    for (const { name, used, type, unfit, sent, words } of streams) {
      const { 1: dead, 2: synced } = await world.recordsOf(name);
      expect([type, unfit, dead]).toMatchObject([
        type,
        unfit,
        { status: 'dead', error_code: 'mapping_failed' },
      ]);
      expect(dead?.error_message).toContain(`${name}.fields['${used}']: column value holds ${words}`);
      expect([type, synced?.status]).toEqual([type, 'synced']);
      expect(world.fieldsOf(`${name}_1`)).toBeUndefined();
      if (used === 'thing.named') expect(world.fieldsOf(`${name}_2`)?.[used]).toBe(sent);
    }
  });

  it('changes nothing in a column that the mapping does not use', async () => {
    const world = await open({ fields: { f: 'id' } });
    await world.sql`CREATE TABLE things AS SELECT 1 AS id, 'infinity'::date AS until, 'NaN'::numeric AS price`;
    await world.sync();
    expect(await world.statusesOf('things')).toEqual({ 1: 'synced' });
  });

  it('is sent when its column is text', async () => {
    const world = await open({ fields: { f: 'name' } });
    await world.sql`CREATE TABLE things AS SELECT id, name FROM (VALUES (1, 'NaN'), (2, 'infinity'), (3, '10000 BC')) AS t(id, name)`;
    await world.sync();
    expect(await world.statusesOf('things')).toEqual({ 1: 'synced', 2: 'synced', 3: 'synced' });
    expect(world.fieldsOf('thing_1')).toEqual({ f: 'NaN' });
  });

  it('makes its record dead in the external id or in the key', async () => {
    const world = await open({ key: 'until', externalId: 'thing_{until}_{price}' });
    await world.sql`CREATE TABLE things (until date PRIMARY KEY, price numeric)`;
    await world.sql`INSERT INTO things VALUES ('infinity', 1), ('2026-01-01', 'NaN'), ('2026-01-02', 1), ('0001-01-01 BC', 1)`;
    await world.sync();
    const records = await world.recordsOf('things');
    expect(records).toMatchObject({
      infinity: { status: 'dead', error_message: expect.stringContaining('column until holds infinity') },
      '0001-01-01 BC': {
        status: 'dead',
        error_message: expect.stringContaining('column until holds a date'),
      },
      '2026-01-01': { status: 'dead', error_message: expect.stringContaining('column price holds NaN') },
      '2026-01-02': { status: 'synced' },
    });
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['thing_2026-01-02_1']);
  });

  it('makes its record dead in a reference', async () => {
    const shared = { type: 'thing', fields: {} };
    const parents = { ...shared, from: 'parents', key: 'price', externalId: 'parent_{name}' };
    const things = {
      ...shared,
      from: 'things',
      key: 'id',
      externalId: 'thing_{id}',
      references: { 'thing.parent': { stream: 'parents', key: 'price' } },
    };
    const world = await openWorld({ streams: { parents, things } });
    await world.sql`CREATE TABLE parents AS SELECT 'NaN'::numeric AS price, 'a' AS name`;
    await world.sql`CREATE TABLE things AS SELECT 1 AS id, 'NaN'::numeric AS price`;
    await world.sync();
    expect(await world.recordsOf('things')).toMatchObject({
      1: { status: 'dead', error_message: expect.stringContaining('column price holds NaN') },
    });
  });
});
