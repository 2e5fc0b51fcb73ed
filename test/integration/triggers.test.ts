// Triggers run inside the organization's own writes: they note every key of a statement, and never stop a write.
import { randomBytes } from 'node:crypto';
import postgres from 'postgres';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { openTriggers } from '../../src/mirror/install-triggers.js';
import { functionName } from '../../src/streams/trigger-functions.js';
import { openState, type State } from '../../src/state/database.js';
import type { SourceDeclaration } from '../../src/streams/source.js';
import type { Stream } from '../../src/streams/stream.js';
import { listLostTriggers } from '../../src/state/inbox/read-inbox.js';
import { createDatabase, type TestDatabase, isForMirrorAlone } from '../support/services.js';
import { until } from '../support/wait.js';

const declare = (from: SourceDeclaration, key: string | string[]) => ({
  from,
  key,
  type: 't',
  externalId: Array.isArray(key) ? key.map((part) => `{${part}}`).join('_') : `{${key}}`,
  fields: {},
});
const LONG = 'a'.padEnd(62, '_very_long_name');

let database: TestDatabase;
let sql: postgres.Sql;
let triggers: ReturnType<typeof openTriggers>;
const warnings: string[] = [];

beforeAll(async () => {
  database = await createDatabase();
});
afterAll(() => database.drop());

beforeEach(async () => {
  sql = postgres(database.url, { max: 1, onnotice: ({ message = '' }) => void warnings.push(message) });
  triggers = openTriggers({ url: database.url, channel: 'slotsync_changes' });
  warnings.length = 0;
  await sql.unsafe(`
    CREATE SCHEMA "Campus";
    CREATE TABLE "Campus"."rooms.v2" (code text, "Year" int, since timestamptz, name text);
    CREATE VIEW "Campus".seen AS SELECT * FROM "Campus"."rooms.v2";
    INSERT INTO "Campus"."rooms.v2" VALUES ('a|b', 1, '2026-01-15 09:00:00.123456+01', 'x'), ('c\\d', 2, 'now', 'x');`);
});
afterEach(async () => {
  for (const name of await triggers.list()) await triggers.remove(name);
  await triggers.close();
  await sql.unsafe(`DROP SCHEMA "Campus" CASCADE; TRUNCATE slotsync.changes`);
  await sql.end();
});

function stream(from: SourceDeclaration, key: string | string[], name = 'rooms'): Stream {
  const [found] = checkConfiguration({ streams: { [name]: declare(from, key) } }).streams;
  if (!found) throw new Error('no stream');
  return found;
}
const TABLE = '"Campus"."rooms.v2"';
const noted = async () =>
  (
    await sql<{ key: string }[]>`SELECT local_key AS key FROM slotsync.changes ORDER BY local_key COLLATE "C"`
  ).map(({ key }) => key);
const clear = () => sql`DELETE FROM slotsync.changes`;
/** Warnings of the triggers to a session. */
const said = () => warnings.filter((text) => text.startsWith('slotsync'));
/** Opens another session for a test. */
function openSession(url = database.url): postgres.Sql {
  const session = postgres(url, { max: 1, onnotice: () => undefined });
  onTestFinished(() => session.end());
  return session;
}

