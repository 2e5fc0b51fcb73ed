// The lint rule layers/imports reports each import that docs/architecture.md forbids, and each file of src/ without a place.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { forbidden, MAY_IMPORT, placeOf } from '../../scripts/layers.mjs';

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

describe('imports between files of src/', () => {
  test('are forbidden if the imported file is above or beside the importing file', () => {
    const pairs = PICTURE.flatMap((line, at) =>
      line.flatMap((from) => {
        const others = PICTURE.slice(0, at + 1).flat();
        return others.filter((to) => to !== from).map((to) => ({ from, to }));
      }),
    );
    expect(pairs.length).toBeGreaterThan(120);
    expect(pairs.filter(({ from, to }) => !reasonFor(from, to)?.includes('must not import'))).toEqual([]);
  });
});

test('scripts/layers.mjs has a place for every file of src/, and names only places that exist', () => {
  const files = readdirSync('src', { recursive: true, encoding: 'utf8' })
    .map((file) => file.split(path.sep).join('/'))
    .filter((file) => file.endsWith('.ts'));
  expect(files.length).toBeGreaterThan(100);
  expect(files.filter((file) => placeOf(file) === undefined)).toEqual([]);
  const named = Object.values(MAY_IMPORT).flat();
  expect(named.filter((place) => !(place in MAY_IMPORT))).toEqual([]);
});

test('oxlint reports a forbidden import and a file without a place', () => {
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

/** Returns the output of oxlint about a folder that breaks the rules of this repository. */
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
