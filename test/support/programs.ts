// Programs that some tests need and not every machine has.
import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

/** Whether a program of this name is on PATH. */
export async function isOnPath(program: string): Promise<boolean> {
  const folders = (process.env['PATH'] ?? '').split(delimiter).filter(Boolean);
  const found = await Promise.all(
    folders.map((folder) =>
      access(join(folder, program)).then(
        () => true,
        () => false,
      ),
    ),
  );
  return found.includes(true);
}
