// The ends of chains of waiting. Pure; each record that is waited for is followed once, whatever the length of its chain.
import { recordName, type RecordKey } from '../state/records/outcome-types.js';
import type { RecordStatus } from '../state/schema.js';

/** The end of chains of waiting. */
export interface End extends RecordKey {
  /** `absent`: the state has no record of the key; `cycle`: records that wait for each other, the key is that of one. */
  status: RecordStatus | 'absent' | 'cycle';
  code: string | null;
  /** The records that are the end: several in a cycle. */
  members: readonly RecordKey[];
}

/** A record that is waited for. */
export interface Link extends RecordKey {
  /** Null: the state has no record of the key. */
  status: RecordStatus | null;
  code: string | null;
  /** The record that it waits for itself. */
  waitsFor: RecordKey | null;
}

/** The end of a record's chain, and the number of steps to it. */
interface Place {
  end: End;
  steps: number;
}

/** Finds the places of records in these chains, which are to be whole. */
export function createFollower(links: readonly Link[]): (record: RecordKey) => Place {
  const byName = new Map(links.map((link) => [recordName(link), link]));
  const places = new Map<string, Place>();
  return (record) => {
    const from = recordName(record);
    const found = places.get(from);
    if (found) return found;
    const path = new Set<string>();
    let name: string | undefined = from;
    while (name !== undefined && !places.has(name) && !path.has(name)) {
      path.add(name);
      const waitsFor: RecordKey | null | undefined = byName.get(name)?.waitsFor;
      name = waitsFor ? recordName(waitsFor) : undefined;
    }
    const known = name === undefined ? undefined : places.get(name);
    const passed = [...path];
    const isCycle = name !== undefined && !known;
    const last = known ? [] : passed.splice(name === undefined ? -1 : passed.indexOf(name));
    let place = known ?? {
      end: endAt(
        last.flatMap((one) => byName.get(one) ?? []),
        isCycle,
      ),
      steps: 0,
    };
    for (const one of last) places.set(one, place);
    for (const one of passed.toReversed()) {
      place = { end: place.end, steps: place.steps + 1 };
      places.set(one, place);
    }
    return place;
  };
}

function endAt(members: readonly Link[], isCycle: boolean): End {
  const [first] = members.toSorted((a, b) => (recordName(a) < recordName(b) ? -1 : 1));
  if (!first) throw new Error('a chain of waiting is not whole');
  const { stream, localKey, code, status } = first;
  if (isCycle) return { stream, localKey, status: 'cycle', code: null, members };
  return { stream, localKey, status: status ?? 'absent', code, members };
}
