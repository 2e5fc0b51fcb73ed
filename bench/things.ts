// Rows and objects in any number, as several benches have them on both sides.
import type { Sql } from 'postgres';

/** Most results in one page of a find. */
export const PAGE = 1000;

export const THINGS = {
  streams: {
    things: {
      from: 'public.things',
      key: 'id',
      type: 'thing',
      externalId: 'thing_{id}',
      fields: { 'thing.name': 'name', 'thing.size': 'size' },
    },
  },
};
export const THINGS_SCHEMA = {
  types: [{ extId: 'thing' }],
  fields: [{ extId: 'thing.name' }, { extId: 'thing.size' }],
};

/** The fields that the row of this id becomes. */
export const fieldsOfThing = (id: number) => [
  { fieldId: 'thing.name', values: [`Thing number ${id}`] },
  { fieldId: 'thing.size', values: [String(id % 300)] },
];

/** Rows 1 to `count`. */
export async function fillThings(sql: Sql, count: number): Promise<void> {
  await sql`CREATE TABLE things (id bigint PRIMARY KEY, name text, size int)`;
  await sql`INSERT INTO things SELECT g, 'Thing number ' || g, g % 300 FROM generate_series(1, ${count}::int) AS g`;
  await sql`VACUUM ANALYZE things`;
}
