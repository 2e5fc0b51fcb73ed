// Finds frozen streams for a command. Freezes of the configuration count too: they are stored in the state only when a
// process starts to work.
import { readClock, type Queries } from '../../state/database.js';
import { listFrozen, type FrozenStream } from '../../state/freezes.js';
import type { Freeze } from '../../streams/freezes.js';

/** Returns the named streams that are frozen now, each with the freeze that ends last. */
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
