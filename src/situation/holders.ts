// The gate that keeps back a key: an operator, or the cause of the gate, is waited for then, whatever the record says.
import type { Queries } from '../state/database.js';
import { isApprovable, nameOfGate, readGates, type Gate } from '../state/gates/gates.js';
import { findHeld } from '../state/gates/held.js';
import { recordName, type RecordKey } from '../state/records/outcome-types.js';
import type { GateFacts, GateReason } from '../state/schema.js';
import type { End } from './ends-of-waiting.js';

/** Why a gate is closed, its facts and answer, the run that met it last, and whether an approval opens it. */
export interface FactsOfGate {
  reason: GateReason | null;
  facts: GateFacts;
  answer: 'approved' | 'rejected' | null;
  runId: number | null;
  approvable: boolean;
}

/** The same of what no gate keeps back. */
export const NO_GATE: FactsOfGate = {
  reason: null,
  facts: { accepted: 0 },
  answer: null,
  runId: null,
  approvable: false,
};

export const factsOfGate = ({ reason, facts, approval, rejectedAt, runId }: Gate): FactsOfGate => ({
  reason,
  facts,
  answer: approval ? 'approved' : rejectedAt ? 'rejected' : null,
  runId,
  approvable: isApprovable({ reason }),
});

/** A gate, as the cause of a record. */
export interface Holder extends FactsOfGate {
  stream: string;
  status: 'held';
  /** `nameOfGate`. */
  code: string;
  since: Date;
}

/** The gates of these keys that are held, by `recordName`. `gates`: all that are closed. */
export async function findHolders(
  db: Queries,
  gates: readonly Gate[],
  keys: readonly RecordKey[],
): Promise<Map<string, Holder>> {
  const holders = new Map<string, Holder>();
  for (const stream of new Set(gates.map((gate) => gate.stream))) {
    const own = new Set(keys.flatMap((key) => (key.stream === stream ? key.localKey : [])));
    for (const [localKey, { gate: operation, reason, since }] of await findHeld(db, stream, [...own])) {
      const gate = gates.find(
        (one) => one.stream === stream && one.operation === operation && one.reason === reason,
      );
      if (!gate) continue;
      const holder = { ...factsOfGate(gate), stream, status: 'held', code: nameOfGate(gate), since } as const;
      holders.set(recordName({ stream, localKey }), holder);
    }
  }
  return holders;
}

/** The gate that keeps back one key; undefined: none does. */
export async function readHolder(db: Queries, key: RecordKey): Promise<Holder | undefined> {
  return (await findHolders(db, await readGates(db, { stream: key.stream }), [key])).get(recordName(key));
}

/** Records behind it wait for the next run. */
export const isAccepted = ({ status }: End) => status === 'synced' || status === 'retired';
