ALTER TABLE "slotsync"."runs" DROP CONSTRAINT "runs_kind";--> statement-breakpoint
UPDATE "slotsync"."runs" SET kind = 'repair', range = nullif(range - 'repair', '{}'::jsonb)
  WHERE kind = 'verify' AND range @> '{"repair": true}';--> statement-breakpoint
ALTER TABLE "slotsync"."runs" ADD CONSTRAINT "runs_kind" CHECK (kind IN ('incremental', 'sync', 'backfill', 'reconcile', 'verify', 'repair'));