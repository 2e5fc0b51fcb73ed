// Gates: the reasons why something of a stream is not sent now, as readers see them. A gate has a row for as long as it keeps a
// key back. sync/limits/decide.ts decides when one closes.
import { sql } from 'drizzle-orm';
import { query, type Queries } from '../database.js';
import { REPAIRED } from '../drift/read-drift.js';
import type { GatedOperation, GateFacts, GateReason, HeldSample } from '../schema.js';

/** An operator's consent to what a gate keeps back. */
export interface Approval {
  /** Records that it allows. */
  allowed: number;
  /** Exactly these keys; null: any. */
  digest: string | null;
  at: Date;
  by: string | null;
  /** The run that it started. */
  runId: number | null;
  expiresAt: Date;
}

export interface Gate {
  stream: string;
  operation: GatedOperation;
  reason: GateReason;
  since: Date;
  /** The run that closed it, or the last whole sync that met it. */
  runId: number;
  /** Keys that it keeps back, and their digest. */
  count: number;
  digest: string;
  facts: GateFacts;
  samples: HeldSample[];
  /** Null: nobody approved the gate, or the approval has expired. */
  approval: Approval | null;
  /** When an operator rejected exactly these keys; null: nobody did. */
  rejectedAt: Date | null;
  rejectedBy: string | null;
  /** The first of its keys. */
  firstKeys: string[];
}

const FIRST_KEYS = 5;

/** Reasons that an operator may overrule. The others end when their cause does. */
const APPROVABLE: ReadonlySet<GateReason> = new Set([
  'limit',
  'stale',
  'restored',
  'owned_by_former_stream',
  'refused',
]);
export const isApprovable = ({ reason }: Pick<Gate, 'reason'>): boolean => APPROVABLE.has(reason);

/** The answer of an operator; null: nobody has answered the gate, or its keys have changed since. */
export const answerOf = ({ approval, rejectedAt }: Pick<Gate, 'approval' | 'rejectedAt'>) =>
  approval ? 'approved' : rejectedAt ? 'rejected' : null;

/** Nobody has answered it, or its keys have changed since. What a freeze keeps back waits for nobody. */
export const waitsForOperator = ({
  reason,
  approval,
  rejectedAt,
}: Pick<Gate, 'reason' | 'approval' | 'rejectedAt'>): boolean =>
  reason !== 'frozen' && approval === null && rejectedAt === null;

/** The name of a gate within its stream: the operation, or of a gate of all operations the reason. */
export const nameOfGate = ({ operation, reason }: Pick<Gate, 'operation' | 'reason'>): string =>
  operation === '*' ? reason : operation;

/** The gates of all streams, or of one stream or run. A repair is held only while anything drifts. */
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

/** JSON has its times as text. */
function withDates({ approval, ...gate }: Gate): Gate {
  if (!approval) return { ...gate, approval };
  return {
    ...gate,
    approval: { ...approval, at: new Date(approval.at), expiresAt: new Date(approval.expiresAt) },
  };
}
