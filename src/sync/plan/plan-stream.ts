// What one stream needs: the mirror's reading merged with the state's.
import type { Mirror, Selection, SharedExternalId } from '../../mirror/mirror.js';
import type { State } from '../../state/database.js';
import { readPlanMarks } from '../../state/records/plan-marks.js';
import type { PlanCounts } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import { mergeReadings, type PlanEntry, type MergeCounts } from './merge-readings.js';

export interface PlanDeps {
  mirror: Mirror;
  state: State;
}

/** What of a stream is planned. */
export interface Part {
  /** Rows that are read; all of them when it selects nothing. */
  selection: Selection;
  /** What is unchanged is sent too. */
  isForced: boolean;
}

const WHOLE: Part = { selection: {}, isForced: false };

/**
 * Yields what differs, in key order, and returns the counts. Reads only. Throws what the readings throw. Of a part
 * that is not chosen by keys, `retire` and `forget` say nothing: the row may be outside.
 */
export async function* planStream(
  { mirror, state }: PlanDeps,
  stream: Stream,
  { selection, isForced }: Part = WHOLE,
): AsyncGenerator<PlanEntry, MergeCounts> {
  const rows = mirror.readHashes(stream, selection);
  return yield* mergeReadings(rows, readPlanMarks(state, stream.name, selection.keys), isForced);
}

/** Keys whose rows would share an external id, with the reason. Neither of them is sent. */
export function explainSharedIds(
  shared: readonly SharedExternalId[],
): Map<string, { externalId: string; message: string }> {
  return new Map(
    shared.flatMap(({ externalId, keys }) =>
      keys.map((key) => {
        const others = keys.filter((other) => other !== key).slice(0, 5);
        return [
          key,
          { externalId, message: `external id '${externalId}' is also that of ${others.join(', ')}` },
        ];
      }),
    ),
  );
}

/** The plan's counts as a run keeps them; `retire`: those that would be. */
export function toPlanCounts(counts: MergeCounts, retire: number): PlanCounts {
  const { create, update, unchanged, retry, dead } = counts;
  return { create, update, retire, unchanged, retry, dead };
}

/**
 * Requests that writing takes when every record of the batch must be sent: a read, unless the mapping owns the object;
 * for a retirement a look at its bookings; and a write.
 */
export function requestsPerBatch({ owns, unlessReserved }: Stream, retires: boolean): number {
  if (retires) return unlessReserved ? 3 : 2;
  return owns === 'object' ? 1 : 2;
}
