// Guarantee 3
// Every type that a column can have: SQL and the program make the same text of a row's key, external id and references. The
// types are read from the server under test.
import postgres from 'postgres';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { decodeColumn, unescapeColumn } from '../../src/connections/postgres-copy.js';
import { openTriggers } from '../../src/mirror/install-triggers.js';
import { createMirror, type Mirror } from '../../src/mirror/mirror.js';
import { arrayLiteral } from '../../src/text/sql-text.js';
import { renderExternalId } from '../../src/streams/external-id.js';
import { splitKey } from '../../src/streams/local-key.js';
import { mapRow } from '../../src/streams/map-row.js';
import type { Stream } from '../../src/streams/stream.js';
import { createDatabase, isForMirrorAlone, type TestDatabase } from '../support/services.js';

/** Types without a value that can be written and kept. */
const WITHOUT_VALUES = [
  'pg_node_tree',
  'pg_ndistinct',
  'pg_dependencies',
  'pg_mcv_list',
  'pg_brin_bloom_summary',
  'pg_brin_minmax_multi_summary',
  'gtsvector',
];

/** Types of this test, as a mirror may have them. */
const OWN_TYPES = `
  CREATE COLLATION blurred (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
  CREATE TYPE "my type" AS ENUM ('a', 'A', 'it''s', 'a|b', '{}');
  CREATE TYPE pair AS (first boolean, second char(4), third inet);
  CREATE TYPE inets AS RANGE (subtype = inet);
  CREATE DOMAIN address AS inet;
  CREATE DOMAIN narrow AS address;
  CREATE DOMAIN flag AS boolean;
  CREATE DOMAIN padded AS char(6);
  CREATE DOMAIN words AS text[];
  CREATE TYPE printed AS ENUM ('a');
  CREATE FUNCTION print(printed) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
  CREATE CAST (printed AS text) WITH FUNCTION print(printed)`;
const OWN = [
  ['"my type"', 'pair', 'inets', 'address', 'narrow', 'flag', 'padded', 'words', 'printed'],
  ['text COLLATE blurred', 'char(6)', 'varchar(3)', 'bit(3)', 'numeric(10,2)', 'timestamp(3)', 'time(2)'],
  ['"my type"[]', 'pair[]', 'inets[]', 'address[]', 'flag[]', 'padded[]', 'char(6)[]', 'integer[][]'],
].flat();

/** Texts for all types. Each type uses the texts that it can read. */
const TEXTS = [
  ['', ' ', 'a', 'A', ' a ', 'AB  ', 'a|b', String.raw`a\b`, `it's "x"`, 'é', '教', '🏫'],
  ['NULL', '{}', '{a}', 'true', 'false', 't', '101', '00000000-0000-4000-8000-00000000000A', '$1,234.50'],
  ['0', '-0', '1', '-1', '1.0', '1.00', '32767', '-2147483648', '9007199254740993', '9223372036854775807'],
  ['1e-7', '1e-6', '1.5e-7', '0.1', '1e15', '1.5e16', '1e21', '1e20', '3.4e38', '1e-40', '5e-324', '1e300'],
  ['NaN', 'Infinity', '-Infinity', '12345678901234567890.5', '0.30000000000000004', '16777216', '4294967295'],
  ['2026-03-29', 'infinity', '0044-03-15 BC', '12026-03-29', '0099-01-01', '2026-03-29 01:30:00.000001+02'],
  ['23:59:59.999999', '24:00:00', '01:02:03+05:30', '1 day 2 hours', '-1 mon 30 days 00:00:00.5', '1 year'],
  ['-$0.10', '0/16B3748', '10.0.0.1', '10.0.0.1/8', '10.0.0.0/8', '10.0.0.1/32', '::1', 'fe80::1/64'],
  ['08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', '(1,2)', '{1,-1,0}', '[(0,0),(1,1)]', '(1,1),(0,0)'],
  ['((0,0),(1,1),(1,0))', '<(1,2),3>', '<(2,1),3>', '[1,5)', '(,)', 'empty', '{[1,5),[7,8)}', '(0,1)'],
  ['["2026-01-01","2026-02-01")', "'a' 'b':1A", "'a' & !'b'", '<a>x</a>', '\\x00ff', '\\x', '"a"', '1.50'],
  ['<?xml version="1.0" encoding="UTF-8"?><a/>', 'null', '{"a": "x"}', '["a"]', '["a", null]', '[["b"]]'],
  ['[{"a": "x"}]', '["a", "b"]', '1e400', '(t,ab,10.0.0.1)', '(,,)', '[10.0.0.1,10.0.0.2)', '10:20:10,14'],
  ['1 2 3', 'pg_class', 'int4', 'postgres=r/postgres'],
].flat();
const LISTS = [
  ['{a,b}', '{a,NULL}', '{1,2}', '{{a},{b}}', '{1,1}', '[0:1]={1,NULL}', '[0:0]={a}'],
  ['{(1,1),(0,0);(3,3),(2,2)}', String.raw`{"{\"a\": 1}",NULL}`, String.raw`{"[\"a\"]"}`],
].flat();
const textsOf = (type: string) =>
  type.endsWith(']')
    ? ['{NULL}', ...TEXTS.map((text) => `{"${text.replace(/["\\]/g, '\\$&')}"}`), ...LISTS]
    : TEXTS;

