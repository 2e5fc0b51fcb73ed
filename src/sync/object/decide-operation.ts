// The operation for one key, decided from two facts: the hash of its row in the mirror and the mark of its
// record in the state. This is the one table for planning, polling and explaining. Pure.

/** A record as the state knows it; state/records/read/plan-marks.ts writes it. */
export interface Mark {
  /**
   * A record's status, or, where that alone does not decide: `resend` (an operator wants it sent again), `repair` (its object
   * drifts; no hash: of a row that is gone), `doubt` (claimed, or an answer was lost), `reserved` (a plan has let its
   * retirement go: it was put off since, or is in doubt), `unretired` (the service refused its retirement), `shared` (another
   * row has the same external id).
   */
  status: string;
  /** The service may hold the object. */
  isAtService: boolean;
  /** Hash of the row that was accepted last (also of one in doubt), or with which the record became dead. */
  hash: string;
  /** Its row was seen to be gone. */
  rowWasGone: boolean;
}

/**
 * `forget`: the service never had it and its row is gone. `dead`: not sent again until a change or an operator acts.
 * `ended`: its row is gone and its object is retired. `check`: its object is looked at, and its row is as it was accepted.
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
 * Decides by the row's hash (undefined: there is no such row) and the record's mark (undefined: there is no record).
 * `isForced`: what is unchanged or dead is sent too.
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
