// Messages of the bench of several organizations to the processes of their workers.
export interface OrganizationOptions {
  name: string;
  /** Undefined: queue and quota are in the state database. */
  redisUrl?: string | undefined;
  /** The migrated state database; any text with Redis. */
  stateUrl: string;
}

/** An order of the parent: fill the queue of each organization, or tell when its requests were sent. */
export type Order = { order: 'fill'; jobs: number } | { order: 'tell' };

/** Half of it passes before the service counts a request. */
export const LATENCY_MS = 50;
