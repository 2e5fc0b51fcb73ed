CREATE SCHEMA IF NOT EXISTS "slotsync";
--> statement-breakpoint
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
CREATE TABLE "slotsync"."batches" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."batches_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"run_id" bigint NOT NULL,
	"stream" text NOT NULL,
	"level" smallint NOT NULL,
	"operation" text,
	"keys" text[] NOT NULL,
	"state" text NOT NULL,
	"counts" jsonb,
	"error_code" text,
	"error_message" text,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"finished_at" timestamp with time zone,
	CONSTRAINT "batches_state" CHECK (state IN ('planned', 'queued', 'held', 'done', 'failed', 'cancelled')),
	CONSTRAINT "batches_operation" CHECK (operation IN ('create', 'update', 'retire'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."cancellations" (
	"destination_id" bigint PRIMARY KEY NOT NULL,
	"external_id" text,
	"reservation" bigint,
	"cancelled_at" timestamp with time zone,
	"begin" timestamp with time zone,
	"end" timestamp with time zone,
	"seen_at" timestamp with time zone DEFAULT now() NOT NULL,
	"run_id" bigint
);
--> statement-breakpoint
CREATE TABLE "slotsync"."changes" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."changes_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"stream" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"requested_at" timestamp with time zone DEFAULT now() NOT NULL,
	"run_id" bigint,
	"not_before" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "slotsync"."destination" (
	"single_row" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"base_url" text NOT NULL,
	"organization_id" text NOT NULL,
	"region" text NOT NULL,
	"state_id" uuid DEFAULT gen_random_uuid() NOT NULL,
	"bound_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "destination_one_row" CHECK (single_row)
);
--> statement-breakpoint
CREATE TABLE "slotsync"."records" (
	"stream" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"external_id" text,
	"destination_id" bigint,
	"source_hash" bigint,
	"object_hash" text,
	"status" text NOT NULL,
	"refused_hash" bigint,
	"error_code" text,
	"error_message" text,
	"waits_for" text,
	"waits_since" timestamp with time zone,
	"attempts" integer DEFAULT 0 NOT NULL,
	"in_doubt" boolean DEFAULT false NOT NULL,
	"gone_since" timestamp with time zone,
	"claimed_by" text,
	"claimed_until" timestamp with time zone,
	"run_id" bigint,
	"synced_at" timestamp with time zone,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "records_stream_local_key_pk" PRIMARY KEY("stream","local_key"),
	CONSTRAINT "records_status" CHECK (status IN ('pending', 'synced', 'retired', 'deferred', 'failed', 'dead'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."repeatable_migrations" (
	"name" text PRIMARY KEY NOT NULL,
	"checksum" text NOT NULL,
	"applied_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
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
CREATE TABLE "slotsync"."reservations" (
	"key" text COLLATE "C" PRIMARY KEY NOT NULL,
	"external_id" text,
	"destination_id" bigint,
	"verdict" text NOT NULL,
	"differs" jsonb,
	"problem" text,
	"begin_here" timestamp with time zone,
	"end_here" timestamp with time zone,
	"begin_there" timestamp with time zone,
	"end_there" timestamp with time zone,
	"here" jsonb,
	"there" jsonb,
	"seen_at" timestamp with time zone NOT NULL,
	"run_id" bigint,
	CONSTRAINT "reservations_verdict_known" CHECK (verdict IN ('agrees', 'differs', 'missing_there', 'cancelled_there', 'cancelled_here', 'agrees_cancelled', 'unknown_here', 'restored_there', 'not_compared'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."reservations_watermark" (
	"single_row" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"read_up_to" timestamp with time zone NOT NULL,
	"moved_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "reservations_watermark_one_row" CHECK (single_row)
);
--> statement-breakpoint
CREATE TABLE "slotsync"."runs" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."runs_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"kind" text NOT NULL,
	"lane" text NOT NULL,
	"started_by" text NOT NULL,
	"streams" text[] NOT NULL,
	"status" text NOT NULL,
	"plan" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"counts" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"holds" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"range" jsonb,
	"paused_at" timestamp with time zone,
	"error_code" text,
	"error_message" text,
	"requested_at" timestamp with time zone DEFAULT now() NOT NULL,
	"started_at" timestamp with time zone,
	"finished_at" timestamp with time zone,
	CONSTRAINT "runs_kind" CHECK (kind IN ('incremental', 'sync', 'backfill', 'reconcile', 'verify')),
	CONSTRAINT "runs_started_by" CHECK (started_by IN ('schedule', 'command', 'change')),
	CONSTRAINT "runs_status" CHECK (status IN ('planning', 'running', 'held', 'succeeded', 'partial', 'failed', 'cancelled'))
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
ALTER TABLE "slotsync"."batches" ADD CONSTRAINT "batches_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "slotsync"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "approvals_open" ON "slotsync"."approvals" USING btree ("stream","operation") WHERE used_by IS NULL;--> statement-breakpoint
CREATE INDEX "batches_run" ON "slotsync"."batches" USING btree ("run_id","state","level");--> statement-breakpoint
CREATE INDEX "cancellations_reservation" ON "slotsync"."cancellations" USING btree ("reservation");--> statement-breakpoint
CREATE INDEX "cancellations_external_id" ON "slotsync"."cancellations" USING btree ("external_id");--> statement-breakpoint
CREATE INDEX "changes_waiting" ON "slotsync"."changes" USING btree ("id") WHERE run_id IS NULL;--> statement-breakpoint
CREATE INDEX "changes_taken" ON "slotsync"."changes" USING btree ("run_id") WHERE run_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX "changes_key" ON "slotsync"."changes" USING btree ("stream","local_key");--> statement-breakpoint
CREATE INDEX "records_external_id" ON "slotsync"."records" USING btree ("external_id");--> statement-breakpoint
CREATE INDEX "records_unsettled" ON "slotsync"."records" USING btree ("stream","status") WHERE status NOT IN ('synced', 'retired');--> statement-breakpoint
CREATE INDEX "records_waits_for" ON "slotsync"."records" USING btree ("waits_for") WHERE waits_for IS NOT NULL;--> statement-breakpoint
CREATE INDEX "reservation_events_key" ON "slotsync"."reservation_events" USING btree ("key");--> statement-breakpoint
CREATE INDEX "reservation_events_run" ON "slotsync"."reservation_events" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "reservation_events_at" ON "slotsync"."reservation_events" USING btree ("at");--> statement-breakpoint
CREATE INDEX "reservations_verdict" ON "slotsync"."reservations" USING btree ("verdict");--> statement-breakpoint
CREATE INDEX "reservations_destination_id" ON "slotsync"."reservations" USING btree ("destination_id");--> statement-breakpoint
CREATE INDEX "reservations_external_id" ON "slotsync"."reservations" USING btree ("external_id");--> statement-breakpoint
CREATE INDEX "runs_unfinished" ON "slotsync"."runs" USING btree ("id") WHERE finished_at IS NULL;--> statement-breakpoint
-- Written by hand from here on: what src/state/schema.ts cannot say.
CREATE VIEW "slotsync"."discrepancies" AS
	SELECT key, external_id, destination_id, verdict, differs, problem, begin_here, end_here, begin_there, end_there, here, there, seen_at, run_id
	FROM slotsync.reservations
	WHERE verdict NOT IN ('agrees', 'agrees_cancelled', 'restored_there', 'not_compared') OR problem IS NOT NULL;
--> statement-breakpoint
-- The organization's quota: N slots in one row, whose lock puts all processes in order. Only the functions of
-- migrations/repeatable/quota.sql write it. Unlogged: a crash empties it, and a limiter without state waits before its first
-- grant. All times are milliseconds of this server's clock.
CREATE UNLOGGED TABLE slotsync.quota_limiters (
  key text PRIMARY KEY,
  epoch double precision NOT NULL,
  seq bigint NOT NULL DEFAULT 0,
  seen_at double precision NOT NULL,
  next_at double precision NOT NULL,
  paused_until double precision NOT NULL DEFAULT 0,
  throttled bigint NOT NULL DEFAULT 0,
  reduced integer NOT NULL DEFAULT 0,
  reduced_at double precision NOT NULL DEFAULT 0,
  calm_since double precision NOT NULL,
  slot_free_at double precision[] NOT NULL DEFAULT '{}',
  slot_seq bigint[] NOT NULL DEFAULT '{}',
  slot_lane text[] NOT NULL DEFAULT '{}',
  arrivals bigint NOT NULL DEFAULT 0,
  waiters jsonb NOT NULL DEFAULT '{}' -- by id: lane, since (number of its arrival), asksAt
) WITH (fillfactor = 10);