describe.skipIf(isForMirrorAlone())('a statement on a table with triggers', () => {
  it('notes each key once, as the mirror reads it, whatever the session prints and escapes', async () => {
    await triggers.install(stream(TABLE, ['code', 'Year']));
    for (const setting of ['on', 'off']) {
      await clear();
      await sql.begin(async (tx) => {
        await tx.unsafe(`SET LOCAL standard_conforming_strings = ${setting}`);
        await tx.unsafe(`UPDATE ${TABLE} SET name = 'y'`);
      });
      expect(await noted()).toEqual(['a\\|b|1', 'c\\\\d|2']);
    }

    await triggers.install(stream(TABLE, 'since'));
    await clear();
    await sql`SET TimeZone = 'Asia/Tokyo'`;
    await sql`SET DateStyle = 'SQL, DMY'`;
    await sql.unsafe(`UPDATE ${TABLE} SET name = 'z' WHERE code = 'a|b'`);
    expect(await noted()).toEqual(['2026-01-15 08:00:00.123456+00']);
  });

  it('notes the keys of a stream that reads some columns of the table', async () => {
    const some = stream({ table: TABLE, columns: ['code', 'name'] }, 'code');
    expect(await triggers.refusal(some)).toBeUndefined();
    await triggers.install(some);
    await sql.unsafe(`UPDATE ${TABLE} SET name = 'y'`);
    expect(await noted()).toEqual(['a|b', 'c\\d']);
  });

  it('notes the former and the new key of inserts, updates and deletes', async () => {
    await triggers.install(stream(TABLE, 'code'));
    await sql.unsafe(`UPDATE ${TABLE} SET code = 'new' WHERE "Year" = 2`);
    expect(await noted()).toEqual(['c\\d', 'new']);
    await clear();
    await sql.unsafe(`INSERT INTO ${TABLE} (code) VALUES ('i'), ('j'), (NULL)`);
    await sql.unsafe(`DELETE FROM ${TABLE} WHERE code = 'j'`);
    expect(await noted()).toEqual(['i', 'j', 'j']);
    await clear();
    await sql.unsafe(`UPDATE ${TABLE} SET code = 'q' WHERE false`);
    expect(await noted()).toEqual([]);
  });

  it('notes keys of a nondeterministic collation by their bytes, even in a composite key', async () => {
    await sql.unsafe(`CREATE COLLATION "Campus".blurred (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
      CREATE TABLE "Campus".blurs (code text COLLATE "Campus".blurred, name text COLLATE "Campus".blurred)`);
    await triggers.install(stream('"Campus".blurs', 'code', 'single'));
    await triggers.install(stream('"Campus".blurs', ['code', 'name'], 'pairs'));
    await sql.unsafe(`INSERT INTO "Campus".blurs VALUES ('a', 'x|y'), ('A', 'X')`);
    expect(await noted()).toEqual(['A', 'A|X', 'a', String.raw`a|x\|y`].toSorted());
    expect(said()).toEqual([]);
  });

  it('notifies listeners once in a transaction, and not when it is rolled back', async () => {
    await triggers.install(stream(TABLE, 'code'));
    const heard: string[] = [];
    const listening = openSession();
    await listening.listen('slotsync_changes', (payload) => void heard.push(payload));
    await sql
      .begin(async (tx) => {
        await tx.unsafe(`UPDATE ${TABLE} SET name = 'never'`);
        throw new Error('back');
      })
      .catch(() => undefined);
    await sql.begin(async (tx) => {
      await tx.unsafe(`UPDATE ${TABLE} SET name = 'once'`);
      await tx.unsafe(`UPDATE ${TABLE} SET name = 'twice'`);
    });
    await sql`SELECT pg_notify('slotsync_changes', 'end')`;
    await until(() => heard.includes('end'), { describe: 'the end' });
    expect(heard).toEqual(['', 'end']);
  });

  it('is noted if its role has no right on the state', async () => {
    await triggers.install(stream(TABLE, 'code'));
    await sql`CREATE ROLE slotsync_test_writer`;
    try {
      await sql`GRANT USAGE ON SCHEMA "Campus" TO slotsync_test_writer`;
      await sql.unsafe(`GRANT SELECT, UPDATE ON ${TABLE} TO slotsync_test_writer`);
      await sql`SET ROLE slotsync_test_writer`;
      await sql.unsafe(`UPDATE ${TABLE} SET name = 'w' WHERE "Year" = 1`);
      await expect(sql`SELECT FROM slotsync.changes`).rejects.toThrow('permission denied');
    } finally {
      await sql`RESET ROLE`;
      await sql`DROP OWNED BY slotsync_test_writer`;
      await sql`DROP ROLE slotsync_test_writer`;
    }
    expect(await noted()).toEqual(['a|b']);
    expect(warnings).toEqual([]);
  });

  it('is carried out whatever is wrong with the inbox', async () => {
    await triggers.install(stream(TABLE, 'code'));
    await sql`ALTER TABLE slotsync.changes RENAME TO changes_away`;
    try {
      await sql.unsafe(`UPDATE ${TABLE} SET name = 'kept'`);
    } finally {
      await sql`ALTER TABLE slotsync.changes_away RENAME TO changes`;
    }
    await sql.unsafe(`ALTER TABLE ${TABLE} RENAME COLUMN code TO codex`);
    await sql.unsafe(`UPDATE ${TABLE} SET name = name || '!'`);
    expect(await sql.unsafe(`SELECT DISTINCT name FROM ${TABLE}`)).toEqual([{ name: 'kept!' }]);
    expect(said()).toEqual(
      Array(2).fill(expect.stringMatching(/^slotsync could not record what changed in/)),
    );
  });

  it('is carried out with a key that no index takes, and its other keys are noted', async () => {
    await triggers.install(stream(TABLE, ['code', 'Year']));
    const long = randomBytes(2400).toString('hex');
    await sql.unsafe(`INSERT INTO ${TABLE} (code, "Year") VALUES ($1, 1), ('short', 2), ($2, 3)`, [
      long,
      'é'.repeat(600),
    ]);
    expect(await noted()).toEqual(['short|2']);
    expect(warnings).toEqual([]);
  });

  it('calls no function and no operator of the writer, whatever the search path finds first', async () => {
    await sql.unsafe(`
      CREATE SCHEMA own;
      CREATE TABLE own.called (what text);
      CREATE FUNCTION own.note(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO own.called VALUES (what) RETURNING what';
      CREATE FUNCTION own.replace(text, text, text) RETURNS text LANGUAGE sql AS $$ SELECT own.note('replace') $$;
      CREATE FUNCTION own.pg_notify(text, text) RETURNS void LANGUAGE sql AS $$ SELECT own.note('pg_notify') $$;
      CREATE FUNCTION own.current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT own.note('current_setting') $$;
      CREATE FUNCTION own.join(text, text) RETURNS text LANGUAGE sql AS $$ SELECT own.note('||') $$;
      CREATE OPERATOR own.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = own.join);`);
    try {
      await triggers.install(stream(TABLE, ['code', 'Year']));
      await sql`SET search_path = own, pg_catalog`;
      await sql.unsafe(`UPDATE ${TABLE} SET name = 'w'`);
      expect(await sql`SELECT replace('a', 'b', 'c')`).toEqual([{ replace: 'replace' }]);
    } finally {
      await sql`RESET search_path`;
    }
    expect(await sql`SELECT what FROM own.called`).toEqual([{ what: 'replace' }]);
    expect(await noted()).toEqual([String.raw`a\|b|1`, String.raw`c\\d|2`]);
    expect(said()).toEqual([]);
    await sql`DROP SCHEMA own CASCADE`;
  });

  it('does not wait for long when the inbox is locked', async () => {
    await triggers.install(stream(TABLE, 'code'));
    const other = openSession();
    await other.begin(async (tx) => {
      await tx`LOCK TABLE slotsync.changes IN ACCESS EXCLUSIVE MODE`;
      await sql.unsafe(`UPDATE ${TABLE} SET name = 'through'`);
    });
    expect(await sql.unsafe(`SELECT DISTINCT name FROM ${TABLE}`)).toEqual([{ name: 'through' }]);
    expect(warnings).toContainEqual(expect.stringContaining('(55P03)'));
  });
});

