// Finds the gate that holds a key, so that the key is not sent now.
import type { Queries } from '../state/database.js';
import { readGates, type Gate } from '../state/gates/gates.js';
import { findHeld } from '../state/gates/held.js';
import { recordName, type RecordKey } from '../state/records/outcome-types.js';

/** Returns the gate that holds each key, by `recordName`. Its `since` is the time when that key was held. */
export async function findHoldingGates(
  db: Queries,
  gates: readonly Gate[],
  keys: readonly RecordKey[],
): Promise<Map<string, Gate>> {
  const holding = new Map<string, Gate>();
  for (const stream of new Set(gates.map((gate) => gate.stream))) {
    const own = new Set(keys.flatMap((key) => (key.stream === stream ? key.localKey : [])));
    for (const [localKey, { gate: operation, reason, since }] of await findHeld(db, stream, [...own])) {
      const gate = gates.find(
        (one) => one.stream === stream && one.operation === operation && one.reason === reason,
      );
      if (gate) holding.set(recordName({ stream, localKey }), { ...gate, since });
    }
  }
  return holding;
}

export async function readHoldingGate(db: Queries, key: RecordKey): Promise<Gate | undefined> {
  const gates = await readGates(db, { stream: key.stream });
  return (await findHoldingGates(db, gates, [key])).get(recordName(key));
}
