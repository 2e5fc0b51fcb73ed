// Completes a build: copies the SQL and the files of the page that are read at run time, removes declarations that no user
// can import, and makes the command executable. Works where there is no `cp`.
import { chmodSync, cpSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';

cpSync('src/demo/university.sql', 'dist/demo/university.sql');
for (const file of ['page.css', 'browser.js', 'icon.svg']) cpSync(`src/page/${file}`, `dist/page/${file}`);
// `npx slotsync` runs this file through a link that npm makes once, and sets its mode once: each later build writes it as 0644.
chmodSync('dist/cli.js', 0o755);

// `exports` of package.json opens index.d.ts alone. The compiler writes a declaration for each of 400 modules.
const reached = new Set();
addReached(path.join('dist', 'index.d.ts'));
for (const file of readdirSync('dist', { recursive: true, encoding: 'utf8' })) {
  const declaration = path.join('dist', file);
  if (file.endsWith('.d.ts') && !reached.has(declaration)) rmSync(declaration);
}

/** Adds a declaration and those that it imports. */
function addReached(file) {
  if (reached.has(file)) return;
  reached.add(file);
  for (const [, module] of readFileSync(file, 'utf8').matchAll(/\b(?:from|import\()\s*'(\.[^']+)\.js'/g))
    addReached(path.join(path.dirname(file), `${module}.d.ts`));
}
