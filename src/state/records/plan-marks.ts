// What a plan compares the mirror with: the mark of each record, in the byte order of the keys.
import { readCopy } from '../../postgres-copy.js';
import { arrayLiteral, quoteLiteral } from '../../sql-text.js';
import { asStateError, connect, type State } from '../database.js';
import { RETIREMENT_REFUSED, STILL_RESERVED } from './outcomes.js';

/**
 * `(key, mark)` of a stream, or of these keys of it: blocks of COPY lines, latin1. The mark of a record that is exactly
 * as accepted is its source hash alone; otherwise `status:a|n:hash`, where `a` says that the service may hold the object,
 * with `:gone` behind it when its row was seen to be gone.
 */
export async function* readPlanMarks(
  state: State,
  stream: string,
  keys?: readonly string[],
): AsyncGenerator<string[]> {
  const among = keys === undefined ? '' : `AND local_key = ANY (${quoteLiteral(arrayLiteral(keys))}::text[])`;
  // The common case comes first and costs nothing but its hash.
  const statement = `COPY (SELECT local_key, CASE
      WHEN status = 'synced' AND claimed_by IS NULL AND NOT in_doubt AND gone_since IS NULL THEN source_hash::text
      ELSE CASE
        WHEN claimed_by IS NOT NULL OR (in_doubt AND status <> 'dead') THEN 'doubt:a:'
        WHEN status = 'synced' THEN 'synced:a:' || source_hash
        WHEN status = 'retired' THEN 'retired:a:'
        WHEN status = 'deferred' AND error_code = ${quoteLiteral(STILL_RESERVED)} THEN 'reserved:a:'
        WHEN status = 'dead' AND starts_with(error_code, ${quoteLiteral(RETIREMENT_REFUSED)}) THEN 'unretired:a:'
        ELSE status || CASE WHEN object_hash IS NULL AND NOT in_doubt THEN ':n:' ELSE ':a:' END || coalesce(refused_hash::text, '')
      END || CASE WHEN gone_since IS NULL THEN '' ELSE ':gone' END
    END FROM slotsync.records WHERE stream = ${quoteLiteral(stream)} ${among} ORDER BY local_key) TO STDOUT`;
  try {
    yield* readCopy(connect(state.url, 'plan'), statement);
  } catch (error) {
    throw asStateError(error);
  }
}
