CREATE TABLE "slotsync"."reservation_events" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."reservation_events_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"key" text COLLATE "C" NOT NULL,
	"from_verdict" text,
	"to_verdict" text,
	"differs" jsonb,
	"at" timestamp with time zone DEFAULT now() NOT NULL,
	"run_id" bigint
);
--> statement-breakpoint
ALTER TABLE "slotsync"."reservations" ADD COLUMN "problem" text;--> statement-breakpoint
ALTER TABLE "slotsync"."reservations" ADD COLUMN "here" jsonb;--> statement-breakpoint
ALTER TABLE "slotsync"."reservations" ADD COLUMN "there" jsonb;--> statement-breakpoint
CREATE INDEX "reservation_events_key" ON "slotsync"."reservation_events" USING btree ("key");--> statement-breakpoint
CREATE INDEX "reservation_events_run" ON "slotsync"."reservation_events" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "reservation_events_at" ON "slotsync"."reservation_events" USING btree ("at");--> statement-breakpoint
CREATE INDEX "cancellations_reservation" ON "slotsync"."cancellations" USING btree ("reservation");--> statement-breakpoint
CREATE INDEX "cancellations_external_id" ON "slotsync"."cancellations" USING btree ("external_id");--> statement-breakpoint
CREATE INDEX "reservations_destination_id" ON "slotsync"."reservations" USING btree ("destination_id");--> statement-breakpoint
CREATE INDEX "reservations_external_id" ON "slotsync"."reservations" USING btree ("external_id");--> statement-breakpoint
ALTER TABLE "slotsync"."reservations" ADD CONSTRAINT "reservations_verdict_known" CHECK (verdict IN ('agrees', 'differs', 'missing_there', 'cancelled_there', 'cancelled_here', 'agrees_cancelled', 'unknown_here', 'restored_there', 'not_compared'));--> statement-breakpoint
CREATE VIEW "slotsync"."discrepancies" AS
	SELECT key, external_id, destination_id, verdict, differs, problem, begin_here, end_here, begin_there, end_there, here, there, seen_at, run_id
	FROM slotsync.reservations
	WHERE verdict NOT IN ('agrees', 'agrees_cancelled', 'restored_there', 'not_compared') OR problem IS NOT NULL;
