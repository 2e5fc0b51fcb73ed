ALTER TABLE "slotsync"."links" ALTER COLUMN "external_id" SET DATA TYPE text;--> statement-breakpoint
ALTER TABLE "slotsync"."object_claims" ALTER COLUMN "external_id" SET DATA TYPE text;