// The state was lost: records are made again from both sides, without one write at the service. An object with the external
// id of a row becomes the record of that row, unless a record has the id. Where it differs from what the row becomes, the next
// sync plans an update of it.
import type { FoundObject } from '../../destination/destination.js';
import { insertAdopted, type AdoptedRecord } from '../../state/records/adopt-records.js';
import { hashObject } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import { differencesOf, readBeside, type Owner } from '../object/compare-objects.js';
import type { Pass } from './verify-pass.js';

/** The objects of one stream, counted by what became of them. */
export interface Adopted {
  /** Records made: the object is as its row says. */
  equal: number;
  /** Records made: the next sync compares and sends the object. */
  differing: number;
  /** Objects with the external id of several rows. */
  ambiguous: number;
  /** Objects of its type without a row; they count with the first stream of the type. */
  unowned: number;
}

/** Hashes of a record of which nothing was accepted: every row has others. */
const NEVER_ACCEPTED = { sourceHash: '0', objectHash: '' };

/** Adopts the objects of these streams, those of parents first: what refers to them is compared with them. */
export async function adoptObjects(pass: Pass, streams: readonly Stream[]): Promise<Map<string, Adopted>> {
  const adopted = new Map(
    streams.map(({ name }) => [name, { equal: 0, differing: 0, ambiguous: 0, unowned: 0 }]),
  );
  const readings = new Map(streams.map(({ type, level }) => [`${level} ${type}`, { type, level }]));
  const counted = new Set<string>();
  for (const { type, level } of [...readings.values()].toSorted((a, b) => a.level - b.level)) {
    const those = streams.filter((stream) => stream.type === type && stream.level === level);
    const isFirst = !counted.has(type);
    counted.add(type);
    await adoptType(pass, { type, streams: those, isFirst }, adopted);
  }
  return adopted;
}

async function adoptType(
  pass: Pass,
  { type, streams, isFirst }: { type: string; streams: readonly Stream[]; isFirst: boolean },
  adopted: ReadonlyMap<string, Adopted>,
): Promise<void> {
  const { state, pace, signal } = pass;
  const [first] = streams;
  /** These start from nothing when the reading is repeated; records are made once. */
  const counts = await readBeside(
    pass,
    { type, context: { lane: 'verify', signal }, pace: () => pace(signal) },
    () => ({ unowned: 0, ambiguous: new Map<string, number>() }),
    async (sum, page) => {
      const records: AdoptedRecord[] = [];
      for (const { object, owner } of page) {
        if (!owner) sum.unowned++;
        if (!owner || owner.record || !streams.includes(owner.stream)) continue;
        const { name } = owner.stream;
        const { extId } = object;
        // A row is linked to it, and the next sync assigns its external id.
        if (extId === undefined) continue;
        if (owner.others.length > 0) sum.ambiguous.set(name, (sum.ambiguous.get(name) ?? 0) + 1);
        else records.push(recordOf({ ...object, extId }, owner));
      }
      for (const { stream, isEqual } of await insertAdopted(state.db, pass.runId, records)) {
        const of = adopted.get(stream);
        if (of) of[isEqual ? 'equal' : 'differing']++;
      }
      await pass.progress(page.length);
    },
  );
  for (const [name, count] of counts.ambiguous) {
    const of = adopted.get(name);
    if (of) of.ambiguous += count;
  }
  const ofFirst = first && adopted.get(first.name);
  if (ofFirst && isFirst) ofFirst.unowned += counts.unowned;
}

function recordOf(
  { id, extId, ...object }: FoundObject & { extId: string },
  { stream, key, row, rendered }: Owner,
): AdoptedRecord {
  const named = { stream: stream.name, localKey: key, externalId: extId, destinationId: id };
  if (!row || !rendered || !('object' in rendered) || rendered.object.extId !== extId)
    return { ...named, ...NEVER_ACCEPTED };
  const isEqual =
    object.typeId === stream.type &&
    differencesOf(stream, rendered.object, { ...object, id, extId }).length === 0;
  if (!isEqual) return { ...named, ...NEVER_ACCEPTED };
  return { ...named, sourceHash: row.hash, objectHash: hashObject(rendered.object) };
}