describe.skipIf(isForMirrorAlone())('a table of another role', () => {
  const suffix = randomBytes(4).toString('hex');
  const owner = `slotsync_test_owner_${suffix}`;
  const stateRole = `slotsync_test_state_${suffix}`;
  const kinds = () => stream('campus.kinds', 'kind');
  const as = (role: string) => {
    const url = new URL(database.url);
    [url.username, url.password] = [role, 'pw'];
    return url.href;
  };

  beforeEach(async () => {
    await sql.unsafe(`
      CREATE ROLE ${owner} LOGIN PASSWORD 'pw';
      CREATE ROLE ${stateRole} LOGIN PASSWORD 'pw';
      GRANT USAGE ON SCHEMA slotsync TO ${stateRole};
      GRANT SELECT ON slotsync.changes TO ${stateRole};
      CREATE SCHEMA campus AUTHORIZATION ${owner};
      SET ROLE ${owner};
      CREATE TYPE campus.kind AS ENUM ('lab', 'hall');
      CREATE TABLE campus.kinds (kind campus.kind, name text);
      CREATE TABLE campus.called (who text);
      RESET ROLE`);
  });
  afterEach(async () => {
    await sql.unsafe(
      `RESET ROLE; DROP OWNED BY ${owner}, ${stateRole} CASCADE; DROP ROLE ${owner}, ${stateRole}`,
    );
  });

  it('has no cast of its own called for a key, even below a domain', async () => {
    await sql.unsafe(`
      SET ROLE ${owner};
      CREATE FUNCTION campus.print(campus.kind) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO campus.called VALUES (current_user);
        RETURN 'x';
      END $$;
      CREATE CAST (campus.kind AS text) WITH FUNCTION campus.print;
      CREATE DOMAIN campus.narrow AS campus.kind;
      CREATE TABLE campus.narrows (kind campus.narrow, name text);
      RESET ROLE`);
    for (const table of ['campus.kinds', 'campus.narrows']) {
      const narrow = stream(table, ['kind', 'name']);
      expect(await triggers.refusal(narrow)).toBeUndefined();
      await triggers.install(narrow);
      await sql.unsafe(`INSERT INTO ${table} VALUES ('lab', 'x')`);
      expect(await noted()).toEqual(['lab|x']);
      await clear();
    }
    expect(await sql`SELECT FROM campus.called`).toHaveLength(0);
    expect(said()).toEqual([]);
  });

  it('gets triggers from the printed SQL, run by its owner or by a superuser', async () => {
    const statements = `BEGIN; ${(await triggers.print(kinds())).join(';\n')}; COMMIT`;
    const theirs = openSession(as(owner));
    await expect(theirs.unsafe(statements)).rejects.toThrow('permission denied for schema slotsync');
    await theirs`ROLLBACK`;
    await sql.unsafe(`
      GRANT USAGE ON SCHEMA slotsync TO ${owner};
      GRANT INSERT (stream, local_key) ON slotsync.changes TO ${owner}`);
    for (const runs of [sql, theirs, sql]) await runs.unsafe(statements);
    await theirs.unsafe(`INSERT INTO campus.kinds VALUES ('lab')`);
    expect(await noted()).toEqual(['lab']);
    await expect(theirs`SELECT FROM slotsync.changes`).rejects.toThrow('permission denied');
    expect(await triggers.list()).toEqual([functionName('rooms')]);
    await triggers.remove(functionName('rooms'));
    expect(await triggers.list()).toEqual([]);
  });

  it('is left to its owner by a role of the state that cannot act for it', async () => {
    const ofState = openTriggers({ url: as(stateRole), channel: 'slotsync_changes' });
    try {
      await expect(ofState.install(kinds())).rejects.toMatchObject({
        message: expect.stringContaining('permission denied'),
        remedy: expect.stringContaining('`slotsync triggers print`'),
      });
      expect(await triggers.list()).toEqual([]);
    } finally {
      await ofState.close();
    }
  });
});

