// Decides the operation for one key from the hash of its row in the mirror and the mark of its record in the state.
// Plans, polls and `explain` all use this pure table.

/** Summary of a record, from which a plan decides. state/records/read/plan-marks.ts writes it as text. */
export interface Mark {
  /**
   * The record's status, or one of these values if the status is not enough: `resend` (an operator ordered a write),
   * `repair` (the object drifts; without hash if the row is deleted), `doubt` (claimed, or an answer was lost),
   * `reserved` (an earlier plan released the deactivation, which was postponed or is in doubt), `unretired` (the
   * service refused the deactivation), `shared` (another row has the external id).
   */
  status: string;
  /** True if the service may hold the record's object. */
  isAtService: boolean;
  /** Hash of the row that was accepted last, even if in doubt. If status is `dead`: hash of the row given up. */
  hash: string;
  /** True if an earlier plan found that the row was deleted. */
  rowWasGone: boolean;
}

/**
 * `forget`: row deleted, and the service never had the object. `dead`: given up until the row changes or an operator
 * acts. `ended`: row deleted and object deactivated. `check`: the row is unchanged, and the object is read back.
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
 * Decides the operation for one key. `rowHash`: undefined if there is no row. `mark`: undefined if there is no record.
 * `isForced`: unchanged and given-up records are sent too.
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
