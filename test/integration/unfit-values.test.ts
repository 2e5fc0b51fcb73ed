// Values without a text for the service: NaN, infinities, and dates that are not YYYY-MM-DD. The record is given up and names
// the column. The value is never sent, and all other records are.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Row } from '../../src/streams/config-schema.js';
import type { Declaration } from '../support/campus.js';
import { createSharedDatabase, openWorld, type SharedDatabase, type World } from '../support/world.js';

let database: SharedDatabase;
beforeAll(async () => {
  database = await createSharedDatabase();
});
afterAll(() => database.drop());

async function withWorld(things: Partial<Declaration>, run: (world: World) => Promise<void>): Promise<void> {
  const whole = { from: 'things', key: 'id', type: 'thing', externalId: 'thing_{id}', fields: {}, ...things };
  const world = await openWorld({ streams: { things: whole } }, { database });
  try {
    await run(world);
  } finally {
    await world.close();
  }
}

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
  it.each(UNFIT)(
    'makes its record dead for type %s: %s, while %s is sent',
    async (type, unfit, fit, sent, words) => {
      const fields = {
        'thing.named': 'value',
        'thing.computed': (row: Row) => `of ${row.value}`,
        'thing.other': 'id',
      };
      for (const used of ['thing.named', 'thing.computed'] as const) {
        await withWorld({ fields: { [used]: fields[used], 'thing.other': 'id' } }, async (world) => {
          await world.sql.unsafe(`CREATE TABLE things (id integer PRIMARY KEY, value ${type})`);
          await world.sql.unsafe(`INSERT INTO things VALUES (1, '${unfit}'), (2, '${fit}')`);
          await world.sync();
          const { 1: dead, 2: synced } = await world.recordsOf('things');
          expect(dead).toMatchObject({ status: 'dead', error_code: 'mapping_failed' });
          expect(dead?.error_message).toContain(`things.fields['${used}']: column value holds ${words}`);
          expect(synced?.status).toBe('synced');
          expect(world.fieldsOf('thing_1')).toBeUndefined();
          if (used === 'thing.named') expect(world.fieldsOf('thing_2')?.[used]).toBe(sent);
        });
      }
    },
  );

  it('changes nothing in a column that the mapping does not use', async () => {
    await withWorld({ fields: { f: 'id' } }, async (world) => {
      await world.sql`CREATE TABLE things AS SELECT 1 AS id, 'infinity'::date AS until, 'NaN'::numeric AS price`;
      await world.sync();
      expect(await world.statusesOf('things')).toEqual({ 1: 'synced' });
    });
  });

  it('is sent when its column is text', async () => {
    await withWorld({ fields: { f: 'name' } }, async (world) => {
      await world.sql`CREATE TABLE things AS SELECT id, name FROM (VALUES (1, 'NaN'), (2, 'infinity'), (3, '10000 BC')) AS t(id, name)`;
      await world.sync();
      expect(await world.statusesOf('things')).toEqual({ 1: 'synced', 2: 'synced', 3: 'synced' });
      expect(world.fieldsOf('thing_1')).toEqual({ f: 'NaN' });
    });
  });

  it('makes its record dead in the external id or in the key', async () => {
    await withWorld({ key: 'until', externalId: 'thing_{until}_{price}' }, async (world) => {
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
    const world = await openWorld({ streams: { parents, things } }, { database });
    await world.sql`CREATE TABLE parents AS SELECT 'NaN'::numeric AS price, 'a' AS name`;
    await world.sql`CREATE TABLE things AS SELECT 1 AS id, 'NaN'::numeric AS price`;
    await world.sync();
    expect(await world.recordsOf('things')).toMatchObject({
      1: { status: 'dead', error_message: expect.stringContaining('column price holds NaN') },
    });
    await world.close();
  });
});
