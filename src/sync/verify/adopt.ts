// Makes records again after the state was lost, from mirror and service, without writing at the service. An object with
// a row's external id becomes the row's record, unless a record has the id. If the object differs from its row, the
// next sync plans an update.
import type { FoundObject } from '../../destination/destination.js';
import { insertAdopted, type AdoptedRecord } from '../../state/records/adopt-records.js';
import { hashObject } from '../../streams/destination-object.js';
import { acceptedText } from '../../streams/field-rules.js';
import { groupByTypes, type Stream } from '../../streams/stream.js';
import { differencesOf, readBeside, type Owner } from '../object/compare-objects.js';
import { endOf } from '../object/retire.js';
import type { Pass } from './read-back.js';

/** Number of objects of one stream by the result of adopting them. */
export interface Adopted {
  /** Records made for objects that equal their row. */
  equal: number;
  /** Records made for objects that the next sync compares and sends. */
  differing: number;
  /** Objects whose external id several rows have. */
  ambiguous: number;
  /** Objects without a row. If several streams have the type, they count for the first. */
  unowned: number;
}

/** Hashes of a record of which nothing was accepted. No row or object has these hashes. */
const NEVER_ACCEPTED = { sourceHash: '0', objectHash: '' };

/** Adopts the objects of these streams. Parents come first, because comparing references needs their records. */
export async function adoptObjects(pass: Pass, streams: readonly Stream[]): Promise<Map<string, Adopted>> {
  const adopted = new Map<string, Adopted>();
  const counted = new Set<string>();
  for (const level of new Set(streams.map((stream) => stream.level).toSorted((a, b) => a - b)))
    for (const group of groupByTypes(streams.filter((stream) => stream.level === level))) {
      await adoptTypes(pass, { ...group, counted }, adopted);
      for (const type of group.types) counted.add(type);
    }
  return adopted;
}

/** Adopts the objects of some types. `counted`: types whose objects without a row were counted before. */
async function adoptTypes(
  pass: Pass,
  { types, streams, counted }: ReturnType<typeof groupByTypes>[number] & { counted: ReadonlySet<string> },
  adopted: Map<string, Adopted>,
): Promise<void> {
  const { state, pace, signal } = pass;
  const countsOf = (stream: Stream | undefined) =>
    stream && streams.includes(stream) ? adopted.get(stream.name) : undefined;
  await readBeside(
    pass,
    { types, context: { lane: 'verify', signal }, pace: () => pace(signal) },
    () => {
      // Records made so far are kept if the types must be read again, so their counts stay.
      for (const { name } of streams) {
        const { equal = 0, differing = 0 } = adopted.get(name) ?? {};
        adopted.set(name, { equal, differing, ambiguous: 0, unowned: 0 });
      }
    },
    async (_, page) => {
      const ofFirst = countsOf(streams[0]);
      const records: AdoptedRecord[] = [];
      for (const { object, owner } of page) {
        if (!owner && ofFirst && !counted.has(object.typeId)) ofFirst.unowned++;
        const counts = countsOf(owner?.stream);
        const { extId } = object;
        // An object without an external id needs no record: a link leads to it, and the next sync assigns the id.
        if (!owner || !counts || owner.record || extId === undefined) continue;
        if (owner.others.length > 0) counts.ambiguous++;
        else records.push(recordOf({ ...object, extId }, owner));
      }
      for (const { stream, isEqual } of await insertAdopted(state.db, pass.runId, records)) {
        const counts = adopted.get(stream);
        if (counts) counts[isEqual ? 'equal' : 'differing']++;
      }
      await pass.progress(page.length);
    },
  );
}

function recordOf(
  { id, extId, ...object }: FoundObject & { extId: string },
  { stream, key, row, rendered }: Owner,
): AdoptedRecord {
  const named = { stream: stream.name, localKey: key, externalId: extId, destinationId: id };
  if (!row || !rendered || !('object' in rendered) || rendered.object.extId !== extId)
    return { ...named, ...NEVER_ACCEPTED };
  const isEqual =
    stream.objectTypes.has(object.typeId) &&
    differencesOf(stream, rendered.object, { ...object, id, extId }).changes.length === 0;
  if (!isEqual) return { ...named, ...NEVER_ACCEPTED };
  return {
    ...named,
    sourceHash: row.hash,
    objectHash: hashObject(rendered.object),
    endsAt: endOf(stream, row.row),
    acceptedFields: acceptedText(stream.rules, rendered.object),
  };
}