/** Number of values of each type that are also asked for alone: one value that PostgreSQL cannot read slows down all the others. */
const ALONE = 2;

let database: TestDatabase;
let sql: postgres.Sql;
let mirror: Mirror;
let types: string[];

beforeAll(async () => {
  database = await createDatabase();
  sql = postgres(database.url, { max: 1, onnotice: () => undefined, fetch_types: false });
  mirror = createMirror({ url: database.url });
  await sql.unsafe(OWN_TYPES);
  // Inserts each text that the type can read.
  await sql.unsafe(`CREATE PROCEDURE fill(type text, texts text[]) LANGUAGE plpgsql AS $$ BEGIN
    FOR i IN 1 .. cardinality(texts) LOOP
      BEGIN
        EXECUTE format('INSERT INTO valued SELECT %s, %L::%s', i, texts[i], type);
      EXCEPTION WHEN OTHERS THEN NULL;
      END;
    END LOOP;
  END $$`);
  const found = await sql<{ type: string }[]>`
    SELECT format_type(oid, -1) AS type FROM pg_type
    WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype IN ('b', 'r', 'm') AND typisdefined
      AND NOT (typcategory = 'A' AND typelem IN (SELECT oid FROM pg_type WHERE typtype IN ('c', 'p')))
    ORDER BY oid`;
  types = [...found.map(({ type }) => type), ...OWN];
});
afterAll(async () => {
  await mirror.close();
  await sql.end();
  await database.drop();
});

function resolveStreams() {
  const of = { from: 'valued', key: 'id', type: 'room', externalId: 'x_{id}', fields: {} };
  const found = checkConfiguration({
    streams: {
      single: { ...of, key: 'value' },
      pairs: { ...of, key: ['value', 'id'] },
      children: {
        ...of,
        references: {
          one: { stream: 'single', key: 'value' },
          two: { stream: 'pairs', key: ['value', 'id'] },
        },
      },
      named: { ...of, externalId: 'y_{value}' },
      composed: { ...of, externalId: 'z_{value}-{id}' },
    },
  }).streams;
  return Object.fromEntries(found.map((stream) => [stream.name, stream])) as Record<
    'single' | 'pairs' | 'children' | 'named' | 'composed',
    Stream
  >;
}

/** Streams that all types share, so that each reading has to notice the changed columns. */
const { single, pairs, children, named, composed } = resolveStreams();

async function readPlan(stream: Stream, keys?: string[]): Promise<[key: string, hash: string][]> {
  const read: [string, string][] = [];
  for await (const lines of mirror.readHashes(stream, { keys }))
    for (const line of lines) {
      const [key = '', hash = ''] = line.split('\t').map(unescapeColumn);
      read.push([decodeColumn(key), hash]);
    }
  return read;
}

