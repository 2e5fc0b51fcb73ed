// States of earlier releases, each migrated to the schema of this tree. test/upgrades/record-state.ts makes a state before
// each release.
import { mkdtempSync, readdirSync, readFileSync, rmSync, copyFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { describe, expect, it, onTestFinished } from 'vitest';
import manifest from '../../package.json' with { type: 'json' };
import { startSandbox } from '../../src/sandbox/sandbox.js';
import { run } from '../support/program.js';
import { createEmptyDatabase, isForMirrorAlone } from '../support/services.js';
import { SERVICE, type ServiceContent } from './installation.js';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const RELEASES = readdirSync(HERE, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name);
/** Tables whose rows stay however old they are. A run removes old rows of the others. */
const KEPT_ALWAYS = ['exceptions', 'held', 'links', 'records', 'removals'];
const KEPT = [...KEPT_ALWAYS, 'actions', 'drift_events', 'history', 'reservations', 'runs'];

it('upgrade: the version of package.json has a state', () => {
  expect(RELEASES, 'npm run upgrades:record').toContain(manifest.version);
});

describe.skipIf(isForMirrorAlone()).each(RELEASES)('upgrade from %s', (release) => {
  const read = (file: string) => readFileSync(path.join(HERE, release, file), 'utf8');

  it('a state is migrated, keeps its rows, and has nothing to send', async () => {
    const database = await createEmptyDatabase();
    const sql = postgres(database.url, { max: 1, onnotice: () => undefined });
    const { schema, objects } = JSON.parse(read('service.json')) as ServiceContent;
    const sandbox = await startSandbox({ schema });
    const folder = mkdtempSync(path.join(tmpdir(), 'slotsync-upgrade-'));
    onTestFinished(async () => {
      rmSync(folder, { recursive: true });
      await sandbox.close();
      await sql.end();
      await database.drop();
    });
    for (const object of objects) sandbox.addObject(object);
    copyFileSync(path.join(HERE, release, 'sync.config.ts'), path.join(folder, 'sync.config.ts'));
    await sql.unsafe(read('state.sql').replaceAll(SERVICE, sandbox.url));
    const count = async () =>
      Object.fromEntries(
        await Promise.all(
          KEPT.map(async (table) => {
            const [row] = await sql<{ rows: number }[]>`
              SELECT count(*)::int AS rows FROM slotsync.${sql(table)}`;
            return [table, row?.rows] as const;
          }),
        ),
      );
    const before = await count();
    const env = {
      MIRROR_DATABASE_URL: database.url,
      API_BASE_URL: sandbox.url,
      API_ORGANIZATION_ID: 'demo',
      API_KEY: 'sandbox-key',
    };
    const slotsync = async (command: string) => run(command.split(' '), env, folder);

    // Refused as the schema of an unreleased program: a migration was edited after the state was kept.
    expect(await slotsync('migrate')).toMatchObject({ code: 0, stderr: '' });
    expect(await count()).toEqual(before);

    const status = await slotsync('status --full');
    expect(status).toMatchObject({ code: 0, stderr: '' });
    expect(status.stdout).not.toMatch(/restored|unreleased/);
    expect(status.stdout).toMatch(/3 deactivations of staff/);
    expect(status.stdout).toMatch(/by-hand|except/);

    // Held as before. The exit code becomes 1 when the deferred record has waited for some days.
    const sync = await slotsync('sync --json');
    expect([1, 3], sync.stderr).toContain(sync.code);
    expect(JSON.parse(sync.stdout)).toMatchObject({ run: { holds: { staff: { retire: { count: 3 } } } } });
    expect(sandbox.arrivals().filter(({ method }) => method === 'PUT')).toEqual([]);

    // The edit by hand is kept, and nothing drifts.
    expect(await slotsync('verify')).toMatchObject({ code: 0, stderr: '' });
    expect(await sql`SELECT local_key, kind FROM slotsync.drift`).toEqual([{ local_key: '7', kind: 'kept' }]);
    for (const table of KEPT_ALWAYS) expect((await count())[table], table).toBe(before[table]);
  });
});
