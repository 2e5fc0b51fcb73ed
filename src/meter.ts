// What the work tells of itself, as it happens. The layers that work know these three verbs and not who listens.

/** Why a request has no status: it was interrupted by us, never reached the service, or its answer was lost. */
export type Unanswered = 'interrupted' | 'unreachable' | 'lost';

/** Records by what became of them. */
export interface Outcomes {
  synced: number;
  unchanged: number;
  deferred: number;
  failed: number;
  dead: number;
}

export interface Meter {
  /** A request was given its slot of the quota. */
  waited(lane: string, seconds: number): void;
  /** A request ended. `endpoint` is one of a fixed few, never a path with an id in it. */
  requested(endpoint: string, status: number | Unanswered, seconds: number): void;
  /** So many records of a stream have these outcomes. */
  settled(stream: string, counts: Readonly<Outcomes>): void;
}

/** Nobody listens. */
export const noMeter: Meter = {
  waited: () => undefined,
  requested: () => undefined,
  settled: () => undefined,
};
