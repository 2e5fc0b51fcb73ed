-- Locks between the processes of slotsync (src/state/locks.ts). Applied as a whole whenever this file has changed, as
-- quota.sql is.

-- Takes a lock until the transaction ends; false: another session has it, and had it for a second where it is waited for. The
-- mode excludes itself and nothing that only reads, and taking it writes nothing. The server ends a transaction that has
-- rested for a minute: nobody hears of a host that has lost its power.
CREATE OR REPLACE FUNCTION slotsync.take_lock(lock text, waits boolean) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
BEGIN
  EXECUTE format('LOCK TABLE slotsync.%I IN SHARE UPDATE EXCLUSIVE MODE', 'lock_' || lock)
    || CASE WHEN waits THEN '' ELSE ' NOWAIT' END;
  PERFORM set_config('idle_in_transaction_session_timeout', '60000', true);
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END
$$;
