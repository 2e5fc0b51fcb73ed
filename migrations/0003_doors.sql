CREATE TABLE "slotsync"."approvals" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."approvals_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"run_id" bigint NOT NULL,
	"used_by" bigint,
	"stream" text NOT NULL,
	"operation" text NOT NULL,
	"allowed" integer NOT NULL,
	"approved_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	CONSTRAINT "approvals_operation" CHECK (operation IN ('create', 'update', 'retire'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."schedules" (
	"name" text PRIMARY KEY NOT NULL,
	"pattern" text NOT NULL,
	"timezone" text NOT NULL,
	"registered_at" timestamp with time zone DEFAULT now() NOT NULL,
	"last_due" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "slotsync"."watermarks" (
	"stream" text PRIMARY KEY NOT NULL,
	"cursor" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"moved_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "slotsync"."changes" DROP CONSTRAINT "changes_stream_local_key_pk";--> statement-breakpoint
ALTER TABLE "slotsync"."batches" ADD COLUMN "operation" text;--> statement-breakpoint
ALTER TABLE "slotsync"."changes" ADD COLUMN "id" bigint PRIMARY KEY NOT NULL GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."changes_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1);--> statement-breakpoint
ALTER TABLE "slotsync"."changes" ADD COLUMN "run_id" bigint;--> statement-breakpoint
ALTER TABLE "slotsync"."changes" ADD COLUMN "not_before" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "slotsync"."records" ADD COLUMN "gone_since" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "slotsync"."runs" ADD COLUMN "range" jsonb;--> statement-breakpoint
ALTER TABLE "slotsync"."runs" ADD COLUMN "paused_at" timestamp with time zone;--> statement-breakpoint
CREATE INDEX "approvals_open" ON "slotsync"."approvals" USING btree ("stream","operation") WHERE used_by IS NULL;--> statement-breakpoint
CREATE INDEX "changes_waiting" ON "slotsync"."changes" USING btree ("id") WHERE run_id IS NULL;--> statement-breakpoint
CREATE INDEX "changes_taken" ON "slotsync"."changes" USING btree ("run_id") WHERE run_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX "changes_key" ON "slotsync"."changes" USING btree ("stream","local_key");--> statement-breakpoint
ALTER TABLE "slotsync"."batches" ADD CONSTRAINT "batches_operation" CHECK (operation IN ('create', 'update', 'retire'));--> statement-breakpoint
UPDATE "slotsync"."batches" SET "operation" = 'retire' WHERE "retires";--> statement-breakpoint
ALTER TABLE "slotsync"."batches" DROP COLUMN "retires";--> statement-breakpoint
-- A hold was a sentence for each stream, always of its retirements.
UPDATE "slotsync"."runs" SET "holds" = (
  SELECT jsonb_object_agg(h.key, jsonb_build_object('retire', jsonb_build_object(
    'count', coalesce(("plan"->h.key->>'retire')::int, 0), 'reason', h.value #>> '{}', 'approvable', false)))
  FROM jsonb_each("holds") AS h)
WHERE "holds" <> '{}';
