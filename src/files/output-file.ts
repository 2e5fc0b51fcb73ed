// A file that a command writes piece by piece, for as many rows as there are. It may hold personal data: only its owner
// reads it, and it has its name when it is complete.
import { createWriteStream, lstatSync, rmSync } from 'node:fs';
import { once } from 'node:events';
import { rename } from 'node:fs/promises';
import { finished } from 'node:stream/promises';
import { codeOf, UsageError } from '../errors/errors.js';

/** Rights of the owner alone. */
const PRIVATE = 0o600;

/**
 * Opens a file beside the one that is named, which it replaces when it is closed; without that, the process removes it at its
 * end. No symbolic link is followed. Throws UsageError when it cannot be written.
 */
export async function openOutputFile(file: string) {
  requireReplaceable(file);
  const beside = `${file}.${process.pid}.unfinished`;
  const remove = () => rmSync(beside, { force: true });
  const asUsageError = (error: unknown) => {
    throw new UsageError(`${file} cannot be written (${codeOf(error)})`, {
      remedy: 'Name a file in a folder that exists and that you may write to, on a disk with room.',
      cause: error,
    });
  };
  try {
    remove(); // of a process that was killed
  } catch (error) {
    asUsageError(error);
  }
  const stream = createWriteStream(beside, { flags: 'wx', mode: PRIVATE });
  const failed = finished(stream).catch(asUsageError);
  failed.catch(() => undefined); // whoever writes or closes gets the error
  await Promise.race([once(stream, 'open'), failed]);
  process.once('exit', remove);
  return {
    /** Waits while the disk is slower than the rows. */
    async write(text: string): Promise<void> {
      if (!stream.write(text)) await Promise.race([once(stream, 'drain'), failed]);
    },
    async close(): Promise<void> {
      stream.end();
      await failed;
      await rename(beside, file).catch(asUsageError);
      process.off('exit', remove);
    },
  };
}

/** A link, a device or a pipe in its place would be lost, or lead elsewhere. */
function requireReplaceable(file: string): void {
  let found;
  try {
    found = lstatSync(file, { throwIfNoEntry: false });
  } catch {
    return; // opening it says why
  }
  if (!found || found.isFile()) return;
  if (found.isDirectory()) throw new UsageError(`${file} is a folder`, { remedy: 'Name the file in it.' });
  throw new UsageError(`${file} is no ordinary file, and only such a one is replaced`, {
    remedy: 'Name a file, or one that is not there yet.',
  });
}