/** Fills the table `valued` with one row for each text of the type. The keys of plans tell the rows apart. */
async function fill(type: string): Promise<Map<string, string>> {
  await sql.unsafe(`DROP TABLE IF EXISTS valued; CREATE TABLE valued (id integer, value ${type})`);
  const base = type.replace(/ COLLATE.*/, '');
  await sql`CALL fill(${base}, ${arrayLiteral(textsOf(type))}::text[])`.catch((error: unknown) => {
    throw new Error(`fill ${type}`, { cause: error });
  });
  const texts = new Map<string, string>();
  const repeated: string[] = [];
  if ((await mirror.checkStream(pairs)).length > 0) return texts;
  for (const [key] of await readPlan(pairs)) {
    const [value = '', id = ''] = splitKey(key, 2) ?? [];
    if ([...texts.values()].includes(value)) repeated.push(id);
    else texts.set(id, value);
  }
  await sql.unsafe(`DELETE FROM valued WHERE id IN (${['0', ...repeated].join()})`);
  return texts;
}

/** Returns whether the type may be a key. A list cannot be a key, so only a few list types are tried. */
const isKeyOrSample = (type: string) => !type.endsWith(']') || ['text[]', 'jsonb[]', 'box[]'].includes(type);

/** Groups the ids by name, the first six of each name. */
const group = (entries: Iterable<readonly [string, string]>) => {
  const grouped = new Map<string, string[]>();
  for (const [name, id] of entries) grouped.set(name, [...(grouped.get(name) ?? []), id].toSorted());
  return new Map([...grouped].map(([name, ids]) => [name, ids.slice(0, 6)]));
};
const orReason = <T>(run: () => T): T | Error => {
  try {
    return run();
  } catch (error) {
    return error as Error;
  }
};

/** Collects what differs, and counts what was compared. */
const faults: unknown[] = [];
let checked = 0;

/** Checks the keys of plans, rows and references. */
async function checkKeys(type: string, texts: ReadonlyMap<string, string>): Promise<void> {
  const say = (what: string, ...facts: unknown[]) => faults.push([type, what, ...facts]);
  if ((await mirror.checkStream(single)).length > 0) {
    const refusal = await readPlan(single).catch((error: unknown) => String(error));
    if (typeof refusal !== 'string' || !refusal.includes('key: column value is')) say('planned', refusal);
    return;
  }
  const rows = (await mirror.readRows(children, [...texts.keys()])).rows;
  for (const stream of [single, pairs]) {
    const plan = await readPlan(stream);
    const keys = plan.map(([key]) => key);
    const read = (await mirror.readRows(stream, keys)).rows;
    if (JSON.stringify(await readPlan(stream, keys)) !== JSON.stringify(plan)) say('selected', keys);
    checked += plan.length;
    for (const [key, hash] of plan) if (read.get(key)?.hash !== hash) say('read together', key);
    for (const [key, hash] of plan.slice(0, ALONE)) {
      const alone = (await mirror.readRows(stream, [key])).rows;
      if (alone.size !== 1 || alone.get(key)?.hash !== hash) say('read alone', key, [...alone.keys()]);
    }
  }
  const planned = new Set((await readPlan(pairs)).map(([key]) => key));
  const referring = new Map<string, string>();
  for (const [id, text] of texts) {
    const row = rows.get(id)?.row ?? {};
    const mapped = orReason(() => mapRow(children, row).references);
    if (mapped instanceof Error) {
      if (!mapped.message.includes('cannot be sent')) say('mapped', text, mapped.message);
      continue;
    }
    const [one, two] = mapped;
    if (one?.localKey !== text || !planned.has(two?.localKey ?? '')) say('referred', text, mapped);
    referring.set(one?.localKey ?? '', id);
    if (referring.size > ALONE) continue;
    for (const reference of mapped) {
      const found = await mirror.findReferrers(children, reference.stream, [reference.localKey]);
      if (JSON.stringify(found) !== JSON.stringify([id])) say('referrers', reference, found);
    }
  }
  const found = await mirror.findReferrers(children, 'single', [...referring.keys()]);
  if (found.toSorted().join() !== [...referring.values()].toSorted().join()) say('all referrers', found);
}

