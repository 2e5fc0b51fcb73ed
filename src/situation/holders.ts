// The hold at the end of a chain of waiting: an operator's approval is waited for then, whatever the record says.
import type { Queries } from '../state/database.js';
import { recordName } from '../state/records/outcome-types.js';
import { findHeldKeys } from '../state/runs/held-keys.js';
import type { RunHold } from '../state/runs/holds.js';
import type { HoldOperation } from '../state/schema.js';
import type { End } from './ends-of-waiting.js';

/** A stream's holds, as a cause. */
export interface Holder {
  stream: string;
  status: 'held';
  code: HoldOperation;
  runId: number;
}

/** The ends that were never accepted and are held: by `recordName`. */
export async function findHolders(
  db: Queries,
  holds: readonly RunHold[],
  ends: readonly End[],
): Promise<Map<string, Holder>> {
  const holders = new Map<string, Holder>();
  for (const hold of holds) {
    const { stream, operation, runId } = hold;
    const unsent = ends.filter((end) => end.stream === stream && !isAccepted(end));
    const keys = [...new Set(unsent.map(({ localKey }) => localKey))];
    for (const localKey of await findHeldKeys(db, hold, keys))
      holders.set(recordName({ stream, localKey }), { stream, status: 'held', code: operation, runId });
  }
  return holders;
}

/** Records behind it wait for the next run. */
export const isAccepted = ({ status }: End) => status === 'synced' || status === 'retired';
