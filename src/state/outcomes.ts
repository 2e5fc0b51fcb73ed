// What became of a record, and how that is written down.
import type { OutcomeCounts, RecordStatus } from './schema.js';

/** What became of one record. Hashes are of the row and the object the service accepted. */
export type Outcome = { localKey: string; externalId?: string | undefined } & (
  | {
      outcome: 'synced' | 'unchanged';
      destinationId?: number | undefined;
      sourceHash: string;
      objectHash: string;
      retired?: boolean;
    }
  | { outcome: 'deferred'; code: string; message: string; waitsFor?: { stream: string; localKey: string } }
  | { outcome: 'failed'; code: string; message: string; inDoubt?: boolean }
  | {
      outcome: 'dead';
      code: string;
      message: string;
      sourceHash: string;
      waitsFor?: { stream: string; localKey: string };
    }
  /** Its row is gone and the service never had it. */
  | { outcome: 'gone' }
  /** Its row is gone; the next plan decides. */
  | { outcome: 'left' }
);

/** Code of a deferred retirement: its object has bookings yet to come. */
export const STILL_RESERVED = 'still_reserved';
/** The service refuses to retire an object; its status follows. Sent again when the row is back, or a person says so. */
export const RETIREMENT_REFUSED = 'retirement_refused';

export const NO_OUTCOMES: OutcomeCounts = { synced: 0, unchanged: 0, deferred: 0, failed: 0, dead: 0 };

export function countOutcomes(outcomes: Iterable<Outcome>): OutcomeCounts {
  const counts = { ...NO_OUTCOMES };
  for (const { outcome } of outcomes)
    counts[outcome === 'gone' || outcome === 'left' ? 'unchanged' : outcome]++;
  return counts;
}

/** How a record is named in `waits_for`. */
export function waitingName({ stream, localKey }: { stream: string; localKey: string }): string {
  return JSON.stringify([stream, localKey]);
}

/** The columns an outcome sets. */
export function toRow(outcome: Outcome) {
  const accepted = outcome.outcome === 'synced' || outcome.outcome === 'unchanged';
  const message = 'message' in outcome ? storable(outcome.message) : null;
  const row = {
    local_key: outcome.localKey,
    status: outcome.outcome as RecordStatus,
    accepted,
    sent: outcome.outcome === 'synced',
    external_id: outcome.externalId ?? null,
    destination_id: null as number | null,
    source_hash: null as string | null,
    object_hash: null as string | null,
    error_code: null as string | null,
    error_message: null as string | null,
    waits_for: null as string | null,
    in_doubt: false,
  };
  switch (outcome.outcome) {
    case 'synced':
    case 'unchanged':
      return {
        ...row,
        status: (outcome.retired ? 'retired' : 'synced') satisfies RecordStatus as RecordStatus,
        destination_id: outcome.destinationId ?? null,
        source_hash: outcome.sourceHash,
        object_hash: outcome.objectHash,
      };
    case 'deferred':
      return {
        ...row,
        error_code: outcome.code,
        error_message: message,
        waits_for: outcome.waitsFor ? waitingName(outcome.waitsFor) : null,
      };
    case 'failed':
      return { ...row, error_code: outcome.code, error_message: message, in_doubt: outcome.inDoubt ?? false };
    case 'dead':
      return {
        ...row,
        error_code: outcome.code,
        error_message: message,
        source_hash: outcome.sourceHash,
        waits_for: outcome.waitsFor ? waitingName(outcome.waitsFor) : null,
      };
    case 'gone':
    case 'left':
      return row;
  }
}

/** Messages come from functions and services: kept short, and without what jsonb cannot hold. */
export function storable(message: string): string {
  return message.slice(0, 2000).replaceAll('\0', '').toWellFormed();
}
