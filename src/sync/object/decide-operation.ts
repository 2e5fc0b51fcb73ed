// Decides what to do with one key: create, update, retire, and so on. Compares the hash of its row in the mirror with
// the mark of its record in the state. Pure. Used by plans, polls and `explain`.

/** Short form of a record, from which the operation is decided. state/records/read/plan-marks.ts writes it as text. */
export interface Mark {
  /**
   * Status of the record, or one of these values: `resend` (an operator wants it sent), `repair` (the object drifts),
   * `doubt` (a write may be in flight, or its answer was lost), `reserved` (a deactivation was postponed or is in
   * doubt), `unretired` (the service refused the deactivation), `shared` (another row has the external id).
   */
  status: string;
  /** True if the service may have the record's object. */
  isAtService: boolean;
  /** Hash of the row that was accepted last. If the status is `dead`: hash of the row that was given up. */
  hash: string;
  /** True if an earlier plan noticed that the row was deleted. */
  rowWasGone: boolean;
}

/**
 * `forget`: deletes the record, because the service never had its object. `dead`: waits for a row change or an
 * operator. `ended`: the row is deleted and its object inactive. `check`: only reads the object back, because the row
 * is unchanged.
 */
export type Decision =
  | ('create' | 'update' | 'retry' | 'check' | 'retire' | 'repair')
  | ('forget' | 'unchanged' | 'dead' | 'ended');

export function parseMark(text: string): Mark {
  const [status = '', place, hash, gone] = text.split(':');
  if (hash === undefined) return { status: 'synced', isAtService: true, hash: status, rowWasGone: false };
  return { status, isAtService: place === 'a', hash, rowWasGone: gone !== undefined };
}

/**
 * Decides what to do with one key. `rowHash`: undefined if the mirror has no row. `mark`: undefined if there is no
 * record. `isForced`: also sends unchanged and given-up records.
 */
export function decideOperation(
  rowHash: string | undefined,
  mark: Mark | undefined,
  isForced = false,
): Decision {
  if (rowHash === undefined) return mark ? decideWithoutRow(mark) : 'ended';
  if (!mark) return 'create';
  switch (mark.status) {
    case 'repair':
      return rowHash === mark.hash ? 'repair' : 'update';
    case 'resend':
      return mark.isAtService ? 'update' : 'create';
    case 'doubt':
      return rowHash === mark.hash && !isForced ? 'check' : 'retry';
    case 'synced':
      return rowHash === mark.hash && !isForced ? 'unchanged' : 'update';
    case 'retired':
      return 'update';
    case 'dead':
      if (rowHash === mark.hash) return isForced ? 'retry' : 'dead';
      return mark.isAtService ? 'update' : 'create';
    default:
      return 'retry';
  }
}

function decideWithoutRow({ status, isAtService, hash }: Mark): Decision {
  if (status === 'retired') return 'ended';
  if (status === 'repair' && hash === '') return 'repair';
  if (status === 'unretired') return 'dead';
  return isAtService ? 'retire' : 'forget';
}
