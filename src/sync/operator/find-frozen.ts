// Finds the streams that are frozen when a command runs. Includes freezes declared in the command's configuration,
// which the state only knows after a process has started with it.
import { readClock, type Queries } from '../../state/database.js';
import { listFrozen, type FrozenStream } from '../../state/freezes.js';
import type { Freeze } from '../../streams/freezes.js';

/** Returns those of the named streams that are frozen now, each with the freeze that ends last. */
export async function findFrozen(
  db: Queries,
  streams: readonly string[],
  declared: readonly Freeze[],
): Promise<FrozenStream[]> {
  const now = await readClock(db);
  const own = declared.filter(({ beginsAt, endsAt }) => beginsAt <= now && now < endsAt);
  const all = [
    ...(await listFrozen(db, streams)),
    ...own.map(({ stream, endsAt, reason }) => ({ stream, endsAt, reason, isDeclared: true })),
  ].toSorted((a, b) => b.endsAt.getTime() - a.endsAt.getTime());
  return streams.flatMap((name) => all.find(({ stream }) => stream === name) ?? []);
}
