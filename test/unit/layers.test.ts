// The lint rule layers/imports reports each import that docs/architecture.md forbids, and each file of src/ without a place.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { MAY_IMPORT, placeOf } from '../../scripts/layers.mjs';
import { createFolder } from '../support/folders.js';

const folder = createFolder('layers');

test('scripts/layers.mjs has a place for every file of src/, and names only places that exist', () => {
  const files = readdirSync('src', { recursive: true, encoding: 'utf8' })
    .map((file) => file.split(path.sep).join('/'))
    .filter((file) => file.endsWith('.ts'));
  expect(files.length).toBeGreaterThan(100);
  expect(files.filter((file) => placeOf(file) === undefined)).toEqual([]);
  const named = Object.values(MAY_IMPORT).flat();
  expect(named.filter((place) => !(place in MAY_IMPORT))).toEqual([]);
});

test('no two places may import each other, except peers: imports point down only', () => {
  const permissions: Record<string, readonly string[]> = MAY_IMPORT;
  /** Peers have the same permission, or are commands. */
  const peersOf = (place: string) => (place.startsWith('commands') ? 'commands' : permissions[place]?.join());
  const mutual = Object.entries(permissions).flatMap(([from, places]) =>
    places.filter((to) => permissions[to]?.includes(from) && peersOf(from) !== peersOf(to)),
  );
  expect(mutual).toEqual([]);
});

test('oxlint reports a forbidden import and a file without a place', () => {
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
  const oxlint = path.resolve('node_modules/oxlint/bin/oxlint');
  const options = [oxlint, '--config', path.resolve('.oxlintrc.json')];
  const { stdout } = spawnSync(process.execPath, options, { cwd: folder, encoding: 'utf8' });
  expect(stdout.match(/mirror must not import state/g)).toHaveLength(4);
  expect(stdout.match(/src\/utils\/e\.ts is in no place/g)).toHaveLength(1);
});
