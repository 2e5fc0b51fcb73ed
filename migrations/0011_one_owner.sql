DROP INDEX "slotsync"."records_former_external_id";--> statement-breakpoint
DROP INDEX "slotsync"."records_external_id";--> statement-breakpoint
CREATE UNIQUE INDEX "records_external_id" ON "slotsync"."records" USING btree ("external_id");--> statement-breakpoint
ALTER TABLE "slotsync"."records" DROP COLUMN "former_external_id";