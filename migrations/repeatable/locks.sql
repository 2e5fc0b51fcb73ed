-- Locks between the processes of slotsync (src/state/locks.ts). Applied as a whole whenever this file has changed, as
-- quota.sql is.

-- Takes a lock until the transaction ends; false: another session has it, and had it for a second where it is waited for. The
-- mode excludes itself and nothing that only reads, and taking it writes nothing.
CREATE OR REPLACE FUNCTION slotsync.take_lock(lock text, waits boolean) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
BEGIN
  EXECUTE format('LOCK TABLE slotsync.%I IN SHARE UPDATE EXCLUSIVE MODE', 'lock_' || lock)
    || CASE WHEN waits THEN '' ELSE ' NOWAIT' END;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END
$$;
