// Guarantee 9
// A secret that is replaced in its file is used without a restart: a database password by the next connection, the key by the
// next authentication.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { randomBytes } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { pino } from 'pino';
import postgres from 'postgres';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { createDestination } from '../../src/destination/destination.js';
import { openLimiter } from '../../src/destination/quota/open-limiter.js';
import { codeOf } from '../../src/errors/errors.js';
import { createMirror } from '../../src/mirror/mirror.js';
import { startSandbox } from '../../src/sandbox/sandbox.js';
import { loadSettings, type ApiSettings } from '../../src/config/settings.js';
import { openState } from '../../src/state/database.js';
import { createDatabase } from '../support/services.js';
import { ROOMS } from '../unit/declare.js';
import { until } from '../support/wait.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'slotsync-test-'));
  onTestFinished(() => rm(folder, { recursive: true }));
});

it('state and mirror use a password that is replaced in its file while they are open', async () => {
  const database = await createDatabase();
  const admin = postgres(database.url, { max: 1, onnotice: () => undefined });
  const role = `rotated_${randomBytes(6).toString('hex')}`;
  onTestFinished(async () => {
    await admin`DROP ROLE IF EXISTS ${admin(role)}`;
    await admin.end();
    await database.drop();
  });
  const file = path.join(folder, 'address');
  const setPassword = (password: string) => admin.unsafe(`ALTER ROLE ${role} PASSWORD '${password}'`);
  const writeAddress = (password: string) => {
    const address = new URL(database.url);
    [address.username, address.password] = [role, password];
    return writeFile(file, `${address.href}\n`);
  };
  await admin.unsafe(`CREATE ROLE ${role} LOGIN SUPERUSER PASSWORD 'first'`);
  await writeAddress('first');
  const { stateUrl = '', mirrorUrl = '' } = loadSettings(['mirror', 'state'], {
    MIRROR_DATABASE_URL_FILE: file,
  });
  const [state, mirror] = [openState({ url: stateUrl }), createMirror({ url: mirrorUrl })];
  onTestFinished(async () => void (await Promise.all([state.close(), mirror.close()])));
  const readings = { state: () => state.db.execute(sql`SELECT 1`), mirror: () => mirror.ping() };
  for (const read of Object.values(readings)) await read();

  await setPassword('second');
  await admin`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ${role}`;
  for (const [name, read] of Object.entries(readings)) {
    let refusal: unknown;
    await until(
      () =>
        read().then(
          () => false,
          (error: unknown) => (refusal = error) && codeOf(error) === `${name}_refused`,
        ),
      {
        describe: () => `the old password to be refused: ${String(refusal)}`,
      },
    );
  }
  await writeAddress('second');
  for (const [name, read] of Object.entries(readings))
    await until(() => read().then(() => true), { describe: `the ${name} to connect with the new password` });
});

it('the next authentication reads the key again after the service has refused it', async () => {
  const [sandbox, database] = await Promise.all([
    startSandbox({ rate: 0, apiKey: 'second' }),
    createDatabase(),
  ]);
  const log = pino({ level: 'silent' });
  const { limiter, disconnect } = await openLimiter({
    redisUrl: undefined,
    stateUrl: database.url,
    key: 'rotated',
    rate: 20,
    log,
  });
  const file = path.join(folder, 'key');
  await writeFile(file, 'first\n');
  const { api } = loadSettings(['api'], {
    API_BASE_URL: sandbox.url,
    API_ORGANIZATION_ID: 'demo',
    API_KEY_FILE: file,
  });
  const { service } = checkConfiguration({ streams: { rooms: ROOMS } });
  const destination = createDestination({ api: api as ApiSettings, limiter, log, ...service });
  onTestFinished(async () => {
    await destination.close();
    await limiter.close();
    await disconnect();
    await Promise.all([sandbox.close(), database.drop()]);
  });
  await expect(destination.authenticate()).rejects.toMatchObject({ code: 'unauthorized' });
  await writeFile(file, 'second\n');
  await destination.authenticate();
});
