// Judges whether an object at the service has drifted from its record. Pure.
//
// A change that was not sent yet is no drift. So an object is compared only if its row still renders the accepted
// object. Other records wait for a sync. If no sync would notice the record, it is put in doubt.
import type { FoundObject } from '../../destination/destination.js';
import type { DriftingObject } from '../../state/drift.js';
import type { OwnerRecord } from '../../state/records/read/owners.js';
import { hashObject, type DestinationObject } from '../../streams/destination-object.js';
import { differencesOf, type Owner } from '../object/compare-objects.js';

/**
 * `doubtful`: the unchanged row renders another object than was accepted, which no sync would notice. `waiting`: not
 * compared, since a sync will handle the record, or its row was deleted. `abandoned`: its row was deleted from a stream
 * that never deactivates. `unsure`: differs, but the record may be newer than the answer. `unreadable`: the service
 * cannot return the object.
 */
export type Judgement =
  | 'fine'
  | 'doubtful'
  | 'waiting'
  | 'abandoned'
  | 'unsure'
  | 'unreadable'
  | Pick<DriftingObject, 'kind' | 'fields'>;

/** A record with its current row and the object made from the row. */
export interface Compared extends Pick<Owner, 'stream' | 'row' | 'rendered' | 'unreadable'> {
  record: OwnerRecord;
}

/**
 * Judges the object of a record. `object`: undefined if the service has no such object. `isAnswerOutdated`: the record
 * may be newer than the service's answer.
 */
export function judgeObject(
  compared: Compared,
  object: FoundObject | undefined,
  isAnswerOutdated: boolean,
): Judgement {
  const judgement = judgeAnswer(compared, object);
  return typeof judgement === 'object' && isAnswerOutdated ? 'unsure' : judgement;
}

function judgeAnswer(compared: Compared, object: FoundObject | undefined): Judgement {
  const { record } = compared;
  if (!record.isSettled) return 'waiting';
  switch (record.status) {
    case 'synced': {
      if (isAbandoned(compared)) return 'abandoned';
      const expected = unchangedObject(compared);
      if (!expected) return 'waiting';
      return hashObject(expected) === record.objectHash
        ? judgeActive(compared, expected, object)
        : 'doubtful';
    }
    case 'retired':
      return judgeRetired(compared, object);
    default:
      return isAbandoned(compared) ? 'abandoned' : 'waiting';
  }
}

function isAbandoned({ stream, row, unreadable }: Compared): boolean {
  return !row && !unreadable && stream.retire === 'keep';
}

/** Returns the object made from the row. Undefined if the row is not the one that was accepted. */
function unchangedObject({ record, row, rendered }: Compared): DestinationObject | undefined {
  if (row?.hash !== record.sourceHash || !rendered || !('object' in rendered)) return undefined;
  return rendered.object;
}

function judgeActive(
  { stream, record }: Compared,
  expected: DestinationObject,
  object: FoundObject | undefined,
): Judgement {
  if (!object) return { kind: 'missing', fields: undefined };
  if (!stream.objectTypes.has(object.typeId)) return { kind: 'wrong_type', fields: undefined };
  const { changes, kept } = differencesOf(stream, expected, object, record.acceptedFields);
  if (changes.length === 0) {
    if (kept.length === 0) return 'fine';
    const standing = kept.map(({ field, here, there }) => [field, { here, there }] as const);
    return { kind: 'kept', fields: Object.fromEntries(standing) };
  }
  const fields = Object.fromEntries(
    changes.map(({ field, old, new: here }) => [field, { here, there: old }]),
  );
  return { kind: object.active ? 'changed' : 'inactive', fields };
}

/** Judges the object of a deactivated record. It drifts if it is active. A missing object is fine. */
function judgeRetired({ stream, row }: Compared, object: FoundObject | undefined): Judgement {
  if (row) return 'waiting';
  if (!object?.active || !stream.objectTypes.has(object.typeId) || stream.retire !== 'deactivate')
    return 'fine';
  return { kind: 'changed', fields: { active: { here: ['false'], there: ['true'] } } };
}
