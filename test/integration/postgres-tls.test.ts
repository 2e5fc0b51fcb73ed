// TLS to PostgreSQL, with a real server and a private certificate authority. Both drivers must decide alike.
import { once } from 'node:events';
import { chown, copyFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startEmbeddedPostgres, type EmbeddedPostgres } from '../../src/demo/embedded-postgres.js';
import { messageOf } from '../../src/errors/errors.js';
import { connectPostgres, pgConfig } from '../../src/connections/postgres-connection.js';
import { createAuthority, type Authority } from '../support/certificates.js';
import { startHop } from '../support/hop.js';
import { isOnPath } from '../support/programs.js';
import { until } from '../support/wait.js';

const ENCRYPTED = 'SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()';

/** Returns for each driver whether the connection is encrypted, or why it failed. */
const DRIVERS = {
  async postgres(url: string): Promise<unknown> {
    const sql = connectPostgres(url, 'test');
    const answer = await sql.unsafe<{ ssl: boolean }[]>(ENCRYPTED).catch(messageOf);
    await sql.end({ timeout: 1 });
    return typeof answer === 'string' ? answer : answer[0]?.ssl;
  },
  async pg(url: string): Promise<unknown> {
    const client = new pg.Client(pgConfig(url, 'test'));
    try {
      await client.connect();
      const { rows } = await client.query<{ ssl: boolean }>(ENCRYPTED);
      return rows[0]?.ssl;
    } catch (error) {
      return messageOf(error);
    } finally {
      await client.end().catch(() => undefined);
    }
  },
};

