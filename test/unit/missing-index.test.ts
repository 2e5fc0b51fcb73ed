// Which statement helps, where PostgreSQL scans a relation for a few keys.
import { expect, it } from 'vitest';
import { findMissingIndex, type ScannedRelation } from '../../src/mirror/missing-index.js';

const ROOMS: ScannedRelation = {
  name: 'campus.rooms',
  kind: 'r',
  rows: 1_000_000,
  columns: [
    { name: 'building', type: 'text', distinct: 12 },
    { name: 'code', type: 'character varying', distinct: 1_000_000 },
    { name: '"Year"', type: 'integer', distinct: null },
  ],
  indexed: [],
};

it.each<[string, string[], Partial<ScannedRelation>, string | undefined]>([
  ['a column', ['building'], {}, 'CREATE INDEX ON campus.rooms (building);'],
  ['a column that is compared as text', ['(code)::text'], {}, 'CREATE INDEX ON campus.rooms (code);'],
  ['an integer as text', ['("Year")::text'], {}, 'CREATE INDEX ON campus.rooms ((("Year")::text));'],
  ['an expression', ['lower(building)'], {}, 'CREATE INDEX ON campus.rooms ((lower(building)));'],
  ['one in parentheses', ['(a || b)'], {}, 'CREATE INDEX ON campus.rooms ((a || b));'],
  ['one that begins and ends so', ['(a) || (b)'], {}, 'CREATE INDEX ON campus.rooms (((a) || (b)));'],
  [
    'several columns, those with many values first',
    ['building', '"Year"', '(code)::text'],
    {},
    'CREATE INDEX ON campus.rooms (code, building, "Year");',
  ],
  ['a column with an index', ['(code)::text'], { indexed: ['code'] }, undefined],
  ['a foreign table', ['code'], { kind: 'f' }, undefined],
  ['a scan that does not know the keys', [], {}, undefined],
])('index: for %s', (_, compared, more, statement) => {
  expect(findMissingIndex({ ...ROOMS, ...more }, { compared })).toBe(statement);
});
