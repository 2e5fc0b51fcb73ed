// The options of the sandbox, and what a rehearsal can see and do with it. Apart from sandbox.ts, which assembles it,
// because the control interface offers the same over HTTP.
import type { Arrival } from './arrivals.js';
import type { FailRule, Faults } from './faults.js';
import type { GateRule, GateStatus } from './gate.js';
import type { SandboxObject, SandboxObjectInput } from './object-store.js';
import type { ObjectRefusal } from './put-objects.js';
import type { WindowKind } from './quota-window.js';
import type {
  ReservationInput,
  ReservationKey,
  SandboxStatus,
  SandboxCancellation,
  SandboxReservation,
} from './reservation-store.js';
import type { SandboxSchema } from './schema.js';

export interface SandboxOptions {
  /** 0, the default: a free one. */
  port?: number | undefined;
  host?: string | undefined;
  organizationId?: string | undefined;
  apiKey?: string | undefined;
  region?: string | undefined;
  /** Requests a second for the organization; 0: no quota. */
  rate?: number | undefined;
  window?: WindowKind | undefined;
  /** Whether a 429 carries Retry-After. */
  retryAfter?: boolean | undefined;
  tokenSeconds?: number | undefined;
  /** False: the JWT does not say when it ends. It ends all the same. */
  tokenExp?: boolean | undefined;
  expiredStatus?: 401 | 403 | undefined;
  /** Fixed when given; else 207 when an object was refused and 200 when none was. */
  putStatus?: 200 | 207 | undefined;
  /** Most objects in one PUT; beyond it 413. */
  maxObjects?: number | undefined;
  /** Most results on one page; a greater limit is lowered to it. */
  maxPage?: number | undefined;
  /** Whether finds of reservations honour `modified`. */
  honoursModified?: boolean | undefined;
  /** Half of it passes before the quota is checked, half after. */
  latencyMs?: number | undefined;
  /** Up to this much is added to the latency, by seeded chance. */
  jitterMs?: number | undefined;
  /** What a reference to an unknown object makes the service refuse: the whole call or the object. */
  references?: 'call' | 'item' | undefined;
  /** Without one every type is unknown. */
  schema?: SandboxSchema | undefined;
  /** For random faults and jitter. */
  seed?: number | undefined;
  faults?: Faults | undefined;
  /** Holds matching requests from the start, until `openGate`. */
  gate?: GateRule | undefined;
}

/** Everything a rehearsal can see and do that the service itself does not offer. */
export interface SandboxControls {
  /** Replaces all types and fields; known external ids keep their ids. */
  defineSchema(schema: SandboxSchema): void;
  objects(): SandboxObject[];
  object(extId: string): SandboxObject | undefined;
  /** Creates or replaces an object as a scheduler does at the service: nothing is checked. */
  putObject(object: SandboxObjectInput): SandboxObject;
  reservations(): SandboxReservation[];
  cancellations(): SandboxCancellation[];
  addReservation(reservation: ReservationInput): SandboxReservation;
  moveReservation(key: ReservationKey, to: { begin: number; end: number }): SandboxReservation;
  setReservationStatus(key: ReservationKey, status: readonly SandboxStatus[]): SandboxReservation;
  /** The reservation is found among the cancellations from now on. */
  cancelReservation(key: ReservationKey, options?: { extId?: string | undefined }): SandboxCancellation;
  /** Takes a cancellation back; `key` is the reservation's. */
  restoreReservation(key: ReservationKey): SandboxReservation;
  /** Removes it without a trace. */
  removeReservation(key: ReservationKey): void;
  /** Every request that reached the service, in order; the last 100 000. */
  arrivals(): Arrival[];
  /** Forgets the arrivals and what was counted of them. */
  clearArrivals(): void;
  /** The most arrivals, accepted and refused, in one half-open second, wherever it begins. */
  mostInAnySecond(): number;
  /** How many 429s were given. */
  refused(): number;
  setFaults(faults: Faults): void;
  setLatency(latencyMs: number, jitterMs?: number): void;
  /** Starts an empty window; what is not given stays as it is. */
  setQuota(quota: {
    rate?: number | undefined;
    window?: WindowKind | undefined;
    retryAfter?: boolean | undefined;
  }): void;
  /** Orders a fault for the next request the quota lets through whose path ends so. */
  failNext(rule: FailRule): void;
  /** Forgets what `failNext` ordered and has not happened yet. */
  clearFailures(): void;
  /**
   * Holds the requests that match and that the quota lets through, from now on. They are answered when the gate opens,
   * and carried out then if they were not yet, also when their client has gone.
   */
  closeGate(rule?: GateRule): void;
  /** Lets go all that is held. */
  openGate(): void;
  /** Whether the gate is closed, and how many requests it holds. */
  gate(): GateStatus;
  refuseObject(extId: string, refusal: ObjectRefusal): void;
  allowObject(extId: string): void;
  /** Every token handed out so far is refused from now on. */
  revokeTokens(): void;
}

export interface Sandbox extends SandboxControls {
  url: string;
  /** Stops listening and destroys open connections, hanging ones too. */
  close(): Promise<void>;
}
