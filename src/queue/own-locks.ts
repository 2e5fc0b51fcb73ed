// BullMQ's functions in PostgreSQL lock by advisory locks, which any role that may connect can take: it could hold up every job.
// They lock rows of a table in the queue's own schema instead.
import { QUEUE_SCHEMA } from './queue-address.js';

/**
 * A single key is the hash of a text, which may name a job or what another program deduplicates by: a row for each would grow
 * without end. So 65536 keys that follow each other share a row. Their order stays, by which BullMQ takes several.
 */
const GROUP_OF_KEY = 'key >> 16';

/**
 * Brings the functions up to date, and may be run again; after BullMQ's own migrations. Those that only try a lock keep it: nothing waits
 * for them.
 */
export const OWN_LOCKS = `
  CREATE TABLE IF NOT EXISTS ${QUEUE_SCHEMA}.lock_key (key bigint PRIMARY KEY);
  ${lockFunction('lock_key', 'key bigint', GROUP_OF_KEY, 'UPDATE')}
  ${lockFunction('lock_key_shared', 'key bigint', GROUP_OF_KEY, 'KEY SHARE')}
  ${lockFunction('lock_key_shared', 'high int, low int', '(high::bigint << 32) | (low::bigint & 4294967295)', 'KEY SHARE')}
  ${lockFunction('lock_key', 'high int, low int', '(high::bigint << 32) | (low::bigint & 4294967295)', 'UPDATE')}
  DO $do$
  DECLARE
    locking regprocedure;
  BEGIN
    FOR locking IN SELECT p.oid FROM pg_proc AS p
      WHERE p.pronamespace = '${QUEUE_SCHEMA}'::regnamespace AND p.prosrc ~ 'pg_advisory_xact_lock'
    LOOP
      EXECUTE regexp_replace(pg_get_functiondef(locking), 'pg_advisory_xact_lock(_shared)?\\(', '${QUEUE_SCHEMA}.lock_key\\1(', 'g');
    END LOOP;
  END $do$;`;

/** Until the end of the transaction, as BullMQ's are. Who uses a key for the first time has it alone, whichever lock it is. */
function lockFunction(
  name: string,
  parameters: string,
  key: string,
  strength: 'UPDATE' | 'KEY SHARE',
): string {
  return `CREATE OR REPLACE FUNCTION ${QUEUE_SCHEMA}.${name}(${parameters}) RETURNS void LANGUAGE plpgsql AS $lock$
  DECLARE
    wanted CONSTANT bigint := ${key};
  BEGIN
    INSERT INTO ${QUEUE_SCHEMA}.lock_key AS l (key) VALUES (wanted) ON CONFLICT DO NOTHING;
    PERFORM FROM ${QUEUE_SCHEMA}.lock_key AS l WHERE l.key = wanted FOR ${strength};
  END $lock$;`;
}
