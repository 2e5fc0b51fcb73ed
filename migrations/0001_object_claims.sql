CREATE TABLE "slotsync"."object_claims" (
	"external_id" text COLLATE "C" PRIMARY KEY NOT NULL,
	"claimed_by" text NOT NULL,
	"claimed_until" timestamp with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "slotsync"."records" ADD COLUMN "former_external_id" text;--> statement-breakpoint
ALTER TABLE "slotsync"."records" ADD COLUMN "check_after" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "slotsync"."runs" ADD COLUMN "planner" text;--> statement-breakpoint
CREATE INDEX "records_check_after" ON "slotsync"."records" USING btree ("check_after") WHERE check_after IS NOT NULL;--> statement-breakpoint
CREATE INDEX "records_former_external_id" ON "slotsync"."records" USING btree ("stream") WHERE former_external_id IS NOT NULL;