// What the use cases need from outside. A function that needs less says which part.
import type { Destination } from '../destination/destination.js';
import type { Logger } from '../logger.js';
import type { Meter } from '../meter.js';
import type { Mirror } from '../mirror/mirror.js';
import type { State } from '../state/database.js';
import type { Stream } from '../streams/stream.js';

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
