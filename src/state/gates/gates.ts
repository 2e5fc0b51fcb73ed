// Gates: reasons why records of a stream are not sent now. A gate has a row only while it holds a key.
// sync/limits/decide.ts decides when a gate closes.
import { sql } from 'drizzle-orm';
import { query, type Queries } from '../database.js';
import { REPAIRED } from '../drift.js';
import type { GatedOperation, GateFacts, GateReason, HeldSample } from '../schema.js';

export interface Approval {
  allowed: number;
  /** Digest of the approved keys. Null if any keys may be sent. */
  digest: string | null;
  at: Date;
  by: string | null;
  runId: number | null;
  expiresAt: Date;
}

export interface Gate {
  stream: string;
  operation: GatedOperation;
  reason: GateReason;
  since: Date;
  /** Run that closed the gate, or last whole sync that found it closed. */
  runId: number;
  count: number;
  digest: string;
  facts: GateFacts;
  samples: HeldSample[];
  /** Null if no operator has approved the gate or the approval has expired. */
  approval: Approval | null;
  /** Time when an operator rejected exactly these keys. Null if they are not rejected. */
  rejectedAt: Date | null;
  rejectedBy: string | null;
  firstKeys: string[];
}

const FIRST_KEYS = 5;

/** Reasons that an operator may overrule. Gates with other reasons open only when their cause has ended. */
const APPROVABLE: ReadonlySet<GateReason> = new Set([
  'limit',
  'stale',
  'restored',
  'owned_by_former_stream',
  'refused',
]);
export const isApprovable = ({ reason }: Pick<Gate, 'reason'>): boolean => APPROVABLE.has(reason);

/** Returns the operator's answer. Null if there is no answer, or if the keys have changed since. */
export const answerOf = ({ approval, rejectedAt }: Pick<Gate, 'approval' | 'rejectedAt'>) =>
  approval ? 'approved' : rejectedAt ? 'rejected' : null;

/** Returns true if the gate has no answer for its current keys. Never true for a freeze. */
export const waitsForOperator = ({
  reason,
  approval,
  rejectedAt,
}: Pick<Gate, 'reason' | 'approval' | 'rejectedAt'>): boolean =>
  reason !== 'frozen' && approval === null && rejectedAt === null;

/** Returns a gate's name within its stream: its operation, or its reason if it closes all operations. */
export const nameOfGate = ({ operation, reason }: Pick<Gate, 'operation' | 'reason'>): string =>
  operation === '*' ? reason : operation;

/** Returns the gates of all streams, or of one stream or run. Omits gates of repairs if nothing drifts any more. */
export async function readGates(
  db: Queries,
  { stream, runId }: { stream?: string | undefined; runId?: number | undefined } = {},
): Promise<Gate[]> {
  return query<Gate>(db)`
    SELECT g.stream, g.operation, g.reason, g.since, g.run_id::float8 AS "runId", g.count, g.digest, g.facts, g.samples,
      CASE WHEN g.allowed IS NOT NULL AND g.expires_at > now() THEN jsonb_build_object('allowed', g.allowed,
        'digest', g.allowed_digest, 'at', g.approved_at, 'by', g.approved_by, 'runId', g.approved_run, 'expiresAt', g.expires_at) END AS approval,
      g.rejected_at AS "rejectedAt", g.rejected_by AS "rejectedBy", ARRAY(
        SELECT h.local_key FROM slotsync.held AS h
        WHERE h.stream = g.stream AND (h.gate, h.reason) = (g.operation, g.reason)
        ORDER BY h.local_key LIMIT ${sql.raw(String(FIRST_KEYS))}) AS "firstKeys"
    FROM slotsync.gates AS g
    WHERE ${stream === undefined ? sql`true` : sql`g.stream = ${stream}`}
      AND ${runId === undefined ? sql`true` : sql`g.run_id = ${runId}::bigint`}
      AND (g.operation <> 'repair' OR EXISTS (
        SELECT FROM slotsync.drift AS d WHERE d.stream = g.stream AND d.${REPAIRED}))
    ORDER BY g.run_id DESC, g.stream, g.operation, g.reason`.then((rows) => rows.map(withDates));
}

/** Converts the times of an approval, which JSON contains as text. */
function withDates({ approval, ...gate }: Gate): Gate {
  if (!approval) return { ...gate, approval };
  return {
    ...gate,
    approval: { ...approval, at: new Date(approval.at), expiresAt: new Date(approval.expiresAt) },
  };
}
