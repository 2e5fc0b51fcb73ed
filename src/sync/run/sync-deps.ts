// Connections and settings that the use cases need. A function that needs fewer picks them from this type.
import type { Destination } from '../../destination/destination.js';
import type { Logger } from '../../process/logger.js';
import type { Meter } from '../../process/meter.js';
import type { Mirror } from '../../mirror/mirror.js';
import { readClock, type State } from '../../state/database.js';
import type { HistoryRule } from '../../state/history.js';
import type { Stream } from '../../streams/stream.js';

export interface SyncDeps extends HistoryRule {
  mirror: Mirror;
  destination: Destination;
  state: State;
  streams: ReadonlyMap<string, Stream>;
  log: Logger;
  meter?: Meter;
  /** Returns milliseconds since 1970. By default, the database's clock is used. */
  now?: (() => number) | undefined;
  /** Time zone of the times in messages, UTC by default. */
  timeZone?: () => Promise<string>;
}

/** Returns milliseconds since 1970 from the database's clock, which all processes share. */
export async function timeOf({ state, now }: Pick<SyncDeps, 'state' | 'now'>): Promise<number> {
  return now?.() ?? (await readClock(state.db)).getTime();
}
