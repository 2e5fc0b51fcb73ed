// Redis as organizations run it: with TLS, a user of few rights, a changing password, and a wrong address. test/redis has
// Sentinels and a Cluster.
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo, type Server } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createAuthority, type Authority } from '../support/certificates.js';
import { findFreePort } from '../support/free-port.js';
import { ACL_PASSWORD, readDocumentedAcl } from '../support/redis-acl.js';
import { ask } from '../support/redis-group.js';
import { isRedisInstalled, startRedisServer, type RedisServer } from '../support/redis-server.js';
import { rehearseOnce } from '../support/rehearsals.js';
import { until } from '../support/wait.js';

const PASSWORD = encodeURIComponent(ACL_PASSWORD);

describe.skipIf(!(await isRedisInstalled()))('Redis as a store', () => {
  const world = rehearseOnce({ rows: 5 });
  let authority: Authority;
  /** Server with users, and TLS on a second port. */
  let server: RedisServer;
  let tlsPort: number;
  /** Other servers that listen at an address, by name, with their ports. */
  const others: Record<string, { port: number; close: () => Promise<unknown> }> = {};

  beforeAll(async () => {
    authority = await createAuthority();
    const [mine, foreign] = await Promise.all([
      authority.issue('redis', ['DNS:localhost', 'IP:127.0.0.1']),
      authority.issue('elsewhere', ['DNS:elsewhere.example']),
    ]);
    tlsPort = await findFreePort();
    const { rights } = await readDocumentedAcl();
    const tls = { 'tls-ca-cert-file': authority.ca, 'tls-auth-clients': 'no' };
    server = await startRedisServer({
      settings: { 'tls-port': tlsPort, 'tls-cert-file': mine.cert, 'tls-key-file': mine.key, ...tls },
      lines: [
        `user slotsync-worker ${rights}`,
        'user few on >few ~{slotsync:*}:* ~slotsync:quota:* +@all -info',
        'user stranger on >stranger ~other:* +@all',
      ],
    });
    const keep = async (name: string, options: Parameters<typeof startRedisServer>[0]) => {
      const started = await startRedisServer(options);
      others[name] = { port: started.port, close: started.kill };
    };
    const foreignTlsPort = await findFreePort();
    await Promise.all([
      keep('locked', { settings: { requirepass: 'right' } }),
      keep('node', { settings: { 'cluster-enabled': 'yes', 'cluster-port': await findFreePort() } }),
      keep('replica', { settings: { replicaof: `127.0.0.1 ${server.port}` } }),
      keep('sentinel', { isSentinel: true, lines: [`sentinel monitor known 127.0.0.1 ${server.port} 1`] }),
      keep('foreign', {
        settings: {
          'tls-port': foreignTlsPort,
          'tls-cert-file': foreign.cert,
          'tls-key-file': foreign.key,
          ...tls,
        },
      }),
    ]);
    others['foreignTls'] = { port: foreignTlsPort, close: async () => undefined };
    others['silent'] = await listen(createServer(() => undefined));
    others['web'] = await listen(
      createServer(
        (socket) => void socket.once('data', () => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')),
      ),
    );
    others['closed'] = { port: await findFreePort(), close: async () => undefined };
  });
  afterAll(async () => {
    await Promise.all(Object.values(others).map(({ close }) => close()));
    await server?.kill();
    await authority?.remove();
  });

  /** Replaces `{name}` by the port of that server, and `{tls}` by the port for TLS. */
  const fill = (address: string) =>
    address.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
      name === 'tls'
        ? String(tlsPort)
        : name === 'plain'
          ? String(server.port)
          : name === 'ca'
            ? authority.ca
            : String(others[name]?.port),
    );

  /** Returns a line for each connection of this user. */
  const clientsOf = async (user: string) =>
    String(await ask(server.port, 'CLIENT', 'LIST'))
      .split('\n')
      .filter((line) => line.includes(`user=${user} `));

  describe('a wrong address', () => {
    // prettier-ignore
    it.each([
      // input, exit code, what the lines say
      ['redis://localhost:{locked}', 2, 'REDIS_URL: the server did not accept the user and password'],
      ['redis://:wrong@localhost:{locked}', 2, 'REDIS_URL: the server did not accept the user and password'],
      ['redis://nobody:right@localhost:{locked}', 2, 'REDIS_URL: the server did not accept the user and password'],
      ['redis://few:few@localhost:{plain}', 2, 'REDIS_URL: the user lacks a right'],
      ['redis://stranger:stranger@localhost:{plain}', 2, 'REDIS_URL: the user lacks a right'],
      ['redis://localhost:{plain}/99', 2, 'REDIS_URL: the server does not fit the address (ERR DB index is out of range)'],
      ['redis://user:50%@localhost', 2, 'REDIS_URL: contains a % that is not percent-encoded; in a user or password, percent-encode'],
      ['redis://user:a/b@localhost', 2, 'percent-encode % as %25, / as %2F'],
      ['redis://localhost:{plain}/one', 2, 'REDIS_URL: the number of the database must be a whole number'],
      ['redis://localhost:{plain}?tls=yes', 2, "REDIS_URL: the parameter 'tls' is not supported"],
      ['redis+cluster://localhost:{node}/3', 2, 'REDIS_URL: a Redis Cluster has only database 0'],
      ['redis+cluster://localhost:{plain}', 2, 'REDIS_URL: the server does not fit the address'],
      ['redis://localhost:{node}', 2, 'REDIS_URL: the server is a node of a Redis Cluster'],
      ['redis://localhost:{sentinel}', 2, 'REDIS_URL: the server is a Sentinel'],
      ['redis+sentinel://localhost:{sentinel}/unknown', 2, 'REDIS_URL: the server does not fit the address'],
      ['redis+sentinel://localhost:{plain}/known', 2, 'REDIS_URL: the server does not fit the address'],
      ['redis+sentinel://localhost:{sentinel}', 2, 'REDIS_URL: does not name the primary'],
      ['redis://localhost:{replica}', 2, 'REDIS_URL: the server is a replica'],
      ['rediss://localhost:{tls}', 2, 'REDIS_URL: the server’s certificate is not accepted'],
      ['rediss://localhost:{foreignTls}?sslrootcert={ca}', 2, 'not accepted (ERR_TLS_CERT_ALTNAME_INVALID)'],
      ['rediss://localhost:{tls}?sslrootcert=/no/such.pem', 2, 'sslrootcert /no/such.pem cannot be read (ENOENT)'],
      ['redis://localhost:{tls}?sslrootcert={ca}', 2, 'sslrootcert has no effect without encryption'],
      ['redis://localhost:{tls}', 1, 'REDIS_URL: Redis cannot be reached (the server closes the connection at once)'],
      ['rediss://localhost:{web}', 2, 'REDIS_URL: the server does not speak the protocol of the address'],
      ['redis://localhost:{web}', 2, 'REDIS_URL: the server does not speak the protocol of the address'],
      ['redis://localhost:{closed}', 1, 'REDIS_URL: Redis cannot be reached (ECONNREFUSED)'],
      ['redis+sentinel://localhost:{closed}/known', 1, 'cannot be reached (no Sentinel answers'],
      ['redis+cluster://localhost:{closed}', 1, 'cannot be reached (no node answers)'],
    ])('ends the command for %s with exit code %i: %s', async (address, code, line) => {
      const finished = await world.run(['sync'], { REDIS_URL: fill(address) });
      expect(finished.stderr).toContain(line);
      expect(finished.code).toBe(code);
      expect(finished.stderr.trim().split('\n').length).toBeLessThanOrEqual(3);
      expect(finished.stderr).not.toMatch(/50%|a\/b|stranger:|:wrong|:right|\bat .*:\d+:\d+/);
    });

    it('ends the command with an error when the server is silent, with and without TLS', async () => {
      const cases = [
        ['sync', 'redis://localhost:{silent}'],
        ['worker', 'rediss://localhost:{silent}'],
        ['check', 'rediss://localhost:{plain}'],
      ] as const;
      const ends = await Promise.all(
        cases.map(([command, address]) => world.start([command], { REDIS_URL: fill(address) }).finished),
      );
      for (const { stdout, stderr, code } of ends) {
        expect(stdout + stderr).toMatch(/REDIS_URL: Redis cannot be reached \(no answer within 10 s\)/);
        expect(code).toBe(1);
      }
    });
  });

  describe('TLS', () => {
    it('needs only the documented rights for workers, runs and schedules, which permit no other keys', async () => {
      const REDIS_URL = fill(`rediss://slotsync-worker:${PASSWORD}@localhost:{tls}?sslrootcert={ca}`);
      await world.configure(WITH_SCHEDULE);
      await ask(server.port, 'ACL', 'LOG', 'RESET');
      const worker = await world.startWorker([], { REDIS_URL });
      const { code, stdout, stderr } = await world.start(['sync'], { REDIS_URL }).finished;
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      expect(stdout).toContain('succeeded');
      expect((await world.run(['check'], { REDIS_URL })).code).toBe(0);
      expect((await world.run(['status', '--full'], { REDIS_URL })).code).toBe(0);
      await world.refuses(
        'verify',
        `quota and queue of this state are in Redis at localhost:${tlsPort}/0`,
        'running: worker on',
      );

      // The connections of the commands that have ended may be there for a moment.
      const clients = await until(
        async () => (await clientsOf('slotsync-worker')).length === 7 && clientsOf('slotsync-worker'),
        {
          describe: 'the 7 connections of the worker alone',
        },
      );
      for (const client of clients) expect(client).toMatch(/ name=(slotsync:|\{slotsync:)/);
      worker.child.kill('SIGTERM');
      const finished = await worker.finished;
      expect(finished.code).toBe(0);
      expect(finished.stderr).not.toContain('"level":40');
      // Nothing was refused so far.
      expect(await ask(server.port, 'ACL', 'LOG')).toEqual([]);
      for (const command of [
        ['GET', 'other'],
        ['SET', 'slotsync:other', '1'],
        ['FLUSHALL'],
        ['CONFIG', 'GET', '*'],
        ['KEYS', '*'],
      ])
        expect(
          String(await ask(server.port, 'ACL', 'DRYRUN', 'slotsync-worker', ...command)),
          command.join(' '),
        ).not.toBe('OK');
    });

    it('verifies the name in the certificate, unless sslmode is verify-ca', async () => {
      const REDIS_URL = fill('rediss://localhost:{foreignTls}?sslrootcert={ca}&sslmode=verify-ca');
      expect((await world.run(['sync'], { REDIS_URL })).code).toBe(0);
    });
  });

  it('accepts a new password from REDIS_URL_FILE at the next connection of a running worker', async () => {
    const file = path.join(world.folder, 'redis-url');
    const write = (password: string) =>
      writeFile(file, `redis://turning:${password}@localhost:${server.port}\n`, { mode: 0o600 });
    const setPassword = (password: string) =>
      ask(server.port, 'ACL', 'SETUSER', 'turning', 'on', 'resetpass', `>${password}`, '~*', '+@all');
    const untilConnected = () =>
      until(async () => (await clientsOf('turning')).length === 7, {
        describe: () => `the 7 connections of the worker: ${worker.output()}`,
      });

    await setPassword('first');
    await write('first');
    const worker = await world.startWorker([], { REDIS_URL_FILE: file });
    await untilConnected();
    await setPassword('second');
    await write('second');
    await ask(server.port, 'CLIENT', 'KILL', 'USER', 'turning');
    await untilConnected();
    worker.child.kill('SIGTERM');
    expect((await worker.finished).code).toBe(0);
  });
});

async function listen(listener: Server) {
  const sockets = new Set<{ destroy(): unknown }>();
  listener.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
  });
  listener.listen(0);
  await once(listener, 'listening');
  return {
    port: (listener.address() as AddressInfo).port,
    async close() {
      for (const socket of sockets) socket.destroy();
      listener.close();
    },
  };
}

const WITH_SCHEDULE = `
import { defineConfig } from 'slotsync';
export default defineConfig({
  schedule: { nightly: '0 2 1 1 *', timezone: 'UTC' },
  streams: {
    rooms: {
      from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}', fields: { 'room.name': 'name' },
    },
  },
});
`;
