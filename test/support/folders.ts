import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll } from 'vitest';

/** Creates a folder for the tests of a file, or of a block. It is removed after them. */
export function createFolder(name: string): string {
  const folder = mkdtempSync(path.join(tmpdir(), `slotsync-${name}-`));
  afterAll(() => rmSync(folder, { recursive: true }));
  return folder;
}
