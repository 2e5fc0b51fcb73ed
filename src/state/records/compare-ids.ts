// A configuration that says how the service compares external ids finds a state in which rows and people spelled them: each id
// becomes the form that is compared, once.
import { sql } from 'drizzle-orm';
import { keySql, type ExternalIdRule } from '../../streams/external-id-rule.js';
import { anyOf, query, type State } from '../database.js';
import { WITHOUT_OBJECT } from './record-state.js';

/**
 * Lets the state hold external ids as the rule compares them. Of records whose ids are one by it, the one that was accepted
 * last keeps the object, which is in doubt; the others have none any more. The newest
 * of links whose ids are one gets the key. The others keep their spelling, and their records say what keeps them out.
 */
export async function compareIdsBy({ db }: Pick<State, 'db'>, rule: ExternalIdRule): Promise<void> {
  const key = sql.raw(keySql(rule, 'external_id'));
  const rowKey = sql.raw(keySql(rule, 'row_external_id'));
  await db.transaction(async (tx) => {
    const shared = await query<{ key: string }>(tx)`
      UPDATE slotsync.records AS r SET ${WITHOUT_OBJECT} FROM (
        SELECT stream, local_key, ${key} AS key, row_number() OVER (PARTITION BY ${key}
          ORDER BY synced_at DESC NULLS LAST, stream, local_key) AS place
        FROM slotsync.records WHERE external_id IS NOT NULL
      ) AS n WHERE r.stream = n.stream AND r.local_key = n.local_key AND n.place > 1
      RETURNING n.key`;
    await query(tx)`
      UPDATE slotsync.records SET external_id = ${key}, row_external_id = ${rowKey},
        in_doubt = in_doubt OR coalesce(${key} = ${anyOf(shared.map((one) => one.key))}, false)
      WHERE external_id <> ${key} OR row_external_id <> ${rowKey} OR ${key} = ${anyOf(shared.map((one) => one.key))}`;
    await query(tx)`
      UPDATE slotsync.links AS l SET external_id = n.key FROM (
        SELECT stream, local_key, ${key} AS key, row_number() OVER (PARTITION BY ${key}
          ORDER BY external_id = ${key} DESC, linked_at DESC, stream, local_key) AS place
        FROM slotsync.links
      ) AS n WHERE l.stream = n.stream AND l.local_key = n.local_key AND n.place = 1 AND l.external_id <> n.key`;
  });
}