type Triggers = ReturnType<typeof openTriggers>;

/** Checks that triggers note the keys as the plan reads them. Returns whether a trigger is refused for the type. */
async function checkTriggers(type: string, triggers: Triggers): Promise<boolean> {
  if ((await mirror.checkStream(single)).length > 0) return false;
  let isRefused = false;
  for (const stream of [single, pairs]) {
    if ((await triggers.refusal(stream)) !== undefined) {
      isRefused = true;
      continue;
    }
    await triggers.install(stream);
    await sql`TRUNCATE slotsync.changes`;
    await sql`UPDATE valued SET id = id`;
    const noted = await sql<{ key: string }[]>`
      SELECT local_key AS key FROM slotsync.changes WHERE stream = ${stream.name} ORDER BY local_key COLLATE "C"`;
    const planned = (await readPlan(stream)).map(([key]) => key);
    if (JSON.stringify(noted.map(({ key }) => key)) !== JSON.stringify(planned))
      faults.push([type, stream.key, noted, planned]);
    await triggers.remove(`slotsync_changes_${stream.name}`);
  }
  return isRefused;
}

/** Checks that SQL finds and counts external ids as the program renders them. Adds each row once more, and a null. */
async function checkExternalIds(type: string): Promise<void> {
  await sql`INSERT INTO valued SELECT id + 1000, value FROM valued`;
  await sql`INSERT INTO valued VALUES (0, NULL)`;
  const ids = (await sql<{ id: string }[]>`SELECT id::text AS id FROM valued`).map(({ id }) => id);
  if (ids.length === 1 && !WITHOUT_VALUES.includes(type.replace(/\[\]$/, '')))
    faults.push([type, 'has no value']);
  for (const stream of [named, composed]) {
    const rendered = group(
      [...(await mirror.readRows(stream, ids)).rows].flatMap(([id, { row }]) => {
        const externalId = orReason(() => renderExternalId(stream.externalId, row));
        return externalId instanceof Error ? [] : [[externalId, id] as const];
      }),
    );
    checked += rendered.size;
    const shown = (found: Map<string, string[]>) =>
      JSON.stringify([...found].toSorted(([a], [b]) => (a < b ? -1 : 1)));
    const strangers = ['y_{a}', 'y_t', 'y_10.0.0.1/32', 'y_1e-07', 'z_{a}-1', 'y_none'];
    const found = await mirror.findKeysByExternalId(stream, [...rendered.keys(), ...strangers]);
    if (shown(found) !== shown(rendered)) faults.push([type, 'found', shown(found), shown(rendered)]);
    for (const [externalId, keys] of [...rendered].slice(0, ALONE)) {
      const alone = await mirror.findKeysByExternalId(stream, [externalId]);
      if (alone.get(externalId)?.join() !== keys.join())
        faults.push([type, 'found alone', externalId, keys, [...alone]]);
    }
    const shared = await mirror.findSharedExternalIds(stream);
    const counted = new Map(shared.map(({ externalId, keys }) => [externalId, keys]));
    const several = new Map([...rendered].filter(([, keys]) => keys.length > 1));
    if (shown(counted) !== shown(several)) faults.push([type, 'shared', shown(counted), shown(several)]);
  }
}

it('values of each type are the same text as keys, in references, in triggers and in external ids', async () => {
  const triggers = isForMirrorAlone()
    ? undefined
    : openTriggers({ url: database.url, channel: 'slotsync_changes' });
  const refused: string[] = [];
  for (const type of types) {
    const texts = await fill(type);
    if (isKeyOrSample(type)) {
      await checkKeys(type, texts);
      if (triggers && (await checkTriggers(type, triggers))) refused.push(type);
    }
    await checkExternalIds(type);
  }
  await triggers?.close();
  expect(faults).toEqual([]);
  expect(checked).toBeGreaterThan(2000);
  if (triggers) expect(refused.filter((type) => !type.startsWith('reg'))).toEqual(['money']);
});
