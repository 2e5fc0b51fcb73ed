// Converts the external ids of the state to the form that the service compares. Done once, when the configuration first
// has a rule for comparing ids and the state still has the spelling of the rows.
import { sql } from 'drizzle-orm';
import { keySql, type ExternalIdRule } from '../../streams/external-id-rule.js';
import { anyOf, query, type State } from '../database.js';
import { WITHOUT_OBJECT } from './record-columns.js';

/**
 * Converts all external ids to the form that `rule` compares. If ids of several records become equal, the record
 * accepted last keeps the object and is put in doubt, and the others lose the object. If ids of several links become
 * equal, only the newest link is converted, and the records of the other links report the conflict.
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
