// Fails when the schema and its migrations disagree, when a migration that was published has changed, or when a file of
// migrations/repeatable could not be applied twice. `--write` records the migrations there are as published.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const FOLDER = 'migrations';
const REPEATABLE = path.join(FOLDER, 'repeatable');
const CHECKSUMS = path.join(FOLDER, 'checksums.json');
const sqlFiles = (folder) =>
  readdirSync(folder)
    .filter((name) => name.endsWith('.sql'))
    .sort();

const current = Object.fromEntries(
  sqlFiles(FOLDER).map((name) => [
    name,
    createHash('sha256')
      .update(readFileSync(path.join(FOLDER, name)))
      .digest('hex'),
  ]),
);
if (process.argv.includes('--write')) {
  writeFileSync(CHECKSUMS, `${JSON.stringify(current, null, 2)}\n`);
  process.exit(0);
}

const faults = [];
const published = JSON.parse(readFileSync(CHECKSUMS, 'utf8'));
for (const [name, checksum] of Object.entries(published)) {
  if (current[name] === undefined) faults.push(`${name} was published and is gone`);
  else if (current[name] !== checksum)
    faults.push(`${name} was published and has changed; write a new migration instead`);
}
for (const name of Object.keys(current)) {
  if (published[name] === undefined)
    faults.push(`${name} is not in ${CHECKSUMS}; run: npm run migrations:publish`);
}

for (const name of readdirSync(REPEATABLE)) {
  const text = readFileSync(path.join(REPEATABLE, name), 'utf8');
  if (/^\s*CREATE (?!OR REPLACE )/im.test(text))
    faults.push(`repeatable/${name} is applied again and again; write CREATE OR REPLACE`);
}

const scratch = mkdtempSync('.migrations-');
try {
  cpSync(FOLDER, scratch, { recursive: true });
  execFileSync(
    process.execPath,
    [
      'node_modules/drizzle-kit/bin.cjs',
      'generate',
      '--dialect',
      'postgresql',
      '--schema',
      './src/state/schema.ts',
      '--out',
      scratch,
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  const missing = sqlFiles(scratch).filter((name) => current[name] === undefined);
  if (missing.length > 0)
    faults.push('src/state/schema.ts has changes without a migration; run: npm run migrations');
} finally {
  rmSync(scratch, { recursive: true });
}

if (faults.length > 0) {
  for (const fault of faults) console.error(`migrations: ${fault}`);
  process.exit(1);
}
