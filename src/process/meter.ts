// Interface through which the lower layers report events for the metrics, without knowing who counts them.

/** Reason why a request has no status: it was interrupted here, never reached the service, or lost its answer. */
export type Unanswered = 'interrupted' | 'unreachable' | 'lost';

export type Outcomes = Record<'synced' | 'unchanged' | 'deferred' | 'failed' | 'dead', number>;

export interface Meter {
  /** Called when a request has got its slot of the quota, with the seconds that it waited. */
  waited(lane: string, seconds: number): void;
  /** Called when a request has ended. `endpoint` is one of a few fixed names, never a path with an id. */
  requested(endpoint: string, status: number | Unanswered, seconds: number): void;
  /** Called with the number of connections to the service that are open now. */
  connected(open: number): void;
  /** Called when records of a stream have got their outcomes. */
  settled(stream: string, counts: Readonly<Outcomes>): void;
}

export const noMeter: Meter = {
  waited: () => undefined,
  requested: () => undefined,
  connected: () => undefined,
  settled: () => undefined,
};
