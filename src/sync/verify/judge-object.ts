// Judges one object of a record for `verify`. Pure.
//
// An unsent change is no drift. So a difference counts only if the row still renders the object that was accepted last.
// Other records wait for a sync, and are counted separately. Records that no sync would check are put in doubt.
import type { FoundObject } from '../../destination/destination.js';
import type { DriftingObject } from '../../state/drift/write-drift.js';
import type { OwnerRecord } from '../../state/records/read/owners.js';
import { hashObject, type DestinationObject } from '../../streams/destination-object.js';
import { differencesOf, type Owner } from '../object/compare-objects.js';

/**
 * `doubtful`: the row is unchanged, but renders another object than was accepted, and no sync would notice. `waiting`:
 * not comparable, because the record needs a sync or its row was deleted. `abandoned`: row deleted from a stream with
 * `retire: 'keep'`, so the object does not matter. `unsure`: drifts, but the answer may be older than the record.
 * `unreadable`: the service cannot return the object.
 */
export type Judgement =
  | 'fine'
  | 'doubtful'
  | 'waiting'
  | 'abandoned'
  | 'unsure'
  | 'unreadable'
  | Pick<DriftingObject, 'kind' | 'fields'>;

/** A record with the current row of its key. */
export interface Compared extends Pick<Owner, 'stream' | 'row' | 'rendered' | 'unreadable'> {
  record: OwnerRecord;
}

/**
 * Judges one object. `object`: as read from the service; undefined if it does not exist. `isAnswerOutdated`: the record
 * may have been written after the answer.
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

/** Returns the object that the row renders. Undefined if the row has changed since the last acceptance. */
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

/** Judges a deactivated object. It must not be active, unless it belongs to another type. */
function judgeRetired({ stream, row }: Compared, object: FoundObject | undefined): Judgement {
  if (row) return 'waiting';
  if (!object?.active || !stream.objectTypes.has(object.typeId) || stream.retire !== 'deactivate')
    return 'fine';
  return { kind: 'changed', fields: { active: { here: ['false'], there: ['true'] } } };
}
