ALTER TABLE "slotsync"."batches" ADD COLUMN "accepted" jsonb;--> statement-breakpoint
ALTER TABLE "slotsync"."runs" ADD COLUMN "accepted" jsonb;