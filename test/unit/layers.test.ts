// The lint rule layers/imports: it reports every import that docs/architecture.md forbids, and every file of src/ has a place.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { forbidden, MAY_IMPORT, MAY_USE, placeOf } from '../../scripts/layers.mjs';
import packageJson from '../../package.json' with { type: 'json' };

/** Files of each place, top to bottom. No file imports one of its own line or of a line above. */
const PICTURE = [
  ['src/cli.ts'],
  ['src/commands/new.ts'],
  ['src/app/app.ts'],
  ['src/http/new.ts'],
  ['src/situation/new.ts'],
  ['src/queue/new.ts'],
  [
    'src/sync/plan/new.ts',
    'src/sync/apply/new.ts',
    'src/sync/detect/new.ts',
    'src/sync/reconcile/new.ts',
    'src/sync/verify/new.ts',
  ],
  ['src/sync/object/decide-operation.ts'],
  ['src/mirror/new.ts', 'src/destination/new.ts', 'src/state/runs/new.ts'],
  ['src/streams/new.ts'],
  ['src/errors/errors.ts'],
].map((line) => line.map((file) => file.slice('src/'.length)));

function reasonFor(from: string, to: string): string | undefined {
  const relative = path.posix.relative(path.posix.dirname(from), to.replace(/\.ts$/, '.js'));
  return forbidden(from, relative.startsWith('.') ? relative : `./${relative}`);
}

describe('layers: imports between files of src/', () => {
  test('nothing imports what is above it or beside it', () => {
    const pairs = PICTURE.flatMap((line, at) =>
      line.flatMap((from) => {
        const others = PICTURE.slice(0, at + 1).flat();
        return others.filter((to) => to !== from).map((to) => ({ from, to }));
      }),
    );
    expect(pairs.length).toBeGreaterThan(120);
    expect(pairs.filter(({ from, to }) => !reasonFor(from, to)?.includes('must not import'))).toEqual([]);
  });

  test.each([
    ['cli.ts', 'commands/new.ts'],
    ['cli.ts', 'commands/demo.ts'],
    ['commands/new.ts', 'app/new.ts'],
    ['commands/new.ts', 'documents/new.ts'],
    ['http/new.ts', 'situation/new.ts'],
    ['app/new.ts', 'http/new.ts'],
    ['app/new.ts', 'queue/new.ts'],
    ['queue/new.ts', 'sync/apply/new.ts'],
    ['sync/operator/new.ts', 'sync/plan/new.ts'],
    ['sync/apply/new.ts', 'sync/object/new.ts'],
    ['sync/object/new.ts', 'sync/identity/new.ts'],
    ['sync/apply/new.ts', 'mirror/new.ts'],
    ['sync/object/new.ts', 'state/records/new.ts'],
    ['state/runs/new.ts', 'state/records/new.ts'],
    ['mirror/new.ts', 'streams/new.ts'],
    ['streams/new.ts', 'errors/new.ts'],
    ['commands/demo.ts', 'demo/new.ts'],
    ['commands/demo.ts', 'sandbox/new.ts'],
    ['commands/sandbox.ts', 'sandbox/new.ts'],
    ['demo/new.ts', 'sandbox/new.ts'],
  ])('%s may import %s', (from, to) => {
    expect(reasonFor(from, to)).toBeUndefined();
  });

  test.each([
    'cli.ts',
    'app/new.ts',
    'commands/new.ts',
    'queue/new.ts',
    'sync/run/new.ts',
    'state/new.ts',
    'errors/new.ts',
  ])('sandbox/ and demo/ are imported by their commands only, not by %s', (from) => {
    expect(reasonFor(from, 'sandbox/new.ts')).toMatch(/must not import sandbox/);
    expect(reasonFor(from, 'demo/new.ts')).toMatch(/must not import demo/);
  });

  test('a file outside src/ and a folder without a place are reported', () => {
    expect(reasonFor('app/new.ts', '../test/support/world.ts')).toBe(
      'Files of src/ import only files of src/.',
    );
    expect(reasonFor('app/new.ts', 'utils/new.ts')).toMatch(/is in no place/);
    for (const file of ['utils/new.ts', 'new.ts', 'sync/new/new.ts']) expect(placeOf(file)).toBeUndefined();
  });
});

describe('layers: packages', () => {
  test.each([
    ['bullmq', 'queue/new.ts', 'sync/apply/new.ts'],
    ['drizzle-orm/pg-core', 'state/runs/new.ts', 'mirror/new.ts'],
    ['undici', 'destination/connections.ts', 'destination/new.ts'],
    ['commander', 'commands/new.ts', 'app/new.ts'],
    ['prom-client', 'http/metrics.ts', 'http/new.ts'],
    ['ioredis', 'redis-connection.ts', 'destination/quota/new.ts'],
    ['pg', 'queue/new.ts', 'state/new.ts'],
    ['postgres', 'mirror/new.ts', 'streams/new.ts'],
    ['pino', 'process/logger.ts', 'errors/new.ts'],
  ])('%s is used in %s, not in %s', (name, allowed, refused) => {
    expect(forbidden(allowed, name)).toBeUndefined();
    expect(forbidden(refused, name)).toMatch(/may use the package/);
  });

  test('a development dependency is reported', () => {
    expect(forbidden('app/new.ts', 'vitest')).toMatch(/not listed/);
    expect(forbidden('app/new.ts', '@testcontainers/redis')).toMatch(/not listed/);
    expect(Object.keys(MAY_USE).toSorted()).toEqual(Object.keys(packageJson.dependencies).toSorted());
  });
});

test('layers: every file of src/ has a place, and a place names only places', () => {
  const files = readdirSync('src', { recursive: true, encoding: 'utf8' })
    .map((file) => file.split(path.sep).join('/'))
    .filter((file) => file.endsWith('.ts'));
  expect(files.length).toBeGreaterThan(100);
  expect(files.filter((file) => placeOf(file) === undefined)).toEqual([]);
  const named = Object.values(MAY_IMPORT).flat();
  expect(named.filter((place) => !(place in MAY_IMPORT))).toEqual([]);
});

test('layers: oxlint reports a forbidden import and a file without a place', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'slotsync-layers-'));
  try {
    const write = (file: string, text: string) => {
      mkdirSync(path.join(folder, path.dirname(file)), { recursive: true });
      writeFileSync(path.join(folder, file), text);
    };
    write('src/mirror/a.ts', `import { b } from '../state/b.js';\nexport const a = b;\n`);
    write('src/mirror/b.ts', `export { b } from '../state/b.js';\n`);
    write('src/mirror/c.ts', `export const c = () => import('../state/b.js');\n`);
    write('src/mirror/d.ts', `export type D = import('../state/b.js').B;\n`);
    write('src/state/b.ts', `export const b = 1;\nexport type B = number;\n`);
    write('src/utils/e.ts', `export const e = 1;\n`);
    const output = lint(folder);
    expect(output.match(/mirror must not import state/g)).toHaveLength(4);
    expect(output.match(/src\/utils\/e\.ts is in no place/g)).toHaveLength(1);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

/** The output of oxlint about a folder that breaks the rules of this repository. */
function lint(folder: string): string {
  const oxlint = path.resolve('node_modules/oxlint/bin/oxlint');
  try {
    execFileSync(process.execPath, [oxlint, '--config', path.resolve('.oxlintrc.json')], {
      cwd: folder,
      encoding: 'utf8',
    });
  } catch (error) {
    return (error as { stdout: string }).stdout;
  }
  throw new Error('oxlint has reported nothing');
}
