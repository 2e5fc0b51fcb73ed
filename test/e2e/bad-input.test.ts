// Guarantee 10
// Wrong input has one clear message and the right exit code, loses nothing, and a rerun completes.
import { chmod, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';
import { findFreePort } from '../support/free-port.js';

let world: Rehearsal;
beforeEach(async () => {
  world = await rehearse({ rows: 10, sandbox: { rate: 0 } });
});
afterEach(() => world.close());

/** Expects that a rerun sends everything after the fault is corrected. */
async function expectRerunCompletes(): Promise<void> {
  const { code, stdout } = await world.run(['sync']);
  expect(stdout).toContain('succeeded');
  expect(code).toBe(0);
  expect(world.sandbox.objects()).toHaveLength(20);
}

describe('settings for a command', () => {
  it('may stand in a file that --settings or --env-file names', async () => {
    await writeFile(path.join(world.folder, 'other.env'), 'API_ORGANIZATION_ID=other\n');
    const settings = { API_ORGANIZATION_ID: undefined };
    await chmod(path.join(world.folder, 'other.env'), 0o646);
    const named = await world.start(['check', '--env-file', 'other.env'], settings).finished;
    expect(named.stdout).toContain('settings: organization other at');
    expect(named.stderr).toContain(
      'other.env is loaded because you named it, although other users can write to the file',
    );
    for (const option of ['--settings', '--settings=']) {
      const args = option.endsWith('=') ? [`${option}nowhere.env`] : [option, 'nowhere.env'];
      const { code, stderr } = await world.start(['check', ...args]).finished;
      expect(stderr).toMatch(/^slotsync: the settings file .*nowhere\.env does not exist\n {2}→ /);
      expect(code).toBe(2);
    }
    // Node itself reads an option of this name, wherever it stands.
    const { code, stderr } = await world.start(['check', '--env-file', 'nowhere.env']).finished;
    expect(stderr).toMatch(/nowhere\.env/);
    expect([2, 9]).toContain(code);
  });

  it.each([
    ['key', { API_KEY: 'not-the-key' }],
    ['region', { API_REGION: 'NOWHERE' }],
  ])('end the command after one request, with what to check, when the %s is wrong', async (_, changes) => {
    const { code, stdout } = await world.run(['sync'], changes);
    expect(code).toBe(2);
    expect(stdout).toContain('the service did not accept the key');
    expect(stdout).toContain(
      '→ Check API_KEY, API_ORGANIZATION_ID, API_REGION (EU_EES, ANZ, SGP or UK) and API_BASE_URL',
    );
    expect(world.sandbox.arrivals()).toHaveLength(1);
    const check = await world.run(['check'], changes);
    expect(check.code).toBe(2);
    expect(check.stdout).toMatch(/✗ credentials: the service did not accept the key/);
    await expectRerunCompletes();
  });

  it('do not bind the state to a wrong address or organization', async () => {
    for (const changes of [
      { API_BASE_URL: `${world.sandbox.url}/typo` },
      { API_ORGANIZATION_ID: 'typo', API_KEY: 'not-the-key' },
    ]) {
      expect((await world.run(['check'], changes)).code).not.toBe(0);
      expect((await world.run(['sync'], changes)).code).not.toBe(0);
    }
    expect((await world.run(['plan'])).code).toBe(0);
    expect(world.sandbox.objects()).toEqual([]);
    await expectRerunCompletes();
  });

  it('are refused for another organization before any request', async () => {
    await world.run(['sync']);
    world.sandbox.clearArrivals();
    const { code, stderr } = await world.run(['sync'], { API_ORGANIZATION_ID: 'other' });
    expect(code).toBe(2);
    expect(stderr).toContain('belongs to organization demo');
    expect(stderr).toContain('slotsync reset');
    expect(world.sandbox.arrivals()).toHaveLength(0);
  });
});

describe('an unreachable mirror', () => {
  it('ends the command with the setting to check', async () => {
    const { code, stderr } = await world.run(['sync'], {
      MIRROR_DATABASE_URL: `postgres://postgres@127.0.0.1:${await findFreePort()}/nowhere`,
      STATE_DATABASE_URL: world.url,
    });
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /the mirror cannot be reached \(ECONNREFUSED\)\n {2}→ .*Check MIRROR_DATABASE_URL/,
    );
    await expectRerunCompletes();
  });
});

describe('an unreachable service', () => {
  it('makes a sync wait, which completes when the service is back', async () => {
    const port = await findFreePort();
    const { startSandbox } = await import('../../src/sandbox/sandbox.js');
    const { SCHEMA } = await import('../support/rehearsal.js');
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
});

describe('a wrong command line', () => {
  it('is reported as JSON with --json', async () => {
    const { stdout, code } = await world.run(['sync', 'romms', '--json']);
    expect(JSON.parse(stdout)).toMatchObject({
      error: { code: 'usage', remedy: 'Did you mean rooms? There are: rooms, courses.' },
    });
    expect(code).toBe(2);
  });
});
