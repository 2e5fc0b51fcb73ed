CREATE TABLE "slotsync"."freezes" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."freezes_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"stream" text NOT NULL,
	"begins_at" timestamp with time zone NOT NULL,
	"ends_at" timestamp with time zone NOT NULL,
	"reason" text NOT NULL,
	"frozen_by" text NOT NULL,
	CONSTRAINT "freezes_frozen_by" CHECK (frozen_by IN ('command', 'configuration'))
);
--> statement-breakpoint
ALTER TABLE "slotsync"."batches" DROP CONSTRAINT "batches_operation";--> statement-breakpoint
ALTER TABLE "slotsync"."holds" DROP CONSTRAINT "holds_operation";--> statement-breakpoint
ALTER TABLE "slotsync"."batches" ADD COLUMN "refused" integer;--> statement-breakpoint
CREATE UNIQUE INDEX "freezes_of_commands" ON "slotsync"."freezes" USING btree ("stream") WHERE frozen_by = 'command';--> statement-breakpoint
CREATE INDEX "batches_refused" ON "slotsync"."batches" USING btree ("stream","created_at") WHERE refused IS NOT NULL;--> statement-breakpoint
ALTER TABLE "slotsync"."batches" ADD CONSTRAINT "batches_operation" CHECK (operation IN ('create', 'update', 'retire', 'overwrite', 'repair', 'refused', 'frozen'));--> statement-breakpoint
ALTER TABLE "slotsync"."holds" ADD CONSTRAINT "holds_operation" CHECK (operation IN ('create', 'update', 'retire', 'overwrite', 'repair', 'refused', 'frozen'));