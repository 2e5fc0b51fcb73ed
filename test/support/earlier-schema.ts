/** Makes the state's schema one of an unreleased program: other migrations, and tables and functions of today are missing. */
export const MAKE_SCHEMA_EARLIER = `
  UPDATE slotsync.migrations SET hash = 'of an unreleased program', created_at = created_at - 2;
  INSERT INTO slotsync.migrations (hash, created_at) SELECT 'of its next migration', created_at + 1 FROM slotsync.migrations;
  DROP TABLE slotsync.held, slotsync.gates, slotsync.streams, slotsync.sent, slotsync.lock_polling;
  ALTER TABLE slotsync.destination DROP COLUMN answer;
  DROP FUNCTION slotsync.take_lock`;
