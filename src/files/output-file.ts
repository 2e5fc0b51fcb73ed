// A file that a command writes piece by piece, for as many rows as there are.
import { createWriteStream } from 'node:fs';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { finished } from 'node:stream/promises';
import { codeOf, UsageError } from '../errors/errors.js';

/**
 * Opens a file; an existing one is replaced. `named`: the file that the operator named, which errors name too. Throws
 * UsageError when it cannot be written.
 */
export async function openOutputFile(file: string, named = file) {
  const stream = createWriteStream(file);
  const failed = finished(stream).catch((error: unknown) => {
    throw new UsageError(`${named} cannot be written (${codeOf(error)})`, {
      remedy: 'Name a file in a folder that exists and that you may write to, on a disk with room.',
    });
  });
  failed.catch(() => undefined); // whoever writes or closes gets the error
  await Promise.race([once(stream, 'open'), failed]);
  return {
    /** Waits while the disk is slower than the rows. */
    async write(text: string): Promise<void> {
      if (!stream.write(text)) await Promise.race([once(stream, 'drain'), failed]);
    },
    async close(): Promise<void> {
      stream.end();
      await failed;
    },
    /** Removes the file: what was to stand in it is not complete. */
    async discard(): Promise<void> {
      stream.destroy();
      await failed.catch(() => undefined);
      await rm(file, { force: true });
    },
  };
}