describe.skipIf(isForMirrorAlone())('the installation of triggers', () => {
  const installed = () => sql<{ table: string; trigger: string }[]>`
    SELECT tgrelid::regclass::text AS table, tgname AS trigger FROM pg_trigger
    WHERE tgname LIKE 'slotsync%' ORDER BY tgname`;

  it('may be repeated, follows the stream to another table, and is undone without a trace', async () => {
    await triggers.install(stream(TABLE, 'code'));
    const before = await installed();
    expect(before).toHaveLength(3);
    await triggers.install(stream(TABLE, 'code'));
    expect(await installed()).toEqual(before);
    await sql.unsafe(`CREATE TABLE "Campus".halls (code text)`);
    await triggers.install(stream('Campus.halls', 'code'));
    const after = await installed();
    expect(after).toHaveLength(3);
    expect(after.every(({ table }) => table === '"Campus".halls')).toBe(true);
    await triggers.remove(functionName('rooms'));
    expect(await installed()).toEqual([]);
    expect(await triggers.list()).toEqual([]);
  });

  it('takes several streams on one table, and names of any length', async () => {
    const long = [stream(TABLE, 'code', `${LONG}1`), stream(TABLE, 'Year', `${LONG}2`)];
    for (const one of long) await triggers.install(one);
    expect(await installed()).toHaveLength(6);
    await sql.unsafe(`UPDATE ${TABLE} SET name = 'y' WHERE "Year" = 1`);
    expect(await noted()).toEqual(['1', 'a|b']);
  });

  it('is refused for a source that is no table, and for a key whose text nothing fixes', async () => {
    await sql`CREATE TABLE "Campus".prices (price money, of regclass)`;
    const depends = 'whose text depends on the session';
    for (const [from, key, refusal] of [
      [{ query: 'SELECT 1 AS code' }, 'code', /is a query/],
      ['Campus.seen', 'code', /Campus\.seen is a view/],
      ['Campus.none', 'code', /there is no table Campus\.none/],
      [TABLE, ['code', 'year'], 'rooms: key: there is no column year; did you mean Year?'],
      ['"Campus".prices', 'price', `rooms: its key column price is money, ${depends}`],
      ['"Campus".prices', 'of', `rooms: its key column of is regclass, ${depends}`],
    ] as const) {
      const refused = await triggers.refusal(stream(from, typeof key === 'string' ? key : [...key]));
      if (typeof refusal === 'string') expect(refused).toBe(refusal);
      else expect(refused).toMatch(refusal);
    }
    expect(await triggers.refusal(stream(TABLE, 'code'))).toBeUndefined();
  });

  it('does not wait for a table that is busy', async () => {
    const other = openSession();
    await other.begin(async (tx) => {
      await tx.unsafe(`UPDATE ${TABLE} SET name = 'busy'`);
      await expect(triggers.install(stream(TABLE, 'code'))).rejects.toMatchObject({
        code: 'triggers_busy',
      });
    });
    expect(await installed()).toEqual([]);
  });
});