describe.skipIf(!(await isOnPath('openssl')))('TLS to PostgreSQL', () => {
  let server: EmbeddedPostgres;
  let authority: Authority;
  let stranger: Authority;
  beforeAll(async () => {
    [server, authority, stranger] = await Promise.all([
      startEmbeddedPostgres(),
      createAuthority(),
      createAuthority(),
    ]);
    const { cert, key } = await authority.issue('server', ['DNS:localhost']);
    const { uid, gid } = await stat(server.dataDirectory);
    for (const [file, name] of [
      [cert, 'server.crt'],
      [key, 'server.key'],
    ] as const) {
      await copyFile(file, join(server.dataDirectory, name));
      await chown(join(server.dataDirectory, name), uid, gid);
    }
    const sql = connectPostgres(server.url, 'test');
    await sql`ALTER SYSTEM SET ssl = on`;
    await sql.end();
    await server.restart();
  });
  afterAll(() => Promise.all([server.stop(), authority.remove(), stranger.remove()]));

  const CASES = [
    { mode: '', expected: false },
    { mode: 'disable', expected: false },
    { mode: 'require', expected: true },
    { mode: 'require', ca: 'ours', expected: true },
    { mode: 'require', ca: 'another', expected: /certificate/ },
    { mode: 'verify-ca', ca: 'ours', expected: true },
    { mode: 'verify-ca', ca: 'another', expected: /certificate/ },
    { mode: 'verify-full', ca: 'ours', host: 'localhost', expected: true },
    { mode: 'verify-full', ca: 'ours', expected: /127\.0\.0\.1 is not in the cert/ },
    { mode: 'verify-full', ca: 'another', host: 'localhost', expected: /certificate/ },
    { mode: 'verify-full', ca: 'system', host: 'localhost', expected: /certificate/ },
  ] as const;
  for (const [driver, ask] of Object.entries(DRIVERS))
    it.each(CASES)(
      `ends as expected with ${driver}: sslmode=$mode, authority '$ca', $host`,
      async (given) => {
        const url = new URL(server.url);
        if ('host' in given) url.hostname = given.host;
        if (given.mode !== '') url.searchParams.set('sslmode', given.mode);
        const files = { ours: authority.ca, another: stranger.ca, system: 'system' };
        if ('ca' in given) url.searchParams.set('sslrootcert', files[given.ca]);
        const said = await ask(url.href);
        if (given.expected instanceof RegExp) expect(said).toMatch(given.expected);
        else expect(said).toBe(given.expected);
      },
    );

  it('fails every statement of a client without reconnects after its connection is lost', async () => {
    const url = `${server.url}?sslmode=require`;
    const [sql, other] = [
      connectPostgres(url, 'test', {}, { reconnects: false }),
      connectPostgres(url, 'test'),
    ];
    try {
      const [session] = await sql.unsafe<{ pid: number }[]>('SELECT pg_backend_pid() AS pid');
      await other.unsafe('SELECT pg_terminate_backend($1)', [session?.pid ?? 0]);
      await expect(sql.unsafe('SELECT pg_sleep(1)')).rejects.toThrow();
      await expect(sql.unsafe('SELECT 1')).rejects.toMatchObject({ code: 'CONNECTION_CLOSED' });
    } finally {
      await Promise.all([sql, other].map((client) => client.end({ timeout: 1 })));
    }
  });

  it('closes an encrypted connection that has fallen silent', async () => {
    const hop = await startHop(server.url);
    const sql = connectPostgres(
      hop.through(`${server.url}?sslmode=require`),
      'test',
      {},
      { lookMs: 200, answerWithinMs: 1000 },
    );
    try {
      await sql.unsafe('SELECT 1');
      hop.forget();
      await expect(sql.unsafe(ENCRYPTED)).rejects.toMatchObject({ code: 'CONNECTION_CLOSED' });
      expect(await sql.unsafe(ENCRYPTED)).toMatchObject([{ ssl: true }]);
    } finally {
      await sql.end({ timeout: 0 });
      await hop.close();
    }
  });

  it('closes an idle connection that fell silent, and opens another one', async () => {
    let sent = 0;
    const hop = await startHop(server.url, { onConnection: () => () => void sent++ });
    const url = hop.through(`${server.url}?sslmode=require`);
    const times = { lookMs: 200, answerWithinMs: 600_000, closeWithinMs: 500 };
    const sql = connectPostgres(url, 'test', { idle_timeout: 1 }, times);
    try {
      await sql.unsafe(ENCRYPTED);
      const before = sent;
      hop.forget();
      await until(() => sent > before, { describe: 'the driver to end the connection' });
      expect(await sql.unsafe(ENCRYPTED)).toMatchObject([{ ssl: true }]);
    } finally {
      await sql.end({ timeout: 0 });
      await hop.close();
    }
  });

  it('keeps a reading whose rows are taken more slowly than an answer may take', async () => {
    const times = { lookMs: 200, answerWithinMs: 1000 };
    const sql = connectPostgres(`${server.url}?sslmode=require`, 'test', {}, times);
    try {
      const rows =
        await sql`COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000)) TO STDOUT`.readable();
      await once(rows, 'readable');
      await pause(3000);
      let bytes = 0;
      for await (const chunk of rows) bytes += (chunk as Buffer).length;
      expect(bytes).toBe(100_000 * 1001);
    } finally {
      await sql.end({ timeout: 0 });
    }
  });

  it('connects again after the server has been silent for a while', async () => {
    const hop = await startHop(server.url);
    const sql = connectPostgres(hop.through(`${server.url}?sslmode=require`), 'test', {
      connect_timeout: 0.5,
    });
    try {
      hop.silence();
      await expect(sql.unsafe(ENCRYPTED)).rejects.toMatchObject({ code: 'CONNECT_TIMEOUT' });
      hop.speak();
      expect(await sql.unsafe(ENCRYPTED)).toMatchObject([{ ssl: true }]);
    } finally {
      await sql.end({ timeout: 0 });
      await hop.close();
    }
  });

  it.each(Object.entries(DRIVERS))('refuses a server without TLS, with the driver %s', async (_, ask) => {
    const plain = await startEmbeddedPostgres();
    try {
      expect(await ask(`${plain.url}?sslmode=require`)).toMatch(/TLS|SSL|secure/);
    } finally {
      await plain.stop();
    }
  });
});
