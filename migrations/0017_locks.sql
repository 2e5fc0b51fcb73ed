-- Nobody reads or writes these tables: src/state/locks.ts locks them.
CREATE TABLE slotsync.lock_run_start ();--> statement-breakpoint
CREATE TABLE slotsync.lock_inbox ();--> statement-breakpoint
CREATE TABLE slotsync.lock_polling ();--> statement-breakpoint
CREATE TABLE slotsync.lock_alerts ();--> statement-breakpoint
CREATE TABLE slotsync.lock_reconcile ();--> statement-breakpoint
CREATE TABLE slotsync.lock_verify ();