describe.skipIf(isForMirrorAlone())('installed triggers', () => {
  let state: State;
  beforeEach(async () => {
    state = openState({ url: database.url });
    await triggers.install(stream(TABLE, 'code'));
  });
  afterEach(() => state.close());
  const lost = () => listLostTriggers(state.db, ['courses', 'rooms']);
  const MADE_ANEW = `CREATE TABLE ${TABLE} (code text, "Year" int, since timestamptz, name text)`;

  it.each([
    ['a table that is made anew', `DROP TABLE ${TABLE} CASCADE; ${MADE_ANEW}`],
    ['another table that takes the place of theirs', `ALTER TABLE ${TABLE} RENAME TO former; ${MADE_ANEW}`],
    ['a trigger that is disabled', `ALTER TABLE ${TABLE} DISABLE TRIGGER slotsync_changes_rooms_update`],
    ['a trigger that is dropped', `DROP TRIGGER slotsync_changes_rooms_insert ON ${TABLE}`],
  ])('are found to be lost: %s', async (_, statements) => {
    expect(await lost()).toEqual([]);
    await sql.unsafe(statements);
    expect(await lost()).toEqual(['rooms']);
    await triggers.install(stream(TABLE, 'code'));
    await sql.unsafe(`ALTER TABLE ${TABLE} ENABLE TRIGGER ALL`);
    expect(await lost()).toEqual([]);
  });

  it('are not found to be lost if an operator removed them', async () => {
    await triggers.remove(functionName('rooms'));
    expect(await lost()).toEqual([]);
  });
});
