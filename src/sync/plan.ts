// What one stream needs: the mirror's reading merged with the state's.
import type { Mirror, SharedExternalId } from '../mirror/mirror.js';
import { readMarks } from '../state/records.js';
import type { State } from '../state/database.js';
import type { PlanCounts } from '../state/schema.js';
import type { Stream } from '../streams/streams.js';
import { mergeKeys, type Difference, type MergeCounts } from './merge.js';

export interface PlanDeps {
  mirror: Mirror;
  state: State;
}

/** Yields what differs, in key order, and returns the counts. Reads only. Throws what the readings throw. */
export async function* planStream(
  { mirror, state }: PlanDeps,
  stream: Stream,
): AsyncGenerator<Difference, MergeCounts> {
  return yield* mergeKeys(mirror.readHashes(stream), readMarks(state, stream.name));
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

/** The plan's counts as a run keeps them. */
export function toPlanCounts(stream: Stream, counts: MergeCounts): PlanCounts {
  const { create, update, retire, unchanged, retry, dead } = counts;
  return { create, update, retire: stream.retire === 'keep' ? 0 : retire, unchanged, retry, dead };
}

/** Why retirements must wait for a person, if they must, and what the person can do. */
export function explainHold(stream: Stream, { retire, accepted, rows }: MergeCounts): string | undefined {
  if (retire === 0 || stream.retire === 'keep') return undefined;
  const { count, percent } = stream.limits.retire;
  const records = `${retire} of ${accepted} records would be retired`;
  if (rows === 0) {
    return `${records}, but the source is empty, and an empty source retires nothing: check the mirror, then: slotsync sync`;
  }
  if (retire > count && retire > (accepted * percent) / 100) {
    const limit = `streams.${stream.name}.limits.retire`;
    return `${records}, more than ${count} and more than ${percent} %; if it is meant, raise ${limit}, then: slotsync sync`;
  }
  return undefined;
}

/** Requests that writing takes when every record of the batch must be sent: a read, unless the mapping owns the object, and a write. */
export function requestsPerBatch({ owns }: Stream, retires: boolean): number {
  return owns === 'object' && !retires ? 1 : 2;
}
