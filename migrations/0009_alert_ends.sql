ALTER TABLE "slotsync"."alert_messages" ADD COLUMN "missing" text[];--> statement-breakpoint
ALTER TABLE "slotsync"."alerts" ADD COLUMN "gone_since" timestamp with time zone;