// Reports of the lower layers as things happen, for the metrics. They know these verbs and not who counts.

/** Why a request has no status: we interrupted it, it never reached the service, or its answer was lost. */
export type Unanswered = 'interrupted' | 'unreachable' | 'lost';

export type Outcomes = Record<'synced' | 'unchanged' | 'deferred' | 'failed' | 'dead', number>;

export interface Meter {
  /** A request got its slot of the quota. */
  waited(lane: string, seconds: number): void;
  /** A request ended. `endpoint` is one of a fixed few, never a path that contains an id. */
  requested(endpoint: string, status: number | Unanswered, seconds: number): void;
  /** So many connections to the service are open now. */
  connected(open: number): void;
  /** Records of a stream got these outcomes. */
  settled(stream: string, counts: Readonly<Outcomes>): void;
}

export const noMeter: Meter = {
  waited: () => undefined,
  requested: () => undefined,
  connected: () => undefined,
  settled: () => undefined,
};
