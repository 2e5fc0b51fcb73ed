// The browser on PATH. Tests that need one are skipped without it.
import { accessSync, constants } from 'node:fs';
import path from 'node:path';
import type { Browser } from 'playwright-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

/** The program, or undefined when it is missing. */
export function findChromium(): string | undefined {
  const folders = (process.env['PATH'] ?? '').split(path.delimiter);
  return NAMES.flatMap((name) => folders.map((folder) => path.join(folder, name))).find(isExecutable);
}

/** Opens the browser; whoever opened it closes it. */
export async function openChromium(): Promise<Browser> {
  // Only here: who just asks whether there is one does not load it, and mutants run where it cannot be loaded.
  const { chromium } = await import('playwright-core');
  // Its sandbox refuses to run as root, as in a container; pages of tests are our own.
  return chromium.launch({ executablePath: findChromium() ?? '', args: ['--no-sandbox'] });
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
