// Reads what is known of a stream's load before the mirror is read, so that a load that comes in between is a newer one, and
// judges it when the mirror has said how old it is.
import type { LoadReading } from '../../mirror/mirror.js';
import { readClock, type Queries } from '../../state/database.js';
import { readLoad, type SeenLoad } from '../../state/freshness.js';
import type { Stream } from '../../streams/stream.js';
import { judgeLoad } from '../limits/load-age.js';

export async function createLoadJudge(db: Queries, { name, freshness }: Pick<Stream, 'name' | 'freshness'>) {
  const before = freshness && { noted: await readLoad(db, name), now: await readClock(db) };
  let load: SeenLoad | undefined;
  return {
    note(reading: LoadReading | undefined): void {
      if (freshness && before && reading) load = judgeLoad(freshness, reading, before);
    },
    /** Undefined: nobody asks how old it is, or nothing was noted. */
    load: () => load,
  };
}
