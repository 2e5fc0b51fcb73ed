// The result of verifying one object of a record. Pure.
//
// What differs because it has not been sent yet is no drift: a difference counts only where the row still becomes exactly
// the object that was accepted last. Everything else waits for a sync, and is counted apart. What no sync would look at is
// in doubt.
import type { FoundObject } from '../../destination/destination.js';
import type { DriftingObject } from '../../state/drift/write-drift.js';
import type { OwnerRecord } from '../../state/records/read/owners.js';
import { hashObject, type DestinationObject } from '../../streams/destination-object.js';
import { differencesOf, type Owner } from '../object/compare-objects.js';

/**
 * `doubtful`: its row is as it was, and becomes another object than was accepted last: no sync would find that out.
 * `waiting`: it cannot be compared, because a sync has something to do about the record, or its row is gone. `abandoned`:
 * its row is gone from a stream that retires nothing, so that nothing is expected of its object any more. `unsure`: it drifts
 * by an answer that may be older than its record. `unreadable`: the service cannot show it; the next sync says why.
 */
export type Judgement =
  | 'fine'
  | 'doubtful'
  | 'waiting'
  | 'abandoned'
  | 'unsure'
  | 'unreadable'
  | Pick<DriftingObject, 'kind' | 'fields'>;

/** A record beside its row as it is now. */
export interface Compared extends Pick<Owner, 'stream' | 'row' | 'rendered' | 'unreadable'> {
  record: OwnerRecord;
}

/**
 * `object`: as it stands at the service; undefined: it was asked for by its external id, and is not there.
 * `isAnswerOutdated`: the answer may be older than the record.
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

/** The object that the row becomes; undefined: it is not the row that was accepted last. */
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

/** Its object is to be inactive. One that is gone, or another type's, is nobody's concern. */
function judgeRetired({ stream, row }: Compared, object: FoundObject | undefined): Judgement {
  if (row) return 'waiting';
  if (!object?.active || !stream.objectTypes.has(object.typeId) || stream.retire !== 'deactivate')
    return 'fine';
  return { kind: 'changed', fields: { active: { here: ['false'], there: ['true'] } } };
}
