CREATE SCHEMA "slotsync";
--> statement-breakpoint
CREATE TABLE "slotsync"."actions" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."actions_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"at" timestamp with time zone DEFAULT now() NOT NULL,
	"by" text,
	"via" text NOT NULL,
	"action" text NOT NULL,
	"subject" text,
	"run_id" bigint,
	"reason" text,
	CONSTRAINT "actions_action" CHECK (action IN ('approve', 'reject', 'pause', 'resume', 'cancel', 'retry', 'rename', 'link', 'unlink', 'forget', 'repair', 'freeze', 'unfreeze', 'triggers', 'rename_stream', 'take', 'except', 'except_end', 'probe')),
	CONSTRAINT "actions_via" CHECK (via IN ('command', 'page'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."alert_messages" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."alert_messages_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"alert_id" bigint NOT NULL,
	"channel" text NOT NULL,
	"event" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"next_at" timestamp with time zone DEFAULT now() NOT NULL,
	"sent_at" timestamp with time zone,
	"missing" text[],
	"error" text,
	CONSTRAINT "alert_messages_event" CHECK (event IN ('opened', 'recovered'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."alerts" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."alerts_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"cause" text NOT NULL,
	"condition" text NOT NULL,
	"message" jsonb NOT NULL,
	"opened_at" timestamp with time zone DEFAULT now() NOT NULL,
	"gone_since" timestamp with time zone,
	"recovered_at" timestamp with time zone,
	CONSTRAINT "alerts_condition" CHECK (condition IN ('run_failed', 'run_partial', 'run_held', 'sending_stopped', 'no_success', 'drift', 'inbox', 'state_restored', 'source_stale', 'needs_person', 'nightly_run'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."batches" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."batches_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"run_id" bigint NOT NULL,
	"stream" text NOT NULL,
	"level" smallint NOT NULL,
	"operation" text,
	"exempt" boolean DEFAULT false NOT NULL,
	"keys" text[] NOT NULL,
	"state" text NOT NULL,
	"counts" jsonb,
	"accepted" jsonb,
	"error_code" text,
	"error_message" text,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"finished_at" timestamp with time zone,
	CONSTRAINT "batches_state" CHECK (state IN ('planned', 'queued', 'done', 'failed', 'cancelled')),
	CONSTRAINT "batches_operation" CHECK (operation IN ('create', 'update', 'retire', 'overwrite', 'repair'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."cancellations" (
	"destination_id" text PRIMARY KEY NOT NULL,
	"external_id" text,
	"reservation" text,
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
	"after_run" bigint,
	"not_before" timestamp with time zone,
	CONSTRAINT "changes_size" CHECK (octet_length(stream) <= 1024 AND octet_length(local_key) <= 1024),
	CONSTRAINT "changes_times" CHECK (isfinite(requested_at) AND isfinite(not_before))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."databases" (
	"name" text PRIMARY KEY NOT NULL,
	"system_id" text,
	"database_oid" text NOT NULL,
	"table_oid" text,
	"timeline" integer,
	"wal_position" bigint,
	"seen_at" timestamp with time zone DEFAULT now() NOT NULL,
	"restored_at" timestamp with time zone,
	"restored_why" text,
	CONSTRAINT "databases_name" CHECK (name IN ('state', 'mirror'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."destination" (
	"single_row" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"base_url" text NOT NULL,
	"organization_id" text NOT NULL,
	"region" text NOT NULL,
	"state_id" uuid DEFAULT gen_random_uuid() NOT NULL,
	"bound_at" timestamp with time zone DEFAULT now() NOT NULL,
	"quota_place" text,
	"quota_address" text,
	"answered_at" timestamp with time zone,
	"answer" text,
	"succeeded_at" timestamp with time zone,
	CONSTRAINT "destination_one_row" CHECK (single_row)
);
--> statement-breakpoint
CREATE TABLE "slotsync"."drift" (
	"stream" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"external_id" text,
	"kind" text NOT NULL,
	"fields" jsonb,
	"seen_at" timestamp with time zone NOT NULL,
	CONSTRAINT "drift_stream_local_key_pk" PRIMARY KEY("stream","local_key"),
	CONSTRAINT "drift_kind" CHECK (kind IN ('changed', 'missing', 'inactive', 'wrong_type', 'extra', 'stored_otherwise', 'kept'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."drift_events" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."drift_events_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"stream" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"external_id" text,
	"from_kind" text,
	"to_kind" text,
	"fields" jsonb,
	"at" timestamp with time zone DEFAULT now() NOT NULL,
	"run_id" bigint
);
--> statement-breakpoint
CREATE TABLE "slotsync"."exceptions" (
	"stream" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"since" timestamp with time zone DEFAULT now() NOT NULL,
	"until" timestamp with time zone,
	"reason" text NOT NULL,
	"by" text,
	CONSTRAINT "exceptions_stream_local_key_pk" PRIMARY KEY("stream","local_key")
);
--> statement-breakpoint
CREATE TABLE "slotsync"."freezes" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."freezes_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"streams" text[],
	"except_streams" text[] DEFAULT '{}' NOT NULL,
	"begins_at" timestamp with time zone DEFAULT now() NOT NULL,
	"ends_at" timestamp with time zone NOT NULL,
	"reason" text NOT NULL,
	"frozen_by" text,
	"is_declared" boolean DEFAULT false NOT NULL
);
--> statement-breakpoint
CREATE TABLE "slotsync"."freshness" (
	"stream" text PRIMARY KEY NOT NULL,
	"loaded_at" timestamp with time zone,
	"older_than" timestamp with time zone,
	"problem" text,
	"message" text,
	"holds" boolean DEFAULT false NOT NULL,
	"max_hours" real NOT NULL,
	"read_at" timestamp with time zone NOT NULL,
	"synced_load_at" timestamp with time zone,
	CONSTRAINT "freshness_problem" CHECK (problem IN ('too_old', 'older', 'future', 'unreadable'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."gates" (
	"stream" text NOT NULL,
	"operation" text NOT NULL,
	"reason" text NOT NULL,
	"since" timestamp with time zone DEFAULT now() NOT NULL,
	"run_id" bigint NOT NULL,
	"count" integer NOT NULL,
	"digest" text NOT NULL,
	"facts" jsonb NOT NULL,
	"samples" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"allowed" integer,
	"allowed_digest" text,
	"approved_at" timestamp with time zone,
	"approved_by" text,
	"approved_run" bigint,
	"expires_at" timestamp with time zone,
	"rejected_at" timestamp with time zone,
	"rejected_by" text,
	"answer_reason" text,
	CONSTRAINT "gates_stream_operation_reason_pk" PRIMARY KEY("stream","operation","reason"),
	CONSTRAINT "gates_operation" CHECK (operation IN ('create', 'update', 'retire', 'overwrite', 'repair', '*')),
	CONSTRAINT "gates_reason" CHECK (reason IN ('limit', 'empty_source', 'stale', 'restored', 'owned_by_former_stream', 'refused', 'frozen', 'forbidden'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."held" (
	"stream" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"operation" text,
	"gate" text NOT NULL,
	"reason" text NOT NULL,
	"since" timestamp with time zone DEFAULT now() NOT NULL,
	"planned_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "held_stream_local_key_pk" PRIMARY KEY("stream","local_key"),
	CONSTRAINT "held_operation" CHECK (operation IN ('create', 'update', 'retire', 'overwrite', 'repair'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."history" (
	"at" timestamp with time zone NOT NULL,
	"run_id" integer NOT NULL,
	"kind_id" integer NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"field_values" jsonb
);
--> statement-breakpoint
CREATE TABLE "slotsync"."history_kinds" (
	"id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."history_kinds_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"stream" text NOT NULL,
	"operation" text NOT NULL,
	"started_by" text NOT NULL,
	"fields" text[] NOT NULL,
	CONSTRAINT "history_kinds_operation" CHECK (operation IN ('create', 'update', 'retire')),
	CONSTRAINT "history_kinds_started_by" CHECK (started_by IN ('schedule', 'command', 'change'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."links" (
	"stream" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"external_id" text NOT NULL,
	"destination_id" text,
	"assigns_id" boolean DEFAULT false NOT NULL,
	"linked_by" text NOT NULL,
	"fields" text[],
	"linked_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "links_stream_local_key_pk" PRIMARY KEY("stream","local_key"),
	CONSTRAINT "links_linked_by" CHECK (linked_by IN ('match', 'rename'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."object_claims" (
	"external_id" text PRIMARY KEY NOT NULL,
	"claimed_by" text NOT NULL,
	"claimed_until" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "slotsync"."processes" (
	"id" text PRIMARY KEY NOT NULL,
	"command" text NOT NULL,
	"host" text NOT NULL,
	"pid" integer NOT NULL,
	"started_at" timestamp with time zone DEFAULT now() NOT NULL,
	"seen_at" timestamp with time zone DEFAULT now() NOT NULL,
	"stopped_since" timestamp with time zone,
	"error_code" text,
	"error_message" text,
	"requests_per_second" integer,
	"configuration" text,
	"fingerprints" jsonb,
	"configuration_loaded_at" timestamp with time zone,
	"configuration_changed_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "slotsync"."records" (
	"stream" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"external_id" text,
	"row_external_id" text,
	"former_key" text COLLATE "C",
	"destination_id" text,
	"source_hash" bigint,
	"object_hash" text,
	"accepted_fields" text,
	"status" text NOT NULL,
	"refused_hash" bigint,
	"error_code" text,
	"error_message" text,
	"waits_for" text,
	"waits_since" timestamp with time zone,
	"attempts" integer DEFAULT 0 NOT NULL,
	"in_doubt" boolean DEFAULT false NOT NULL,
	"check_after" timestamp with time zone,
	"gone_since" timestamp with time zone,
	"ends_at" timestamp with time zone,
	"there_until" timestamp with time zone,
	"first_seen_at" timestamp with time zone DEFAULT now() NOT NULL,
	"renamed_to" text COLLATE "C",
	"claimed_by" text,
	"claimed_until" timestamp with time zone,
	"run_id" bigint,
	"resend" text,
	"resend_since" timestamp with time zone,
	"resend_run" bigint,
	"counted_as" text,
	"synced_at" timestamp with time zone,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "records_stream_local_key_pk" PRIMARY KEY("stream","local_key"),
	CONSTRAINT "records_status" CHECK (status IN ('pending', 'synced', 'retired', 'deferred', 'failed', 'dead')),
	CONSTRAINT "records_resend" CHECK (resend IN ('forced', 'repair', 'retry')),
	CONSTRAINT "records_counted_as" CHECK (counted_as IN ('create', 'update', 'retire', 'overwrite', 'repair'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."removals" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."removals_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"stream" text NOT NULL,
	"key_hash" text NOT NULL,
	"removed_at" timestamp with time zone DEFAULT now() NOT NULL,
	"deleted" jsonb NOT NULL
);
--> statement-breakpoint
CREATE TABLE "slotsync"."repeatable_migrations" (
	"name" text PRIMARY KEY NOT NULL,
	"checksum" text NOT NULL,
	"applied_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "slotsync"."request_seconds" (
	"second" timestamp with time zone PRIMARY KEY NOT NULL,
	"requests" integer NOT NULL,
	"throttled" integer DEFAULT 0 NOT NULL
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
	"destination_id" text,
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
	"accepted" jsonb,
	"holds" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"range" jsonb,
	"paused_at" timestamp with time zone,
	"error_code" text,
	"error_message" text,
	"requested_at" timestamp with time zone DEFAULT now() NOT NULL,
	"started_at" timestamp with time zone,
	"finished_at" timestamp with time zone,
	"planner" text,
	"configuration" text,
	"fingerprints" jsonb,
	CONSTRAINT "runs_kind" CHECK (kind IN ('incremental', 'sync', 'backfill', 'reconcile', 'verify', 'repair')),
	CONSTRAINT "runs_started_by" CHECK (started_by IN ('schedule', 'command', 'change')),
	CONSTRAINT "runs_status" CHECK (status IN ('planning', 'running', 'held', 'succeeded', 'partial', 'failed', 'cancelled'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."schedules" (
	"name" text PRIMARY KEY NOT NULL,
	"pattern" text NOT NULL,
	"timezone" text NOT NULL,
	"streams" text[] DEFAULT '{}' NOT NULL,
	"wait_minutes" integer DEFAULT 0 NOT NULL,
	"registered_at" timestamp with time zone DEFAULT now() NOT NULL,
	"last_due" timestamp with time zone,
	"last_reconciled" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "slotsync"."sent" (
	"stream" text NOT NULL,
	"operation" text NOT NULL,
	"hour" timestamp with time zone NOT NULL,
	"records" integer NOT NULL,
	CONSTRAINT "sent_stream_operation_hour_pk" PRIMARY KEY("stream","operation","hour"),
	CONSTRAINT "sent_operation" CHECK (operation IN ('create', 'update', 'retire', 'overwrite', 'repair', 'unasked'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."streams" (
	"stream" text PRIMARY KEY NOT NULL,
	"fingerprint" text,
	"planned_at" timestamp with time zone,
	"synced_at" timestamp with time zone,
	"due_since" timestamp with time zone,
	"due_reason" text,
	"attempted_at" timestamp with time zone,
	"problem" jsonb,
	"cursor" text,
	"cursor_key" text COLLATE "C",
	"cursor_column" text,
	"cursor_type" text,
	"cursor_moved_at" timestamp with time zone,
	"mirror_passed_at" timestamp with time zone,
	"answered" integer DEFAULT 0 NOT NULL,
	"refused" integer DEFAULT 0 NOT NULL,
	"refused_code" text,
	"refused_message" text,
	"refusals_allowed" integer DEFAULT 0 NOT NULL,
	CONSTRAINT "streams_due_reason" CHECK (due_reason IN ('new', 'schedule', 'approved', 'frozen', 'fresh_load', 'verified', 'limited', 'busy', 'rows_gone', 'cancelled', 'failed'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."verifications" (
	"stream" text PRIMARY KEY NOT NULL,
	"verified_at" timestamp with time zone NOT NULL,
	"objects" bigint NOT NULL,
	"run_id" bigint
);
--> statement-breakpoint
ALTER TABLE "slotsync"."alert_messages" ADD CONSTRAINT "alert_messages_alert_id_alerts_id_fk" FOREIGN KEY ("alert_id") REFERENCES "slotsync"."alerts"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "slotsync"."batches" ADD CONSTRAINT "batches_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "slotsync"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "actions_at" ON "slotsync"."actions" USING btree ("at");--> statement-breakpoint
CREATE INDEX "actions_run" ON "slotsync"."actions" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "alert_messages_alert" ON "slotsync"."alert_messages" USING btree ("alert_id");--> statement-breakpoint
CREATE INDEX "alert_messages_due" ON "slotsync"."alert_messages" USING btree ("channel","next_at") WHERE sent_at IS NULL;--> statement-breakpoint
CREATE UNIQUE INDEX "alerts_open" ON "slotsync"."alerts" USING btree ("cause") WHERE recovered_at IS NULL;--> statement-breakpoint
CREATE INDEX "batches_run" ON "slotsync"."batches" USING btree ("run_id","state","level");--> statement-breakpoint
CREATE INDEX "batches_unsent" ON "slotsync"."batches" USING btree ("stream","operation") WHERE state IN ('planned', 'queued');--> statement-breakpoint
CREATE INDEX "cancellations_reservation" ON "slotsync"."cancellations" USING btree ("reservation");--> statement-breakpoint
CREATE INDEX "cancellations_external_id" ON "slotsync"."cancellations" USING btree ("external_id");--> statement-breakpoint
CREATE INDEX "changes_waiting" ON "slotsync"."changes" USING btree ("id") WHERE run_id IS NULL AND after_run IS NULL;--> statement-breakpoint
CREATE INDEX "changes_taken" ON "slotsync"."changes" USING btree ("run_id") WHERE run_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX "changes_after" ON "slotsync"."changes" USING btree ("after_run") WHERE after_run IS NOT NULL;--> statement-breakpoint
CREATE INDEX "changes_key" ON "slotsync"."changes" USING btree ("stream","local_key","run_id");--> statement-breakpoint
CREATE INDEX "drift_external_id" ON "slotsync"."drift" USING btree ("external_id");--> statement-breakpoint
CREATE INDEX "drift_events_key" ON "slotsync"."drift_events" USING btree ("stream","local_key");--> statement-breakpoint
CREATE INDEX "drift_events_at" ON "slotsync"."drift_events" USING btree ("at");--> statement-breakpoint
CREATE INDEX "gates_run" ON "slotsync"."gates" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "history_local_key" ON "slotsync"."history" USING btree ("local_key");--> statement-breakpoint
CREATE INDEX "history_at" ON "slotsync"."history" USING brin ("at");--> statement-breakpoint
CREATE INDEX "history_values" ON "slotsync"."history" USING btree ("at") WHERE field_values IS NOT NULL;--> statement-breakpoint
CREATE INDEX "history_kinds_fields" ON "slotsync"."history_kinds" USING hash ("fields");--> statement-breakpoint
CREATE UNIQUE INDEX "links_external_id" ON "slotsync"."links" USING btree ("external_id");--> statement-breakpoint
CREATE UNIQUE INDEX "links_destination_id" ON "slotsync"."links" USING btree ("destination_id");--> statement-breakpoint
CREATE UNIQUE INDEX "records_external_id" ON "slotsync"."records" USING btree ("external_id");--> statement-breakpoint
CREATE INDEX "records_destination_id" ON "slotsync"."records" USING btree ("destination_id");--> statement-breakpoint
CREATE INDEX "records_row_external_id" ON "slotsync"."records" USING btree ("row_external_id") WHERE row_external_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX "records_unsettled" ON "slotsync"."records" USING btree ("stream","status") WHERE status NOT IN ('synced', 'retired');--> statement-breakpoint
CREATE INDEX "records_waits_for" ON "slotsync"."records" USING btree ("waits_for") WHERE waits_for IS NOT NULL;--> statement-breakpoint
CREATE INDEX "records_in_doubt" ON "slotsync"."records" USING btree ("stream") WHERE in_doubt;--> statement-breakpoint
CREATE INDEX "records_resend" ON "slotsync"."records" USING btree ("stream") WHERE resend IS NOT NULL;--> statement-breakpoint
CREATE INDEX "records_check_after" ON "slotsync"."records" USING btree ("check_after") WHERE check_after IS NOT NULL;--> statement-breakpoint
CREATE INDEX "records_renamed_to" ON "slotsync"."records" USING btree ("stream","renamed_to") WHERE renamed_to IS NOT NULL;--> statement-breakpoint
CREATE INDEX "records_former_key" ON "slotsync"."records" USING btree ("stream","former_key") WHERE former_key IS NOT NULL;--> statement-breakpoint
CREATE INDEX "reservation_events_key" ON "slotsync"."reservation_events" USING btree ("key");--> statement-breakpoint
CREATE INDEX "reservation_events_run" ON "slotsync"."reservation_events" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "reservation_events_at" ON "slotsync"."reservation_events" USING btree ("at");--> statement-breakpoint
CREATE INDEX "reservations_discrepancies" ON "slotsync"."reservations" USING btree ("verdict") WHERE verdict NOT IN ('agrees', 'agrees_cancelled', 'restored_there', 'not_compared') OR problem IS NOT NULL;--> statement-breakpoint
CREATE INDEX "reservations_destination_id" ON "slotsync"."reservations" USING btree ("destination_id");--> statement-breakpoint
CREATE INDEX "reservations_external_id" ON "slotsync"."reservations" USING btree ("external_id");--> statement-breakpoint
CREATE INDEX "runs_unfinished" ON "slotsync"."runs" USING btree ("id") WHERE finished_at IS NULL;--> statement-breakpoint
CREATE INDEX "runs_not_succeeded" ON "slotsync"."runs" USING btree ("id") WHERE status <> 'succeeded';--> statement-breakpoint
CREATE INDEX "streams_due" ON "slotsync"."streams" USING btree ("due_since") WHERE due_since IS NOT NULL;
--> statement-breakpoint
-- Written by hand from here on: what src/state/schema.ts cannot say.
CREATE VIEW "slotsync"."discrepancies" AS
	SELECT key, external_id, destination_id, verdict, differs, problem, begin_here, end_here, begin_there, end_there, here, there, seen_at, run_id
	FROM slotsync.reservations
	WHERE verdict NOT IN ('agrees', 'agrees_cancelled', 'restored_there', 'not_compared') OR problem IS NOT NULL;
--> statement-breakpoint
-- The organization's quota: N slots in one row, whose lock puts all processes in order. Only the functions of
-- migrations/repeatable/quota.sql write it. Unlogged: a crash empties it, and a limiter without state waits before its first
-- grant. All times are milliseconds of this server's clock.
--
-- The row is updated at every step of the quota, and while some session holds a snapshot none of its former versions can be
-- removed. Each 64 changes are a generation with a place of its own in the index, so that the versions of former generations
-- are not read. There is still one row for each limiter.
CREATE UNLOGGED TABLE slotsync.quota_limiters (
  key text,
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
  waiters jsonb NOT NULL DEFAULT '{}', -- by id: lane, since (number of its arrival), asksAt
  changes bigint NOT NULL DEFAULT 0,
  generation bigint NOT NULL GENERATED ALWAYS AS (changes / 64) STORED,
  PRIMARY KEY (key, generation)
) WITH (fillfactor = 10);
--> statement-breakpoint
-- Nobody reads or writes these tables: src/state/locks.ts locks them.
CREATE TABLE slotsync.lock_run_start ();--> statement-breakpoint
CREATE TABLE slotsync.lock_inbox ();--> statement-breakpoint
CREATE TABLE slotsync.lock_polling ();--> statement-breakpoint
CREATE TABLE slotsync.lock_alerts ();--> statement-breakpoint
CREATE TABLE slotsync.lock_reconcile ();--> statement-breakpoint
CREATE TABLE slotsync.lock_verify ();
