// From nothing to a configuration that passes check, as on the first day of an operator.
import { spawnSync } from 'node:child_process';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { universitySchema } from '../../src/demo/sync.config.js';
import { loadUniversity } from '../../src/demo/university.js';
import { rehearseOnce } from '../support/rehearsals.js';
import { isForMirrorAlone } from '../support/services.js';
import { findFreePort } from '../support/free-port.js';

const root = fileURLToPath(new URL('../../', import.meta.url));

const world = rehearseOnce({ rows: 0, sandbox: { rate: 0, schema: universitySchema } });
const inFolder = (file: string) => path.join(world.folder, file);
const written = () => readFile(inFolder('sync.config.ts'), 'utf8');

beforeAll(async () => {
  await world.sql`DROP TABLE rooms, courses`;
  if (!isForMirrorAlone()) await loadUniversity(world.sql, { seed: 7 });
  await rm(inFolder('sync.config.ts'));
});
afterEach(async () => {
  await rm(inFolder('sync.config.ts'), { force: true });
  await rm(inFolder('service.d.ts'), { force: true });
});

describe.skipIf(isForMirrorAlone())('init', () => {
  it('writes a file that passes check and prettier, and that plans every stream', async () => {
    const stdout = await world.ends(
      'init --yes',
      0,
      '5 streams, 21 fields, 4 references',
      /^ {2}\w+: campus\.\w+ → \w+, \d+ fields?, \d references?$/m,
    );
    expect(Math.max(...stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(80);
    const prettier = spawnSync(
      process.execPath,
      [
        path.join(root, 'node_modules/prettier/bin/prettier.cjs'),
        '--stdin-filepath',
        `${root}sync.config.ts`,
      ],
      { input: await written(), encoding: 'utf8', cwd: root },
    );
    expect(prettier.stdout).toBe(await written());
    expect(await world.read('check')).not.toContain('✗');
    expect((await world.json<{ streams: unknown[] }>('plan --json')).streams).toHaveLength(5);
    expect(world.sandbox.objects()).toEqual([]);
  });

  it('uses the types of the service that discover has written, and compiles', async () => {
    await world.read('discover --types service.d.ts');
    await world.read('init --yes');
    expect(await written()).toContain("import type { Service } from './service.js';");
    const options = {
      extends: path.join(root, 'tsconfig.json'),
      compilerOptions: {
        paths: { slotsync: [path.join(root, 'src/index.ts')] },
        typeRoots: [path.join(root, 'node_modules/@types')],
      },
      files: ['sync.config.ts'],
      include: [],
    };
    await writeFile(inFolder('package.json'), JSON.stringify({ type: 'module' }));
    await writeFile(inFolder('tsconfig.json'), JSON.stringify(options));
    // A name that the service does not have is the only fault.
    await writeFile(inFolder('sync.config.ts'), (await written()).replace("'room.seats':", "'room.seets':"));
    const tsc = path.join(root, 'node_modules/typescript/bin/tsc');
    const { stdout: found } = spawnSync(process.execPath, [tsc, '-p', world.folder], { encoding: 'utf8' });
    expect(found).toContain('room.seets');
    expect(found.match(/error TS/g)).toHaveLength(1);
    await world.ends('check', 2, "did you mean 'room.seats'?");
  });

  it('overwrites no file', async () => {
    await writeFile(inFolder('sync.config.ts'), '// mine\n');
    await world.refuses('init --yes', 'sync.config.ts already exists');
    expect(await written()).toBe('// mine\n');
    await world.ends('init --yes --out other.config.ts', 2); // mine is no configuration
    await rm(inFolder('sync.config.ts'));
    await world.read('init --yes --out other.config.ts');
    expect(await readFile(inFolder('other.config.ts'), 'utf8')).toContain('defineConfig(');
  });

  it.each([
    ['no terminal and no tables', [], 'init can ask for the tables only on a terminal'],
    ['a table that does not exist', ['--tables', 'corses'], 'Did you mean campus.courses?'],
    ['a table with a typo', ['--tables', 'romms'], 'Did you mean campus.rooms?'],
    ['a table that is like no type', ['--tables', 'bookings'], 'bookings: no type of the service is like it'],
    ['a folder that does not exist', ['--yes', '--out', 'no/sync.config.ts'], 'cannot be written (ENOENT)'],
    ['a file that is no TypeScript', ['--yes', '--out', 'sync.config.json'], 'ends with .ts'],
  ])('refuses %s, and writes nothing', async (_, args, message) => {
    await world.refuses(['init', ...args], message);
    await expect(written()).rejects.toThrow('ENOENT');
  });

  it('ends with advice when the service does not answer or knows no type', async () => {
    const url = `http://127.0.0.1:${await findFreePort()}`;
    const unanswered = await world.run(['init', '--yes'], { API_BASE_URL: url });
    expect([unanswered.code, unanswered.stderr]).toEqual([
      1,
      expect.stringContaining('the service cannot be reached'),
    ]);
    world.sandbox.defineSchema({ types: [{ extId: null, name: 'By hand' }], fields: [] });
    await world.refuses('init --yes', 'knows no type');
    world.sandbox.defineSchema(universitySchema);
    await expect(written()).rejects.toThrow('ENOENT');
  });
});

describe('init in a database without tables', () => {
  const empty = rehearseOnce({ rows: 0, sandbox: { rate: 0 } });

  it('says that the database has no table to read', async () => {
    await empty.sql`DROP TABLE rooms, courses`;
    await rm(path.join(empty.folder, 'sync.config.ts'));
    await mkdir(path.join(empty.folder, 'sub'));
    await empty.refuses('init --yes --out sub/sync.config.ts', 'has no table that this role may read');
  });
});
