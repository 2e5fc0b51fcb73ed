// Makes records again after the state was lost, without writing at the service. If an object has a row's external id,
// it becomes the object of the row's record. If the object differs from the row, the next sync will update it.
import type { FoundObject } from '../../destination/destination.js';
import { insertAdopted, type AdoptedRecord } from '../../state/records/settle-records.js';
import { hashObject } from '../../streams/destination-object.js';
import { acceptedText } from '../../streams/field-rules.js';
import { groupByTypes, type Stream } from '../../streams/stream.js';
import { differencesOf, readBeside, type Owner } from '../object/compare-objects.js';
import { endOf } from '../object/retire.js';
import type { Pass } from './read-back.js';

/** Numbers of objects of one stream. */
export interface Adopted {
  /** Number of records made whose object equals the row. */
  equal: number;
  /** Number of records made whose object differs from the row, so that the next sync sends it. */
  differing: number;
  /** Number of objects whose external id several rows have. They get no record. */
  ambiguous: number;
  /** Number of objects without a row. If several streams have the type, the first one counts them. */
  unowned: number;
}

/** Hashes of a record that the next sync must send. No row and no object has these hashes. */
const NEVER_ACCEPTED = { sourceHash: '0', objectHash: '' };

/** Makes records for streams. Streams that others refer to come first, since references need their records. */
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

/** Makes records for some types. `counted`: types whose objects without a row were already counted. */
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
      // If the reading restarts, records that were made remain, so their counts remain too.
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
        // An object without an external id gets no record here. A link assigns it to a row.
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
