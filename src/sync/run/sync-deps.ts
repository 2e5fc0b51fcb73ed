// Dependencies of the use cases. A function that needs fewer picks them.
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
  /** Returns milliseconds since 1970. By default, the database's time is used. */
  now?: (() => number) | undefined;
  /** Time zone of the times in messages, UTC by default. */
  timeZone?: () => Promise<string>;
}

/** Returns milliseconds since 1970 by the database's clock, since clocks of hosts differ between processes. */
export async function timeOf({ state, now }: Pick<SyncDeps, 'state' | 'now'>): Promise<number> {
  return now?.() ?? (await readClock(state.db)).getTime();
}
