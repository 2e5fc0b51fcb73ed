// What became of a record, and the columns that say so.
import type { OutcomeCounts, RecordStatus } from '../schema.js';

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
  /** Its row is gone, and the service never had it or another record has its object: the record is deleted. */
  | { outcome: 'forgotten' }
  /** Its row is gone, and this batch may not retire it: the next plan decides. */
  | { outcome: 'skipped' }
);

/** Code of a deferred retirement: its object has reservations that have not ended. */
export const STILL_RESERVED = 'still_reserved';
/** The service refuses to retire an object; the status follows. Sent again when the row is back, or by `retry`. */
export const RETIREMENT_REFUSED = 'retirement_refused';

export const NO_OUTCOMES: OutcomeCounts = { synced: 0, unchanged: 0, deferred: 0, failed: 0, dead: 0 };

export function countOutcomes(outcomes: Iterable<Outcome>): OutcomeCounts {
  const counts = { ...NO_OUTCOMES };
  for (const { outcome } of outcomes)
    counts[outcome === 'forgotten' || outcome === 'skipped' ? 'unchanged' : outcome]++;
  return counts;
}

/** A record's name: stream and key as a JSON list, as in `waits_for`. */
export function recordName({ stream, localKey }: { stream: string; localKey: string }): string {
  return JSON.stringify([stream, localKey]);
}

/** An outcome that stays in the state with its record. */
export type KeptOutcome = Exclude<Outcome, { outcome: 'forgotten' | 'skipped' }>;

export function isKept(outcome: Outcome): outcome is KeptOutcome {
  return outcome.outcome !== 'forgotten' && outcome.outcome !== 'skipped';
}

/** The columns an outcome sets; the others are left out. */
export function toRow(outcome: KeptOutcome): Record<string, unknown> & { local_key: string } {
  const { localKey, externalId } = outcome;
  if ('objectHash' in outcome) {
    return {
      local_key: localKey,
      external_id: externalId,
      status: (outcome.retired ? 'retired' : 'synced') satisfies RecordStatus,
      accepted: true,
      sent: outcome.outcome === 'synced',
      destination_id: outcome.destinationId,
      source_hash: outcome.sourceHash,
      object_hash: outcome.objectHash,
    };
  }
  return {
    local_key: localKey,
    external_id: externalId,
    status: outcome.outcome,
    error_code: outcome.code,
    error_message: storable(outcome.message),
    waits_for: 'waitsFor' in outcome && outcome.waitsFor ? recordName(outcome.waitsFor) : undefined,
    source_hash: 'sourceHash' in outcome ? outcome.sourceHash : undefined,
    in_doubt: 'inDoubt' in outcome ? outcome.inDoubt : undefined,
  };
}

/** Messages come from mapping functions and from the service: made short, and without what jsonb cannot hold. */
export function storable(message: string): string {
  return message.slice(0, 2000).replaceAll('\0', '').toWellFormed();
}
