CREATE SCHEMA IF NOT EXISTS "slotsync";
--> statement-breakpoint
CREATE TABLE "slotsync"."batches" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."batches_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"run_id" bigint NOT NULL,
	"stream" text NOT NULL,
	"level" smallint NOT NULL,
	"retires" boolean DEFAULT false NOT NULL,
	"keys" text[] NOT NULL,
	"state" text NOT NULL,
	"counts" jsonb,
	"error_code" text,
	"error_message" text,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"finished_at" timestamp with time zone,
	CONSTRAINT "batches_state" CHECK (state IN ('planned', 'queued', 'held', 'done', 'failed', 'cancelled'))
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
	"stream" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"requested_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "changes_stream_local_key_pk" PRIMARY KEY("stream","local_key")
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
	"claimed_by" text,
	"claimed_until" timestamp with time zone,
	"run_id" bigint,
	"synced_at" timestamp with time zone,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "records_stream_local_key_pk" PRIMARY KEY("stream","local_key"),
	CONSTRAINT "records_status" CHECK (status IN ('pending', 'synced', 'retired', 'deferred', 'failed', 'dead'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."reservations" (
	"key" text COLLATE "C" PRIMARY KEY NOT NULL,
	"external_id" text,
	"destination_id" bigint,
	"verdict" text NOT NULL,
	"differs" jsonb,
	"begin_here" timestamp with time zone,
	"end_here" timestamp with time zone,
	"begin_there" timestamp with time zone,
	"end_there" timestamp with time zone,
	"seen_at" timestamp with time zone NOT NULL,
	"run_id" bigint
);
--> statement-breakpoint
CREATE TABLE "slotsync"."runs" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."runs_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"kind" text NOT NULL,
	"lane" text NOT NULL,
	"streams" text[] NOT NULL,
	"status" text NOT NULL,
	"plan" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"counts" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"holds" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"error_code" text,
	"error_message" text,
	"requested_at" timestamp with time zone DEFAULT now() NOT NULL,
	"started_at" timestamp with time zone,
	"finished_at" timestamp with time zone,
	CONSTRAINT "runs_kind" CHECK (kind IN ('incremental', 'sync', 'backfill', 'reconcile', 'verify')),
	CONSTRAINT "runs_status" CHECK (status IN ('planning', 'running', 'held', 'succeeded', 'partial', 'failed', 'cancelled'))
);
--> statement-breakpoint
ALTER TABLE "slotsync"."batches" ADD CONSTRAINT "batches_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "slotsync"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "batches_run" ON "slotsync"."batches" USING btree ("run_id","state","level");--> statement-breakpoint
CREATE INDEX "records_external_id" ON "slotsync"."records" USING btree ("external_id");--> statement-breakpoint
CREATE INDEX "records_unsettled" ON "slotsync"."records" USING btree ("stream","status") WHERE status NOT IN ('synced', 'retired');--> statement-breakpoint
CREATE INDEX "records_waits_for" ON "slotsync"."records" USING btree ("waits_for") WHERE waits_for IS NOT NULL;--> statement-breakpoint
CREATE INDEX "reservations_verdict" ON "slotsync"."reservations" USING btree ("verdict");--> statement-breakpoint
CREATE INDEX "runs_unfinished" ON "slotsync"."runs" USING btree ("id") WHERE finished_at IS NULL;