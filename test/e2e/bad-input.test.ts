// Guarantee 10
// Wrong input has one clear message and the right exit code, loses nothing, and a rerun completes.
import { chmod, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { startSandbox } from '../../src/sandbox/sandbox.js';
import { findFreePort } from '../support/free-port.js';
import { SCHEMA } from '../support/rehearsal.js';
import { commandsOf, rehearseEach } from '../support/rehearsals.js';

const world = rehearseEach({ rows: 10, sandbox: { rate: 0 } });

/** Expects that a rerun sends everything after the fault is corrected. */
async function expectRerunCompletes(): Promise<void> {
  await world.ends('sync', 0, 'succeeded');
  expect(world.sandbox.objects()).toHaveLength(20);
}

describe('settings for a command', () => {
  it('may stand in a file that --settings or --env-file names', async () => {
    const file = path.join(world.folder, 'other.env');
    await writeFile(file, 'API_ORGANIZATION_ID=other\n');
    await chmod(file, 0o646);
    const settings = { API_ORGANIZATION_ID: undefined };
    const named = await world.start(['check', '--env-file', 'other.env'], settings).finished;
    expect(named.stdout).toContain('settings: organization other at');
    expect(named.stderr).toContain(
      'other.env is loaded because you named it, although other users can write to the file',
    );
    for (const option of ['--settings nowhere.env', '--settings=nowhere.env'])
      await world.refuses(
        `check ${option}`,
        /^slotsync: the settings file .*nowhere\.env does not exist\n {2}→ /,
      );
    // Node itself reads an option of this name, wherever it stands.
    const { code, stderr } = await world.start(['check', '--env-file', 'nowhere.env']).finished;
    expect(stderr).toMatch(/nowhere\.env/);
    expect([2, 9]).toContain(code);
  });

  it('end the command after one request, with what to check, when key or region are wrong', async () => {
    for (const changes of [{ API_KEY: 'not-the-key' }, { API_REGION: 'NOWHERE' }]) {
      world.sandbox.clearArrivals();
      const wrong = commandsOf(world, changes);
      await wrong.ends(
        'sync',
        2,
        'the service did not accept the key',
        '→ Check API_KEY, API_ORGANIZATION_ID, API_REGION (EU_EES, ANZ, SGP or UK) and API_BASE_URL',
      );
      expect(world.sandbox.arrivals()).toHaveLength(1);
      await wrong.ends('check', 2, /✗ credentials: the service did not accept the key/);
    }
    await expectRerunCompletes();
  });

  it('do not bind the state to a wrong address or organization', async () => {
    for (const changes of [
      { API_BASE_URL: `${world.sandbox.url}/typo` },
      { API_ORGANIZATION_ID: 'typo', API_KEY: 'not-the-key' },
    ])
      for (const command of ['check', 'sync'])
        expect((await world.run([command], changes)).code, command).not.toBe(0);
    await world.read('plan');
    expect(world.sandbox.objects()).toEqual([]);
    await expectRerunCompletes();
    // Once it is bound, another organization is refused before any request.
    world.sandbox.clearArrivals();
    await commandsOf(world, { API_ORGANIZATION_ID: 'other' }).refuses(
      'sync',
      'belongs to organization demo',
      'slotsync reset',
    );
    expect(world.sandbox.arrivals()).toHaveLength(0);
  });
});

it('an unreachable mirror ends the command with the setting to check', async () => {
  const { code, stderr } = await world.run(['sync'], {
    MIRROR_DATABASE_URL: `postgres://postgres@127.0.0.1:${await findFreePort()}/nowhere`,
    STATE_DATABASE_URL: world.url,
  });
  expect(code).toBe(1);
  expect(stderr).toMatch(/the mirror cannot be reached \(ECONNREFUSED\)\n {2}→ .*Check MIRROR_DATABASE_URL/);
  await expectRerunCompletes();
});

it('an unreachable service makes a sync wait, which completes when the service is back', async () => {
  const port = await findFreePort();
  const sync = world.start(['sync'], { API_BASE_URL: `http://127.0.0.1:${port}` });
  await expect.poll(() => sync.output()).toContain('service_unreachable');
  const sandbox = await startSandbox({ port, schema: SCHEMA, rate: 0 });
  try {
    expect((await sync.finished).code).toBe(0);
    expect(sandbox.objects()).toHaveLength(20);
  } finally {
    await sandbox.close();
  }
});

it('a wrong command line is reported as JSON with --json', async () => {
  expect(JSON.parse(await world.ends('sync romms --json', 2))).toMatchObject({
    error: { code: 'usage', remedy: 'Did you mean rooms? There are: rooms, courses.' },
  });
});
