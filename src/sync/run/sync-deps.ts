// The dependencies of the use cases. A function that needs less says which part.
import type { Destination } from '../../destination/destination.js';
import type { Logger } from '../../process/logger.js';
import type { Meter } from '../../process/meter.js';
import type { Mirror } from '../../mirror/mirror.js';
import type { State } from '../../state/database.js';
import type { Stream } from '../../streams/stream.js';

export interface SyncDeps {
  mirror: Mirror;
  destination: Destination;
  state: State;
  streams: ReadonlyMap<string, Stream>;
  log: Logger;
  meter?: Meter;
  /** Milliseconds since 1970. */
  now?: (() => number) | undefined;
}
