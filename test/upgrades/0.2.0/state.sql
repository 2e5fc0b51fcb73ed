-- A state of slotsync 0.2.0 and its mirror: the schema of its migrations, and the rows that a short story left, played
-- with its own commands. Made by `npm run upgrades:record`; never edited.
CREATE SCHEMA "slotsync";

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

CREATE TABLE "slotsync"."exceptions" (
	"stream" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"since" timestamp with time zone DEFAULT now() NOT NULL,
	"until" timestamp with time zone,
	"reason" text NOT NULL,
	"by" text,
	CONSTRAINT "exceptions_stream_local_key_pk" PRIMARY KEY("stream","local_key")
);

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

CREATE TABLE "slotsync"."history" (
	"at" timestamp with time zone NOT NULL,
	"run_id" integer NOT NULL,
	"kind_id" integer NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"field_values" jsonb
);

CREATE TABLE "slotsync"."history_kinds" (
	"id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."history_kinds_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"stream" text NOT NULL,
	"operation" text NOT NULL,
	"started_by" text NOT NULL,
	"fields" text[] NOT NULL,
	CONSTRAINT "history_kinds_operation" CHECK (operation IN ('create', 'update', 'retire')),
	CONSTRAINT "history_kinds_started_by" CHECK (started_by IN ('schedule', 'command', 'change'))
);

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

CREATE TABLE "slotsync"."object_claims" (
	"external_id" text PRIMARY KEY NOT NULL,
	"claimed_by" text NOT NULL,
	"claimed_until" timestamp with time zone NOT NULL
);

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

CREATE TABLE "slotsync"."removals" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."removals_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"stream" text NOT NULL,
	"key_hash" text NOT NULL,
	"removed_at" timestamp with time zone DEFAULT now() NOT NULL,
	"deleted" jsonb NOT NULL
);

CREATE TABLE "slotsync"."repeatable_migrations" (
	"name" text PRIMARY KEY NOT NULL,
	"checksum" text NOT NULL,
	"applied_at" timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE "slotsync"."request_seconds" (
	"second" timestamp with time zone PRIMARY KEY NOT NULL,
	"requests" integer NOT NULL,
	"throttled" integer DEFAULT 0 NOT NULL
);

CREATE TABLE "slotsync"."reservation_events" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."reservation_events_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"key" text COLLATE "C" NOT NULL,
	"from_verdict" text,
	"to_verdict" text,
	"differs" jsonb,
	"at" timestamp with time zone DEFAULT now() NOT NULL,
	"run_id" bigint
);

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

CREATE TABLE "slotsync"."reservations_watermark" (
	"single_row" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"read_up_to" timestamp with time zone NOT NULL,
	"moved_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "reservations_watermark_one_row" CHECK (single_row)
);

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

CREATE TABLE "slotsync"."sent" (
	"stream" text NOT NULL,
	"operation" text NOT NULL,
	"hour" timestamp with time zone NOT NULL,
	"records" integer NOT NULL,
	CONSTRAINT "sent_stream_operation_hour_pk" PRIMARY KEY("stream","operation","hour"),
	CONSTRAINT "sent_operation" CHECK (operation IN ('create', 'update', 'retire', 'overwrite', 'repair', 'unasked'))
);

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

CREATE TABLE "slotsync"."verifications" (
	"stream" text PRIMARY KEY NOT NULL,
	"verified_at" timestamp with time zone NOT NULL,
	"objects" bigint NOT NULL,
	"run_id" bigint
);

ALTER TABLE "slotsync"."alert_messages" ADD CONSTRAINT "alert_messages_alert_id_alerts_id_fk" FOREIGN KEY ("alert_id") REFERENCES "slotsync"."alerts"("id") ON DELETE cascade ON UPDATE no action;
ALTER TABLE "slotsync"."batches" ADD CONSTRAINT "batches_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "slotsync"."runs"("id") ON DELETE cascade ON UPDATE no action;
CREATE INDEX "actions_at" ON "slotsync"."actions" USING btree ("at");
CREATE INDEX "actions_run" ON "slotsync"."actions" USING btree ("run_id");
CREATE INDEX "alert_messages_alert" ON "slotsync"."alert_messages" USING btree ("alert_id");
CREATE INDEX "alert_messages_due" ON "slotsync"."alert_messages" USING btree ("channel","next_at") WHERE sent_at IS NULL;
CREATE UNIQUE INDEX "alerts_open" ON "slotsync"."alerts" USING btree ("cause") WHERE recovered_at IS NULL;
CREATE INDEX "batches_run" ON "slotsync"."batches" USING btree ("run_id","state","level");
CREATE INDEX "batches_unsent" ON "slotsync"."batches" USING btree ("stream","operation") WHERE state IN ('planned', 'queued');
CREATE INDEX "cancellations_reservation" ON "slotsync"."cancellations" USING btree ("reservation");
CREATE INDEX "cancellations_external_id" ON "slotsync"."cancellations" USING btree ("external_id");
CREATE INDEX "changes_waiting" ON "slotsync"."changes" USING btree ("id") WHERE run_id IS NULL AND after_run IS NULL;
CREATE INDEX "changes_taken" ON "slotsync"."changes" USING btree ("run_id") WHERE run_id IS NOT NULL;
CREATE INDEX "changes_after" ON "slotsync"."changes" USING btree ("after_run") WHERE after_run IS NOT NULL;
CREATE INDEX "changes_key" ON "slotsync"."changes" USING btree ("stream","local_key","run_id");
CREATE INDEX "drift_external_id" ON "slotsync"."drift" USING btree ("external_id");
CREATE INDEX "drift_events_key" ON "slotsync"."drift_events" USING btree ("stream","local_key");
CREATE INDEX "drift_events_at" ON "slotsync"."drift_events" USING btree ("at");
CREATE INDEX "gates_run" ON "slotsync"."gates" USING btree ("run_id");
CREATE INDEX "history_local_key" ON "slotsync"."history" USING btree ("local_key");
CREATE INDEX "history_at" ON "slotsync"."history" USING brin ("at");
CREATE INDEX "history_values" ON "slotsync"."history" USING btree ("at") WHERE field_values IS NOT NULL;
CREATE INDEX "history_kinds_fields" ON "slotsync"."history_kinds" USING hash ("fields");
CREATE UNIQUE INDEX "links_external_id" ON "slotsync"."links" USING btree ("external_id");
CREATE UNIQUE INDEX "links_destination_id" ON "slotsync"."links" USING btree ("destination_id");
CREATE UNIQUE INDEX "records_external_id" ON "slotsync"."records" USING btree ("external_id");
CREATE INDEX "records_destination_id" ON "slotsync"."records" USING btree ("destination_id");
CREATE INDEX "records_row_external_id" ON "slotsync"."records" USING btree ("row_external_id") WHERE row_external_id IS NOT NULL;
CREATE INDEX "records_unsettled" ON "slotsync"."records" USING btree ("stream","status") WHERE status NOT IN ('synced', 'retired');
CREATE INDEX "records_waits_for" ON "slotsync"."records" USING btree ("waits_for") WHERE waits_for IS NOT NULL;
CREATE INDEX "records_in_doubt" ON "slotsync"."records" USING btree ("stream") WHERE in_doubt;
CREATE INDEX "records_resend" ON "slotsync"."records" USING btree ("stream") WHERE resend IS NOT NULL;
CREATE INDEX "records_check_after" ON "slotsync"."records" USING btree ("check_after") WHERE check_after IS NOT NULL;
CREATE INDEX "records_renamed_to" ON "slotsync"."records" USING btree ("stream","renamed_to") WHERE renamed_to IS NOT NULL;
CREATE INDEX "records_former_key" ON "slotsync"."records" USING btree ("stream","former_key") WHERE former_key IS NOT NULL;
CREATE INDEX "reservation_events_key" ON "slotsync"."reservation_events" USING btree ("key");
CREATE INDEX "reservation_events_run" ON "slotsync"."reservation_events" USING btree ("run_id");
CREATE INDEX "reservation_events_at" ON "slotsync"."reservation_events" USING btree ("at");
CREATE INDEX "reservations_discrepancies" ON "slotsync"."reservations" USING btree ("verdict") WHERE verdict NOT IN ('agrees', 'agrees_cancelled', 'restored_there', 'not_compared') OR problem IS NOT NULL;
CREATE INDEX "reservations_destination_id" ON "slotsync"."reservations" USING btree ("destination_id");
CREATE INDEX "reservations_external_id" ON "slotsync"."reservations" USING btree ("external_id");
CREATE INDEX "runs_unfinished" ON "slotsync"."runs" USING btree ("id") WHERE finished_at IS NULL;
CREATE INDEX "runs_not_succeeded" ON "slotsync"."runs" USING btree ("id") WHERE status <> 'succeeded';
CREATE INDEX "streams_due" ON "slotsync"."streams" USING btree ("due_since") WHERE due_since IS NOT NULL;

-- Written by hand from here on: what src/state/schema.ts cannot say.
CREATE VIEW "slotsync"."discrepancies" AS
	SELECT key, external_id, destination_id, verdict, differs, problem, begin_here, end_here, begin_there, end_there, here, there, seen_at, run_id
	FROM slotsync.reservations
	WHERE verdict NOT IN ('agrees', 'agrees_cancelled', 'restored_there', 'not_compared') OR problem IS NOT NULL;

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

-- Nobody reads or writes these tables: src/state/locks.ts locks them.
CREATE TABLE slotsync.lock_run_start ();
CREATE TABLE slotsync.lock_inbox ();
CREATE TABLE slotsync.lock_polling ();
CREATE TABLE slotsync.lock_alerts ();
CREATE TABLE slotsync.lock_reconcile ();
CREATE TABLE slotsync.lock_verify ();

-- Locks between the processes of slotsync (src/state/locks.ts). Applied as a whole whenever this file has changed, as
-- quota.sql is.

-- Takes a lock until the transaction ends; false: another session has it, and had it for a second where it is waited for. The
-- mode excludes itself and nothing that only reads, and taking it writes nothing.
CREATE OR REPLACE FUNCTION slotsync.take_lock(lock text, waits boolean) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
BEGIN
  EXECUTE format('LOCK TABLE slotsync.%I IN SHARE UPDATE EXCLUSIVE MODE', 'lock_' || lock)
    || CASE WHEN waits THEN '' ELSE ' NOWAIT' END;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END
$$;

-- The functions of the organization's quota: the same algorithm as the script in
-- src/destination/quota/redis-store.ts. To change one, change the other. The rules come as an argument
-- (src/destination/quota/quota-rules.ts). All times are milliseconds of this server's clock.
--
-- Applied as a whole whenever this file has changed. Each statement must be safe to run again: CREATE OR REPLACE, and
-- DROP FUNCTION IF EXISTS before it where the arguments or the result of a function change.

CREATE OR REPLACE FUNCTION slotsync.quota_clock() RETURNS double precision
LANGUAGE sql VOLATILE AS $$
  SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::double precision
$$;

-- The limiter's state as of now (seen_at): recovered from 429 answers, its slots complete.
CREATE OR REPLACE FUNCTION slotsync.quota_refresh(state slotsync.quota_limiters, rules jsonb) RETURNS slotsync.quota_limiters
LANGUAGE plpgsql AS $$
DECLARE
  now_ms double precision := slotsync.quota_clock();
  back double precision := state.seen_at - now_ms;
  calm double precision;
  missing integer;
BEGIN
  IF back > 0 THEN -- the clock jumped back: no time may be further ahead than it was
    state.next_at := state.next_at - back;
    state.paused_until := state.paused_until - back;
    state.reduced_at := state.reduced_at - back;
    state.calm_since := state.calm_since - back;
    state.slot_free_at := ARRAY(SELECT s.f - back FROM unnest(state.slot_free_at) WITH ORDINALITY AS s(f, i) ORDER BY s.i);
    state.waiters := '{}';
  END IF;
  state.seen_at := now_ms;
  calm := floor((now_ms - state.calm_since) / (rules->>'recoverEveryMs')::double precision);
  IF calm > 0 THEN
    state.reduced := greatest(0, state.reduced - calm);
    state.calm_since := state.calm_since + calm * (rules->>'recoverEveryMs')::double precision;
  END IF;
  missing := (rules->>'rate')::integer - cardinality(state.slot_free_at);
  IF missing > 0 THEN
    state.slot_free_at := state.slot_free_at || array_fill(0::double precision, ARRAY[missing]);
    state.slot_seq := state.slot_seq || array_fill(0::bigint, ARRAY[missing]);
    state.slot_lane := state.slot_lane || array_fill(''::text, ARRAY[missing]);
  END IF;
  RETURN state;
END
$$;

-- Writes the state of a limiter that is locked, and returns it as it is written.
CREATE OR REPLACE FUNCTION slotsync.quota_keep(state slotsync.quota_limiters) RETURNS slotsync.quota_limiters
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  UPDATE slotsync.quota_limiters q SET
    changes = state.changes + 1, seq = state.seq, seen_at = state.seen_at, next_at = state.next_at,
    paused_until = state.paused_until, throttled = state.throttled, reduced = state.reduced,
    reduced_at = state.reduced_at, calm_since = state.calm_since, slot_free_at = state.slot_free_at,
    slot_seq = state.slot_seq, slot_lane = state.slot_lane, arrivals = state.arrivals, waiters = state.waiters
  WHERE q.key = state.key AND q.generation = state.generation
  RETURNING q.* INTO STRICT state;
  RETURN state;
END
$$;

-- Locks the limiter and returns its state as of now; null where there is none. Former versions of its row stay while any
-- session holds a snapshot, 200 000 in an hour. They are not read, because the index gives the newest generation first;
-- the settings of the function rule out every other plan, which may be the cheaper one at the moment it is made.
CREATE OR REPLACE FUNCTION slotsync.quota_find(limiter text, rules jsonb) RETURNS slotsync.quota_limiters
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  state slotsync.quota_limiters;
  seen_at double precision;
BEGIN
  SELECT q.* INTO state FROM slotsync.quota_limiters q WHERE q.key = limiter
    ORDER BY q.generation DESC LIMIT 1 FOR UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  seen_at := state.seen_at;
  state := slotsync.quota_refresh(state, rules);
  IF state.seen_at < seen_at THEN -- the clock jumped back: kept, or the next caller would shift the times again
    state := slotsync.quota_keep(state);
  END IF;
  RETURN state;
END
$$;

-- The same; creates the limiter, with the boot guard, where there is none.
CREATE OR REPLACE FUNCTION slotsync.quota_lock(limiter text, rules jsonb) RETURNS slotsync.quota_limiters
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters;
  now_ms double precision;
BEGIN
  LOOP
    state := slotsync.quota_find(limiter, rules);
    EXIT WHEN state.key IS NOT NULL;
    now_ms := slotsync.quota_clock();
    INSERT INTO slotsync.quota_limiters (key, epoch, seen_at, next_at, calm_since)
    VALUES (limiter, now_ms, now_ms, now_ms + (rules->>'bootGuardMs')::double precision + (rules->>'aheadMs')::double precision, now_ms)
    ON CONFLICT DO NOTHING;
  END LOOP;
  RETURN state;
END
$$;

-- The place of a waiter's grant from now on: 1 when no waiter before it will ask in time for a grant at `due`.
CREATE OR REPLACE FUNCTION slotsync.quota_place(state slotsync.quota_limiters, me text, due double precision, rules jsonb)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  every integer := (rules->>'anyLaneEvery')::integer;
  to_any_lane integer := every - state.seq % every;
  next_up text;
  place integer;
  oldest integer;
BEGIN
  WITH waiting AS (
    SELECT w.id, w.since, w.asks_at, row_number() OVER (ORDER BY w.rank, w.since)::integer AS i
    FROM (
      SELECT e.key AS id, (e.value->>'since')::bigint AS since, (e.value->>'asksAt')::double precision AS asks_at,
        (SELECT l.i FROM jsonb_array_elements_text(rules->'lanes') WITH ORDINALITY AS l(lane, i)
          WHERE l.lane = e.value->>'lane') AS rank -- a lane that only a newer version knows comes last
      FROM jsonb_each(state.waiters) e
    ) w
    WHERE w.id = me OR w.asks_at + (rules->>'lateMs')::double precision >= state.seen_at
  )
  SELECT
    (SELECT w.i FROM waiting w WHERE w.id = me),
    -- Of those left at the grant that ignores lanes.
    (SELECT w.i FROM waiting w WHERE w.i >= to_any_lane ORDER BY w.since LIMIT 1),
    (SELECT w.id FROM waiting w WHERE w.id = me OR w.asks_at <= due
      ORDER BY CASE WHEN to_any_lane = 1 THEN w.since ELSE w.i END LIMIT 1)
  INTO place, oldest, next_up;
  IF next_up = me THEN
    RETURN 1;
  ELSIF place = oldest THEN
    RETURN to_any_lane;
  ELSIF to_any_lane <= place AND place < oldest THEN
    place := place + 1;
  END IF;
  RETURN least(place, to_any_lane + every);
END
$$;

-- Registers the waiter where it is not, and sets when it is to ask. Returns the slot that is free first, when it can be
-- used, and the waiter's place in the queue for it.
CREATE OR REPLACE FUNCTION slotsync.quota_enqueue(INOUT state slotsync.quota_limiters, waiter text, lane text, rules jsonb,
  OUT slot integer, OUT at double precision, OUT place integer)
LANGUAGE plpgsql AS $$
DECLARE
  allowed integer := greatest(1, (rules->>'rate')::integer - state.reduced);
  frees double precision[];
  turn double precision;
  soonest double precision := 0;
BEGIN
  SELECT array_agg(s.f ORDER BY s.f), (array_agg(s.i ORDER BY s.f, s.i))[1] INTO frees, slot
  FROM unnest(state.slot_free_at) WITH ORDINALITY AS s(f, i);
  -- From then on fewer than the allowed number are not free.
  at := greatest(state.seen_at, state.next_at - (rules->>'aheadMs')::double precision, state.paused_until,
    frees[cardinality(frees) - allowed + 1]);
  IF NOT state.waiters ? waiter THEN
    state.arrivals := state.arrivals + 1;
    state.waiters := state.waiters
      || jsonb_build_object(waiter, jsonb_build_object('lane', lane, 'since', state.arrivals));
  END IF;
  place := slotsync.quota_place(state, waiter, at, rules);
  turn := greatest(at + (place - 1) * (rules->>'paceMs')::double precision,
    frees[least(cardinality(frees), cardinality(frees) - allowed + place)]);
  IF place > 1 THEN
    soonest := (rules->>'yieldMs')::double precision;
  END IF;
  state.waiters := jsonb_set(state.waiters, ARRAY[waiter, 'asksAt'], to_jsonb(greatest(state.seen_at + soonest,
    least(turn - (rules->>'bookAheadMs')::double precision, state.seen_at + (rules->>'pollMs')::double precision))));
END
$$;

-- Grants slots ({token, waitMs}: send in waitMs): as many as are wanted, as if the waiter had asked again after each, until it
-- has to wait. Only one while another one waits, who may be farther away. A waiter that got fewer gets the time to ask again (askMs).
CREATE OR REPLACE FUNCTION slotsync.take_slots(limiter text, waiter text, lane text, lease_ms double precision, wanted integer,
  rules jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters := slotsync.quota_lock(limiter, rules);
  forget_ms double precision := (rules->>'forgetMs')::double precision;
  queued record;
  grants jsonb := '[]';
  answer jsonb;
BEGIN
  WHILE jsonb_array_length(grants) < wanted LOOP
    queued := slotsync.quota_enqueue(state, waiter, lane, rules);
    state := queued.state;
    EXIT WHEN queued.place > 1 OR queued.at - state.seen_at > (rules->>'bookAheadMs')::double precision
      OR grants <> '[]' AND state.waiters - waiter <> '{}';
    state.seq := state.seq + 1;
    state.next_at := greatest(queued.at, state.next_at) + (rules->>'paceMs')::double precision;
    state.slot_free_at[queued.slot] := queued.at + lease_ms + (rules->>'holdMs')::double precision;
    state.slot_seq[queued.slot] := state.seq;
    state.slot_lane[queued.slot] := lane;
    grants := grants || jsonb_build_object('waitMs', queued.at - state.seen_at,
      'token', state.epoch::bigint || '-' || queued.slot || '-' || state.seq);
    state.waiters := state.waiters - waiter;
  END LOOP;
  answer := jsonb_build_object('grants', grants);
  IF state.waiters ? waiter THEN
    answer := answer || jsonb_build_object('askMs',
      (state.waiters->waiter->>'asksAt')::double precision - state.seen_at);
  END IF;
  SELECT coalesce(jsonb_object_agg(w.key, w.value), '{}') INTO state.waiters
  FROM jsonb_each(state.waiters) w WHERE (w.value->>'asksAt')::double precision + forget_ms >= state.seen_at;
  PERFORM slotsync.quota_keep(state);
  RETURN answer;
END
$$;

-- A waiter has left. One that is not known changes nothing.
CREATE OR REPLACE FUNCTION slotsync.withdraw_waiter(limiter text, waiter text, rules jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters := slotsync.quota_find(limiter, rules);
BEGIN
  IF state.waiters ? waiter THEN
    state.waiters := state.waiters - waiter;
    PERFORM slotsync.quota_keep(state);
  END IF;
END
$$;

-- The answer has arrived: the slot is free again after the hold. Any token but its present one changes nothing.
CREATE OR REPLACE FUNCTION slotsync.release_slot(limiter text, token text, rules jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters := slotsync.quota_find(limiter, rules);
  slot integer := split_part(token, '-', 2)::integer;
  until_ms double precision := (rules->>'holdMs')::double precision;
BEGIN
  IF state.key IS NULL THEN
    RETURN; -- nothing to release; the next grant waits for the boot guard
  END IF;
  until_ms := state.seen_at + until_ms;
  IF state.epoch <> split_part(token, '-', 1)::double precision THEN
    -- Sent before the limiter's state was lost: no slot counts it, so every grant waits until its second is over.
    state.next_at := greatest(state.next_at, until_ms + (rules->>'aheadMs')::double precision);
  ELSIF state.slot_seq[slot] = split_part(token, '-', 3)::bigint THEN
    state.slot_seq[slot] := 0;
    state.slot_free_at[slot] := until_ms;
  ELSE
    RETURN;
  END IF;
  PERFORM slotsync.quota_keep(state);
END
$$;

-- A 429: pauses the organization and lowers N. retry_after_ms is null when the answer named none.
CREATE OR REPLACE FUNCTION slotsync.quota_throttled(limiter text, retry_after_ms double precision, rules jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters := slotsync.quota_lock(limiter, rules);
  pause_ms double precision := coalesce(retry_after_ms, (rules->>'pauseDefaultMs')::double precision)
    + (rules->>'pauseExtraMs')::double precision;
BEGIN
  state.throttled := state.throttled + 1;
  state.paused_until := greatest(state.paused_until,
    state.seen_at + least(pause_ms, (rules->>'pauseMaxMs')::double precision));
  state.calm_since := state.paused_until;
  IF state.seen_at - state.reduced_at >= (rules->>'reduceEveryMs')::double precision THEN
    state.reduced := least(state.reduced + 1, (rules->>'rate')::integer - 1);
    state.reduced_at := state.seen_at;
  END IF;
  PERFORM slotsync.quota_keep(state);
END
$$;

-- The quota's use, for people and metrics: changes nothing, waits for no lock.
CREATE OR REPLACE FUNCTION slotsync.quota_usage(limiter text, rules jsonb) RETURNS jsonb
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  state slotsync.quota_limiters;
  now_ms double precision;
  answer jsonb;
BEGIN
  SELECT q.* INTO state FROM slotsync.quota_limiters q WHERE q.key = limiter ORDER BY q.generation DESC LIMIT 1;
  IF FOUND THEN
    state := slotsync.quota_refresh(state, rules);
  END IF;
  now_ms := state.seen_at;
  SELECT jsonb_build_object(
    'rate', (rules->>'rate')::integer,
    'allowed', greatest(1, (rules->>'rate')::integer - coalesce(state.reduced, 0)),
    'cooling', count(*) FILTER (WHERE s.seq = 0),
    'lanes', coalesce((SELECT jsonb_object_agg(l.lane, l.held) FROM (
      SELECT h.lane, count(*) AS held
      FROM unnest(state.slot_free_at, state.slot_seq, state.slot_lane) AS h(f, seq, lane)
      WHERE h.f > now_ms AND h.seq > 0 GROUP BY h.lane) l), '{}'),
    'waiting', coalesce((SELECT jsonb_object_agg(l.lane, l.waiting) FROM (
      SELECT w.value->>'lane' AS lane, count(*) AS waiting FROM jsonb_each(state.waiters) w
      WHERE (w.value->>'asksAt')::double precision + (rules->>'lateMs')::double precision >= now_ms GROUP BY 1) l), '{}'),
    'pausedMs', greatest(0, coalesce(state.paused_until - now_ms, 0)),
    'granted', coalesce(state.seq, 0),
    'throttled', coalesce(state.throttled, 0))
  INTO answer
  FROM unnest(state.slot_free_at, state.slot_seq) AS s(f, seq) WHERE s.f > now_ms;
  RETURN answer;
END
$$;

CREATE TABLE slotsync.lock_migrate ();
CREATE TABLE slotsync.migrations (id serial PRIMARY KEY, hash text NOT NULL, created_at bigint);
INSERT INTO slotsync.actions ("id", "at", "by", "via", "action", "subject", "run_id", "reason") OVERRIDING SYSTEM VALUE VALUES
('1', '2026-11-27 10:18:00.562551+00', 'operator', 'command', 'rename', 'rooms ''R1'' to ''R1-new''', NULL, 'rebuilt'),
('2', '2026-11-27 10:18:02.411144+00', 'operator', 'command', 'except', 'rooms ''R2''', NULL, 'by-hand'),
('3', '2026-11-27 10:18:04.053915+00', 'operator', 'command', 'freeze', 'staff until 2026-11-27 13:18 CET', NULL, 'exams'),
('4', '2026-11-27 10:18:05.374058+00', 'operator', 'command', 'unfreeze', 'staff', NULL, 'over'),
('5', '2026-11-27 10:18:13.877602+00', 'operator', 'command', 'forget', 'staff', NULL, 'asked');
INSERT INTO slotsync.alerts ("id", "cause", "condition", "message", "opened_at", "gone_since", "recovered_at") OVERRIDING SYSTEM VALUE VALUES
('1', 'gate staff retire limit', 'run_held', '{"title": "Run 4 holds 3 deactivations of staff", "details": ["Held since 2026-11-27 11:18 CET. These records are sent only when an operator approves them."], "commands": ["slotsync approve 4 --stream staff --operation retire", "slotsync reject 4 --stream staff --operation retire"]}', '2026-11-27 10:18:29.715832+00', NULL, NULL),
('2', 'bookings', 'needs_person', '{"title": "3 bookings do not agree", "details": ["cancelled_there: 1 booking in the mirror, but cancelled at the service; decide which side is right and correct the other, then: slotsync reconcile", "differs: 1 booking on both sides, with different content; 1 with a fault in the mirror, which the list explains", "missing_there: 1 booking in the mirror, but not at the service; correct the booking at the service (slotsync only reads bookings), then: slotsync reconcile"], "commands": ["slotsync reconcile"]}', '2026-11-27 10:18:29.715832+00', NULL, NULL);
INSERT INTO slotsync.cancellations ("destination_id", "external_id", "reservation", "cancelled_at", "begin", "end", "seen_at", "run_id") OVERRIDING SYSTEM VALUE VALUES
('900001', 'res_2', '500002', '2026-11-27 10:18:21+00', '2026-11-29 10:00:00+00', '2026-11-29 11:00:00+00', '2026-11-27 10:18:24.392516+00', '6');
INSERT INTO slotsync.changes ("id", "stream", "local_key", "requested_at", "run_id", "after_run", "not_before") OVERRIDING SYSTEM VALUE VALUES
('2', 'rooms', 'R6', '2026-11-27 10:18:40.415827+00', NULL, NULL, NULL);
INSERT INTO slotsync.databases ("name", "system_id", "database_oid", "table_oid", "timeline", "wal_position", "seen_at", "restored_at", "restored_why") OVERRIDING SYSTEM VALUE VALUES
('mirror', NULL, (SELECT oid::text FROM pg_database WHERE datname = current_database()), NULL, NULL, NULL, '2026-11-27 10:18:36.139214+00', NULL, NULL),
('state', NULL, (SELECT oid::text FROM pg_database WHERE datname = current_database()), NULL, NULL, NULL, '2026-11-27 10:18:36.117198+00', NULL, NULL);
INSERT INTO slotsync.destination ("single_row", "base_url", "organization_id", "region", "state_id", "bound_at", "quota_place", "quota_address", "answered_at", "answer", "succeeded_at") OVERRIDING SYSTEM VALUE VALUES
('true', 'http://service.example:8377', 'demo', 'EU_EES', '0ceac23b-75dd-470f-9e4c-c46bb07346ef', '2026-11-27 10:17:55.382151+00', 'state', 'the state database', '2026-11-27 10:18:36.608393+00', '200', '2026-11-27 10:18:36.608393+00');
INSERT INTO slotsync.drift ("stream", "local_key", "external_id", "kind", "fields", "seen_at") OVERRIDING SYSTEM VALUE VALUES
('courses', '7', 'course_7', 'kept', '{"course.name": {"here": ["Kurs 7"], "there": ["Edited by hand"]}}', '2026-11-27 10:18:27.802135+00');
INSERT INTO slotsync.drift_events ("id", "stream", "local_key", "external_id", "from_kind", "to_kind", "fields", "at", "run_id") OVERRIDING SYSTEM VALUE VALUES
('1', 'courses', '7', 'course_7', NULL, 'kept', '{"course.name": {"here": ["Kurs 7"], "there": ["Edited by hand"]}}', '2026-11-27 10:18:27.800726+00', '7');
INSERT INTO slotsync.exceptions ("stream", "local_key", "since", "until", "reason", "by") OVERRIDING SYSTEM VALUE VALUES
('rooms', 'R2', '2026-11-27 10:18:02.411144+00', NULL, 'by-hand', 'operator');
INSERT INTO slotsync.freezes ("id", "streams", "except_streams", "begins_at", "ends_at", "reason", "frozen_by", "is_declared") OVERRIDING SYSTEM VALUE VALUES
('1', '{staff}', '{}', '2026-11-27 10:18:04.053915+00', '2026-11-27 10:18:05.374058+00', 'exams', 'operator', 'false');
INSERT INTO slotsync.freshness ("stream", "loaded_at", "older_than", "problem", "message", "holds", "max_hours", "read_at", "synced_load_at") OVERRIDING SYSTEM VALUE VALUES
('courses', '2026-11-27 10:17:48.917+00', NULL, NULL, NULL, 'false', '87600', '2026-11-27 10:18:36.335+00', '2026-11-27 10:17:48.917+00'),
('rooms', '2026-11-27 10:17:48.917+00', NULL, NULL, NULL, 'false', '87600', '2026-11-27 10:18:36.17+00', '2026-11-27 10:17:48.917+00'),
('staff', '2026-11-27 10:17:48.917+00', NULL, NULL, NULL, 'false', '87600', '2026-11-27 10:18:36.241+00', '2026-11-27 10:17:48.917+00');
INSERT INTO slotsync.gates ("stream", "operation", "reason", "since", "run_id", "count", "digest", "facts", "samples", "allowed", "allowed_digest", "approved_at", "approved_by", "approved_run", "expires_at", "rejected_at", "rejected_by", "answer_reason") OVERRIDING SYSTEM VALUE VALUES
('staff', 'retire', 'limit', '2026-11-27 10:18:16.805477+00', '9', '3', '3 5008447266163611736 -1079906066273646235', '{"limit": {"count": 1, "percent": 10}, "accepted": 11}', '[]', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO slotsync.held ("stream", "local_key", "operation", "gate", "reason", "since", "planned_at") OVERRIDING SYSTEM VALUE VALUES
('staff', '10|N', 'retire', 'retire', 'limit', '2026-11-27 10:18:16.805477+00', '2026-11-27 10:18:36.617411+00'),
('staff', '11|N', 'retire', 'retire', 'limit', '2026-11-27 10:18:16.805477+00', '2026-11-27 10:18:36.617411+00'),
('staff', '9|N', 'retire', 'retire', 'limit', '2026-11-27 10:18:16.805477+00', '2026-11-27 10:18:36.617411+00');
INSERT INTO slotsync.history ("at", "run_id", "kind_id", "local_key", "field_values") OVERRIDING SYSTEM VALUE VALUES
('2026-11-27 10:17:57.844074+00', '1', '1', 'R1-new', NULL),
('2026-11-27 10:17:57.844074+00', '1', '1', 'R10', NULL),
('2026-11-27 10:17:57.844074+00', '1', '1', 'R11', NULL),
('2026-11-27 10:17:57.844074+00', '1', '1', 'R12', NULL),
('2026-11-27 10:17:57.844074+00', '1', '1', 'R2', NULL),
('2026-11-27 10:17:57.844074+00', '1', '1', 'R3', NULL),
('2026-11-27 10:17:57.844074+00', '1', '1', 'R4', NULL),
('2026-11-27 10:17:57.844074+00', '1', '1', 'R6', NULL),
('2026-11-27 10:17:57.844074+00', '1', '1', 'R7', NULL),
('2026-11-27 10:17:57.844074+00', '1', '1', 'R8', NULL),
('2026-11-27 10:17:57.844074+00', '1', '1', 'R9', NULL),
('2026-11-27 10:17:57.947582+00', '1', '2', '10|N', NULL),
('2026-11-27 10:17:57.947582+00', '1', '2', '11|N', NULL),
('2026-11-27 10:17:57.947582+00', '1', '2', '1|N', NULL),
('2026-11-27 10:17:57.947582+00', '1', '2', '2|N', NULL),
('2026-11-27 10:17:57.947582+00', '1', '2', '3|N', NULL),
('2026-11-27 10:17:57.947582+00', '1', '2', '4|N', NULL),
('2026-11-27 10:17:57.947582+00', '1', '2', '5|N', NULL),
('2026-11-27 10:17:57.947582+00', '1', '2', '6|N', NULL),
('2026-11-27 10:17:57.947582+00', '1', '2', '7|N', NULL),
('2026-11-27 10:17:57.947582+00', '1', '2', '8|N', NULL),
('2026-11-27 10:17:57.947582+00', '1', '2', '9|N', NULL),
('2026-11-27 10:17:58.063944+00', '1', '3', '1', NULL),
('2026-11-27 10:17:58.063944+00', '1', '3', '10', NULL),
('2026-11-27 10:17:58.063944+00', '1', '3', '11', NULL),
('2026-11-27 10:17:58.063944+00', '1', '3', '12', NULL),
('2026-11-27 10:17:58.063944+00', '1', '3', '2', NULL),
('2026-11-27 10:17:58.063944+00', '1', '3', '3', NULL),
('2026-11-27 10:17:58.063944+00', '1', '3', '4', NULL),
('2026-11-27 10:17:58.063944+00', '1', '3', '6', NULL),
('2026-11-27 10:17:58.063944+00', '1', '3', '7', NULL),
('2026-11-27 10:17:58.063944+00', '1', '3', '8', NULL),
('2026-11-27 10:17:58.063944+00', '1', '3', '9', NULL),
('2026-11-27 10:18:07.907452+00', '2', '4', 'R3', NULL),
('2026-11-27 10:18:08.09299+00', '2', '5', '4', NULL);
INSERT INTO slotsync.history_kinds ("id", "stream", "operation", "started_by", "fields") OVERRIDING SYSTEM VALUE VALUES
('1', 'rooms', 'create', 'command', '{room.name,room.seats}'),
('2', 'staff', 'create', 'command', '{person.name}'),
('3', 'courses', 'create', 'command', '{course.name,course.room}'),
('4', 'rooms', 'update', 'command', '{room.seats}'),
('5', 'courses', 'update', 'command', '{course.name}'),
('6', 'staff', 'retire', 'command', '{active}');
INSERT INTO slotsync.links ("stream", "local_key", "external_id", "destination_id", "assigns_id", "linked_by", "fields", "linked_at") OVERRIDING SYSTEM VALUE VALUES
('rooms', 'R1-new', 'room_R1', '1001', 'false', 'rename', NULL, '2026-11-27 10:18:00.497419+00');
INSERT INTO slotsync.migrations ("id", "hash", "created_at") OVERRIDING SYSTEM VALUE VALUES
('1', 'cfae1f664f84cd318e732eee1c0d9ccd26c6cb267b28ff98615825960719c226', '1795706827133');
INSERT INTO slotsync.object_claims ("external_id", "claimed_by", "claimed_until") OVERRIDING SYSTEM VALUE VALUES
('room_R8', 'a-batch-of-before', '2026-11-27 09:18:40.481759+00');
INSERT INTO slotsync.processes ("id", "command", "host", "pid", "started_at", "seen_at", "stopped_since", "error_code", "error_message", "requests_per_second", "configuration", "fingerprints", "configuration_loaded_at", "configuration_changed_at") OVERRIDING SYSTEM VALUE VALUES
('354bfaf44f8f', 'worker', 'campus-1', '4711', '2026-11-27 10:18:31.549492+00', '2026-11-27 10:18:32.572032+00', NULL, NULL, NULL, '20', '98e8609e330e5cef', '{"rooms": "d0dd1713c0614d75", "staff": "5a10af6958f2ac0c", "courses": "eb9cd1538c2cd20c"}', '2026-11-27 10:18:31.544492+00', NULL);
INSERT INTO slotsync.quota_limiters ("key", "epoch", "seq", "seen_at", "next_at", "paused_until", "throttled", "reduced", "reduced_at", "calm_since", "slot_free_at", "slot_seq", "slot_lane", "arrivals", "waiters", "changes") OVERRIDING SYSTEM VALUE VALUES
('http://service.example:8377 demo', '1795774675641', '45', '1795774716615', '1795774716663', '0', '0', '0', '0', '1795774715641', '{1795774708567,1795774708739,1795774717567,1795774717599,1795774717620,1795774697726,1795774697754,1795774697808,1795774701630,1795774701667,1795774701768,1795774701837,1795774701878,1795774705054,1795774705126,1795774705207,1795774705281,1795774705339,1795774708329,1795774708373}', '{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}', '{verify,verify,incremental,sync,sync,incremental,sync,sync,incremental,sync,sync,sync,sync,incremental,sync,sync,sync,sync,incremental,verify}', '45', '{}', '92');
INSERT INTO slotsync.records ("stream", "local_key", "external_id", "row_external_id", "former_key", "destination_id", "source_hash", "object_hash", "accepted_fields", "status", "refused_hash", "error_code", "error_message", "waits_for", "waits_since", "attempts", "in_doubt", "check_after", "gone_since", "ends_at", "there_until", "first_seen_at", "renamed_to", "claimed_by", "claimed_until", "run_id", "resend", "resend_since", "resend_run", "counted_as", "synced_at", "updated_at") OVERRIDING SYSTEM VALUE VALUES
('courses', '1', 'course_1', NULL, NULL, '1024', '2637656319888900420', 'VFfOdWhqztm1epu2G6RKVt', '16OPzSd-', 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.98274+00', NULL, NULL, NULL, '2', NULL, NULL, NULL, NULL, '2026-11-27 10:17:58.063944+00', '2026-11-27 10:18:08.09299+00'),
('courses', '10', 'course_10', NULL, NULL, '1025', '-2385879056260628511', '4p5f84Y-YIxpZGDpShGABE', 'F_2gp9WU', 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.98274+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:58.063944+00', '2026-11-27 10:17:58.063944+00'),
('courses', '11', 'course_11', NULL, NULL, '1026', '-8262642645444110894', '7CUrGqHXN3VoLVxkSaMhVN', '1DUI1-Nx', 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.98274+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:58.063944+00', '2026-11-27 10:17:58.063944+00'),
('courses', '12', 'course_12', NULL, NULL, '1027', '-5055529570156039828', 'iotBXEeK9hGRG0O3H8S41o', 'fb0dhvht', 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.98274+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:58.063944+00', '2026-11-27 10:17:58.063944+00'),
('courses', '2', 'course_2', NULL, NULL, '1028', '-5062773770806173884', 'nVfLOZRjZxBdAFDYumwQvr', '8nlCkzY9', 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.98274+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:58.063944+00', '2026-11-27 10:17:58.063944+00'),
('courses', '3', 'course_3', NULL, NULL, '1029', '-4380351428065406356', 'TmwfXqkZ8oL4QDrc4Ef7PY', 'xV5hcOxC', 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.98274+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:58.063944+00', '2026-11-27 10:17:58.063944+00'),
('courses', '4', 'course_4', NULL, NULL, '1030', '-4457165394976822343', 'Q5sNzRy9EDJESiJYeBFPdX', 'Ru67y4pQ', 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.98274+00', NULL, NULL, NULL, '2', NULL, NULL, NULL, 'update', '2026-11-27 10:18:08.09299+00', '2026-11-27 10:18:08.09299+00'),
('courses', '5', 'course_5', NULL, NULL, NULL, NULL, NULL, NULL, 'deferred', NULL, 'reference_missing', 'course.room refers to rooms ''R5'', which is not at the service yet', '["rooms","R5"]', '2026-11-27 10:17:58.063944+00', '4', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.98274+00', NULL, NULL, NULL, '9', NULL, NULL, NULL, NULL, NULL, '2026-11-27 10:18:36.858981+00'),
('courses', '6', 'course_6', NULL, NULL, '1031', '-607212298984261757', 'AWWWkkfnVGYf5dufqNvX7B', '2U9cu3kP', 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.98274+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:58.063944+00', '2026-11-27 10:17:58.063944+00'),
('courses', '7', 'course_7', NULL, NULL, '1032', '5730342992620909447', 's1YZcCOc6bqdTNOURBpmdH', 'VRomhNmo', 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.98274+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:58.063944+00', '2026-11-27 10:17:58.063944+00'),
('courses', '8', 'course_8', NULL, NULL, '1033', '8364488760243412379', 'zZME01P6ZJAveeX_s6VFc-', '-O7rAfzK', 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.98274+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:58.063944+00', '2026-11-27 10:17:58.063944+00'),
('courses', '9', 'course_9', NULL, NULL, '1034', '312653376940164800', '0WlO7bC3dnHlFE70DfSSAi', 'bwu0AmOT', 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.98274+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:58.063944+00', '2026-11-27 10:17:58.063944+00'),
('rooms', 'R1-new', 'room_R1', NULL, NULL, '1001', '-7635105030584651300', '-ARVgpWbn--8dTCdvTIPfu', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:18:00.497419+00', NULL, NULL, NULL, '2', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.844074+00', '2026-11-27 10:18:07.907452+00'),
('rooms', 'R10', 'room_R10', NULL, NULL, '1002', '277256906389805482', 'Ym9HRbjoJUpZDb5ED2ooMA', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.65474+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.844074+00', '2026-11-27 10:17:57.844074+00'),
('rooms', 'R11', 'room_R11', NULL, NULL, '1003', '6430972108061751190', 'BNisHVc1OlbQIZVQ8eoHmC', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.65474+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.844074+00', '2026-11-27 10:17:57.844074+00'),
('rooms', 'R12', 'room_R12', NULL, NULL, '1004', '2370283718825963906', '2LAgiWy13iE4Jzo0f--gk1', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.65474+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.844074+00', '2026-11-27 10:17:57.844074+00'),
('rooms', 'R2', 'room_R2', NULL, NULL, '1005', '-2109930676880517423', 'AK6qvPAqwBv0e-OBxJOO0E', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.65474+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.844074+00', '2026-11-27 10:17:57.844074+00'),
('rooms', 'R3', 'room_R3', NULL, NULL, '1006', '-3110706105811456018', 'eiN5MB2ZVCRbnkVMqCqtsP', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.65474+00', NULL, NULL, NULL, '2', NULL, NULL, NULL, 'update', '2026-11-27 10:18:07.907452+00', '2026-11-27 10:18:07.907452+00'),
('rooms', 'R4', 'room_R4', NULL, NULL, '1007', '994575055420175683', 'rYXuehrwFhlT31kLm5bidY', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.65474+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.844074+00', '2026-11-27 10:17:57.844074+00'),
('rooms', 'R5', 'room_R5', NULL, NULL, NULL, NULL, NULL, NULL, 'dead', '-1138536020199364882', 'refused_400', 'the room is not licensed', NULL, NULL, '1', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.65474+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.844074+00'),
('rooms', 'R6', 'room_R6', NULL, NULL, '1008', '-995438041144597090', 'Ls-YZOhuI5cz2tG1tLF8Hb', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.65474+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.844074+00', '2026-11-27 10:17:57.844074+00'),
('rooms', 'R7', 'room_R7', NULL, NULL, '1009', '3648014115191406787', 'vNkJxo0kelTebaMLtiVakg', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.65474+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.844074+00', '2026-11-27 10:17:57.844074+00'),
('rooms', 'R8', 'room_R8', NULL, NULL, '1010', '1035672958143268221', 'XfciGLqSvgQJdM3YUcQwyE', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.65474+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.844074+00', '2026-11-27 10:17:57.844074+00'),
('rooms', 'R9', 'room_R9', NULL, NULL, '1011', '7008653212416742816', '8RmNUEhtSgET05AQ6t0Tjp', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.65474+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.844074+00', '2026-11-27 10:17:57.844074+00'),
('staff', '10|N', 'person_10_N', NULL, NULL, '1012', '237246832214180689', 'nRxVHqgD0eyGs309TUsU5E', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, '2026-11-27 10:18:16.567694+00', NULL, '2026-11-27 10:18:10.591653+00', '2026-11-27 10:17:57.646564+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.947582+00', '2026-11-27 10:17:57.947582+00'),
('staff', '11|N', 'person_11_N', NULL, NULL, '1013', '2237713212873927261', 'bku8ratYmT3lSKHY1qf90X', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, '2026-11-27 10:18:16.567694+00', NULL, '2026-11-27 10:18:10.591653+00', '2026-11-27 10:17:57.646564+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.947582+00', '2026-11-27 10:17:57.947582+00'),
('staff', '1|N', 'person_1_N', NULL, NULL, '1015', '-7278597668465359208', 'fTIpBZLtWV040uUxTnuJJP', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.646564+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.947582+00', '2026-11-27 10:17:57.947582+00'),
('staff', '2|N', 'person_2_N', NULL, NULL, '1016', '2852273953547279220', 'OdazQXqohSGii6IMKK7QhP', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.646564+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.947582+00', '2026-11-27 10:17:57.947582+00'),
('staff', '3|N', 'person_3_N', NULL, NULL, '1017', '-8029882370647659779', 'xRcG3gn4YKlSbNGxkyATEj', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.646564+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.947582+00', '2026-11-27 10:17:57.947582+00'),
('staff', '4|N', 'person_4_N', NULL, NULL, '1018', '2680999734671669387', 'KCgQORkLkP5_gb0Zd_iPFw', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.646564+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.947582+00', '2026-11-27 10:17:57.947582+00'),
('staff', '5|N', 'person_5_N', NULL, NULL, '1019', '-129387207189785454', '-fWhyEweWY9RKlRQ21Ry7G', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.646564+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.947582+00', '2026-11-27 10:17:57.947582+00'),
('staff', '6|N', 'person_6_N', NULL, NULL, '1020', '3519389491017088366', 'K8s5kD70wvw0x93D3Kfh-T', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.646564+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.947582+00', '2026-11-27 10:17:57.947582+00'),
('staff', '7|N', 'person_7_N', NULL, NULL, '1021', '-1282514946087861158', '4oG9nX5A64q-bQgoq1uG_o', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.646564+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.947582+00', '2026-11-27 10:17:57.947582+00'),
('staff', '8|N', 'person_8_N', NULL, NULL, '1022', '8417091225451594062', '9fzUyOBGflIhnEbJ_YiXh-', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.646564+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.947582+00', '2026-11-27 10:17:57.947582+00'),
('staff', '9|N', 'person_9_N', NULL, NULL, '1023', '7065966417548017592', 'nSbkq-pENMlSBJOkrFr_OL', NULL, 'synced', NULL, NULL, NULL, NULL, NULL, '0', 'false', NULL, '2026-11-27 10:18:16.567694+00', NULL, '2026-11-27 10:18:10.591653+00', '2026-11-27 10:17:57.646564+00', NULL, NULL, NULL, '1', NULL, NULL, NULL, NULL, '2026-11-27 10:17:57.947582+00', '2026-11-27 10:17:57.947582+00');
INSERT INTO slotsync.removals ("id", "stream", "key_hash", "removed_at", "deleted") OVERRIDING SYSTEM VALUE VALUES
('1', 'staff', 'b53eba29c8dba57ff987f6a154962b686e6fdbd7f3d11d57354fd8bcf9888dfb', '2026-11-27 10:18:13.877602+00', '{"batches": 2, "history": 2, "records": 1}');
INSERT INTO slotsync.repeatable_migrations ("name", "checksum", "applied_at") OVERRIDING SYSTEM VALUE VALUES
('locks.sql', '597ca153e3b8eec241ed7a0824941fe61b53a15078b6a5f8eb813323b8e82d05', '2026-11-27 10:17:50.476778+00'),
('quota.sql', 'b8e6b8647ea3acf488dc2e9dfdd2f9f7da1481fc07b52d64c4a9a52085aefde9', '2026-11-27 10:17:50.476778+00');
INSERT INTO slotsync.request_seconds ("second", "requests", "throttled") OVERRIDING SYSTEM VALUE VALUES
('2026-11-27 10:17:57+00', '10', '0'),
('2026-11-27 10:17:58+00', '2', '0'),
('2026-11-27 10:18:07+00', '5', '0'),
('2026-11-27 10:18:08+00', '2', '0'),
('2026-11-27 10:18:10+00', '6', '0'),
('2026-11-27 10:18:16+00', '3', '0'),
('2026-11-27 10:18:20+00', '5', '0'),
('2026-11-27 10:18:24+00', '5', '0'),
('2026-11-27 10:18:27+00', '4', '0'),
('2026-11-27 10:18:36+00', '3', '0');
INSERT INTO slotsync.reservation_events ("id", "key", "from_verdict", "to_verdict", "differs", "at", "run_id") OVERRIDING SYSTEM VALUE VALUES
('1', '1', NULL, 'differs', '{"objects": {"here": ["rooms ''R1''"], "there": ["room_R1"]}}', '2026-11-27 10:18:20.895464+00', '5'),
('2', '4', NULL, 'missing_there', NULL, '2026-11-27 10:18:20.895464+00', '5'),
('3', '2', 'agrees', 'cancelled_there', NULL, '2026-11-27 10:18:24.392516+00', '6');
INSERT INTO slotsync.reservations ("key", "external_id", "destination_id", "verdict", "differs", "problem", "begin_here", "end_here", "begin_there", "end_there", "here", "there", "seen_at", "run_id") OVERRIDING SYSTEM VALUE VALUES
('1', 'res_1', '500001', 'differs', '{"objects": {"here": ["rooms ''R1''"], "there": ["room_R1"]}}', 'object_unknown', '2026-11-28 10:00:00+00', '2026-11-28 11:00:00+00', '2026-11-28 10:00:00+00', '2026-11-28 11:00:00+00', '{"fields": [], "objects": ["rooms ''R1''"], "isCancelled": false}', '{"fields": [], "status": ["B_COMPLETE", "C_CONFIRMED"], "objects": [{"typeId": "room", "objectId": "room_R1"}]}', '2026-11-27 10:18:24.392516+00', '6'),
('2', 'res_2', '500002', 'cancelled_there', NULL, NULL, '2026-11-29 10:00:00+00', '2026-11-29 11:00:00+00', NULL, NULL, '{"fields": [], "objects": ["room_R2"], "isCancelled": false}', NULL, '2026-11-27 10:18:24.392516+00', '6'),
('3', 'res_3', '500003', 'agrees', NULL, NULL, '2026-11-30 10:00:00+00', '2026-11-30 11:00:00+00', '2026-11-30 10:00:00+00', '2026-11-30 11:00:00+00', '{"fields": [], "objects": ["room_R3"], "isCancelled": false}', '{"fields": [], "status": ["B_COMPLETE", "C_CONFIRMED"], "objects": [{"typeId": "room", "objectId": "room_R3"}]}', '2026-11-27 10:18:24.392516+00', '6'),
('4', 'res_4', NULL, 'missing_there', NULL, NULL, '2026-12-01 10:00:00+00', '2026-12-01 11:00:00+00', NULL, NULL, '{"fields": [], "objects": ["room_R4"], "isCancelled": false}', NULL, '2026-11-27 10:18:24.392516+00', '6');
INSERT INTO slotsync.reservations_watermark ("single_row", "read_up_to", "moved_at") OVERRIDING SYSTEM VALUE VALUES
('true', '2026-11-27 10:13:23+00', '2026-11-27 10:18:24.481389+00');
INSERT INTO slotsync.runs ("id", "kind", "lane", "started_by", "streams", "status", "plan", "counts", "accepted", "holds", "range", "paused_at", "error_code", "error_message", "requested_at", "started_at", "finished_at", "planner", "configuration", "fingerprints") OVERRIDING SYSTEM VALUE VALUES
('1', 'sync', 'sync', 'command', '{rooms,staff,courses}', 'partial', '{"rooms": {"dead": 0, "moved": 0, "retry": 0, "create": 12, "retire": 0, "update": 0, "inBatches": 12, "unchanged": 0}, "staff": {"dead": 0, "moved": 0, "retry": 0, "create": 12, "retire": 0, "update": 0, "inBatches": 12, "unchanged": 0}, "courses": {"dead": 0, "moved": 0, "retry": 0, "create": 12, "retire": 0, "update": 0, "inBatches": 12, "unchanged": 0}}', '{"rooms": {"dead": 1, "failed": 0, "synced": 11, "deferred": 0, "unchanged": 0}, "staff": {"dead": 0, "failed": 0, "synced": 12, "deferred": 0, "unchanged": 0}, "courses": {"dead": 0, "failed": 0, "synced": 11, "deferred": 1, "unchanged": 0}}', '{"rooms": {"create": 11, "retire": 0, "update": 0}, "staff": {"create": 12, "retire": 0, "update": 0}, "courses": {"create": 11, "retire": 0, "update": 0}}', '{}', NULL, NULL, NULL, NULL, '2026-11-27 10:17:55.449198+00', '2026-11-27 10:17:57.483656+00', '2026-11-27 10:17:58.098184+00', '54395e8232bc 154852c8-36b0-4473-89fd-51acc1370ca7', '98e8609e330e5cef', '{"rooms": "d0dd1713c0614d75", "staff": "5a10af6958f2ac0c", "courses": "eb9cd1538c2cd20c"}'),
('2', 'sync', 'sync', 'command', '{rooms,staff,courses}', 'succeeded', '{"rooms": {"dead": 1, "moved": 0, "retry": 1, "create": 0, "retire": 0, "update": 1, "excepted": 1, "inBatches": 2, "unchanged": 8}, "staff": {"dead": 0, "moved": 0, "retry": 0, "create": 0, "retire": 0, "update": 0, "inBatches": 0, "unchanged": 12}, "courses": {"dead": 0, "moved": 0, "retry": 2, "create": 0, "retire": 0, "update": 1, "unasked": 1, "inBatches": 3, "unchanged": 9}}', '{"rooms": {"dead": 0, "failed": 0, "synced": 1, "deferred": 0, "unchanged": 1}, "courses": {"dead": 0, "failed": 0, "synced": 1, "deferred": 1, "unchanged": 1}}', '{"rooms": {"create": 0, "retire": 0, "update": 1}, "courses": {"create": 0, "retire": 0, "update": 1}}', '{}', NULL, NULL, NULL, NULL, '2026-11-27 10:18:07.30516+00', '2026-11-27 10:18:07.66303+00', '2026-11-27 10:18:08.126685+00', '3d1d8a444d68 7567af91-bdab-41b3-876c-0662f10a14cc', '98e8609e330e5cef', '{"rooms": "d0dd1713c0614d75", "staff": "5a10af6958f2ac0c", "courses": "eb9cd1538c2cd20c"}'),
('3', 'sync', 'sync', 'command', '{staff}', 'succeeded', '{"staff": {"dead": 0, "moved": 0, "retry": 0, "create": 0, "retire": 1, "update": 0, "inBatches": 1, "unchanged": 11}}', '{"staff": {"dead": 0, "failed": 0, "synced": 1, "deferred": 0, "unchanged": 0}}', '{"staff": {"create": 0, "retire": 1, "update": 0}}', '{}', NULL, NULL, NULL, NULL, '2026-11-27 10:18:10.281448+00', '2026-11-27 10:18:10.591653+00', '2026-11-27 10:18:10.894534+00', '6eddd6898940 ed037d51-8bfd-4b18-bc8f-6b8eb55a3e54', '98e8609e330e5cef', '{"staff": "5a10af6958f2ac0c"}'),
('4', 'sync', 'sync', 'command', '{rooms,staff,courses}', 'held', '{"rooms": {"dead": 1, "moved": 0, "retry": 0, "create": 0, "retire": 0, "update": 0, "excepted": 1, "inBatches": 0, "unchanged": 10}, "staff": {"dead": 0, "moved": 0, "retry": 0, "create": 0, "retire": 3, "update": 0, "inBatches": 0, "unchanged": 8}, "courses": {"dead": 0, "moved": 0, "retry": 1, "create": 0, "retire": 0, "update": 0, "unasked": 1, "inBatches": 1, "unchanged": 11}}', '{"courses": {"dead": 0, "failed": 0, "synced": 0, "deferred": 1, "unchanged": 0}}', '{}', '{"staff": {"retire": {"count": 3, "facts": {"limit": {"count": 1, "percent": 10}, "accepted": 11}, "reason": "limit", "operation": "retire"}}}', NULL, NULL, NULL, NULL, '2026-11-27 10:18:16.431411+00', '2026-11-27 10:18:16.805477+00', '2026-11-27 10:18:17.061771+00', '354344ba1898 be72617a-bf6f-46cb-b549-f5f7d60bc0a2', '98e8609e330e5cef', '{"rooms": "d0dd1713c0614d75", "staff": "5a10af6958f2ac0c", "courses": "eb9cd1538c2cd20c"}'),
('5', 'reconcile', 'sync', 'command', '{}', 'succeeded', '{}', '{}', '{}', '{}', '{"to": "2027-05-26T10:18:21.000Z", "from": "2026-11-20T10:18:20.000Z"}', NULL, NULL, NULL, '2026-11-27 10:18:20.493343+00', '2026-11-27 10:18:20.493343+00', '2026-11-27 10:18:20.955157+00', NULL, NULL, NULL),
('6', 'reconcile', 'sync', 'command', '{}', 'succeeded', '{}', '{}', '{}', '{}', '{"to": "2027-05-26T10:18:24.000Z", "from": "2026-11-20T10:18:23.000Z"}', NULL, NULL, NULL, '2026-11-27 10:18:23.853253+00', '2026-11-27 10:18:23.853253+00', '2026-11-27 10:18:24.507272+00', NULL, NULL, NULL),
('7', 'verify', 'verify', 'command', '{rooms,staff,courses}', 'succeeded', '{}', '{}', '{}', '{}', NULL, NULL, NULL, NULL, '2026-11-27 10:18:27.224908+00', '2026-11-27 10:18:27.224908+00', '2026-11-27 10:18:27.833007+00', NULL, NULL, NULL),
('8', 'incremental', 'incremental', 'change', '{rooms}', 'succeeded', '{"rooms": {"dead": 0, "moved": 0, "retry": 0, "create": 0, "retire": 0, "update": 0, "inBatches": 0, "unchanged": 1}}', '{}', '{}', '{}', NULL, NULL, NULL, NULL, '2026-11-27 10:18:32.506076+00', '2026-11-27 10:18:32.602043+00', '2026-11-27 10:18:32.627146+00', '354bfaf44f8f cbeb40fb-251f-431d-9085-430448f3cecc', '98e8609e330e5cef', '{"rooms": "d0dd1713c0614d75"}'),
('9', 'sync', 'sync', 'command', '{rooms,staff,courses}', 'held', '{"rooms": {"dead": 1, "moved": 0, "retry": 0, "create": 0, "retire": 0, "update": 0, "excepted": 1, "inBatches": 0, "unchanged": 10}, "staff": {"dead": 0, "moved": 0, "retry": 0, "create": 0, "retire": 3, "update": 0, "inBatches": 0, "unchanged": 8}, "courses": {"dead": 0, "moved": 0, "retry": 1, "create": 0, "retire": 0, "update": 0, "unasked": 1, "inBatches": 1, "unchanged": 11}}', '{"courses": {"dead": 0, "failed": 0, "synced": 0, "deferred": 1, "unchanged": 0}}', '{}', '{"staff": {"retire": {"count": 3, "facts": {"limit": {"count": 1, "percent": 10}, "accepted": 11}, "reason": "limit", "operation": "retire"}}}', NULL, NULL, NULL, NULL, '2026-11-27 10:18:36.092931+00', '2026-11-27 10:18:36.617411+00', '2026-11-27 10:18:36.955361+00', '21bc848c04cd 1633bf73-73dc-48b7-8d56-8352bd619955', '98e8609e330e5cef', '{"rooms": "d0dd1713c0614d75", "staff": "5a10af6958f2ac0c", "courses": "eb9cd1538c2cd20c"}');
INSERT INTO slotsync.schedules ("name", "pattern", "timezone", "streams", "wait_minutes", "registered_at", "last_due", "last_reconciled") OVERRIDING SYSTEM VALUE VALUES
('nightly', '0 2 * * *', 'Europe/Stockholm', '{rooms,staff,courses}', '0', '2026-11-27 10:18:32.243312+00', NULL, NULL);
INSERT INTO slotsync.sent ("stream", "operation", "hour", "records") OVERRIDING SYSTEM VALUE VALUES
('courses', 'unasked', '2026-11-27 10:00:00+00', '3'),
('courses', 'update', '2026-11-27 10:00:00+00', '1'),
('rooms', 'update', '2026-11-27 10:00:00+00', '1'),
('staff', 'retire', '2026-11-27 10:00:00+00', '1');
INSERT INTO slotsync.streams ("stream", "fingerprint", "planned_at", "synced_at", "due_since", "due_reason", "attempted_at", "problem", "cursor", "cursor_key", "cursor_column", "cursor_type", "cursor_moved_at", "mirror_passed_at", "answered", "refused", "refused_code", "refused_message", "refusals_allowed") OVERRIDING SYSTEM VALUE VALUES
('courses', 'eb9cd1538c2cd20c', '2026-11-27 10:18:36.617411+00', '2026-11-27 10:18:36.956456+00', NULL, NULL, '2026-11-27 10:18:36.092931+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '0', '0', NULL, NULL, '0'),
('rooms', 'd0dd1713c0614d75', '2026-11-27 10:18:36.617411+00', '2026-11-27 10:18:36.95643+00', NULL, NULL, '2026-11-27 10:18:36.092931+00', NULL, '2026-11-27 10:18:02.47244+00', 'R3', 'updated_at', 'timestamp with time zone', '2026-11-27 10:18:32.364047+00', NULL, '0', '0', NULL, NULL, '0'),
('staff', '5a10af6958f2ac0c', '2026-11-27 10:18:36.617411+00', '2026-11-27 10:18:10.895501+00', NULL, NULL, '2026-11-27 10:18:36.092931+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '0', '0', NULL, NULL, '0');
INSERT INTO slotsync.verifications ("stream", "verified_at", "objects", "run_id") OVERRIDING SYSTEM VALUE VALUES
('courses', '2026-11-27 10:18:27.224908+00', '11', '7'),
('rooms', '2026-11-27 10:18:27.224908+00', '10', '7'),
('staff', '2026-11-27 10:18:27.224908+00', '8', '7');
INSERT INTO slotsync.alert_messages ("id", "alert_id", "channel", "event", "created_at", "attempts", "next_at", "sent_at", "missing", "error") OVERRIDING SYSTEM VALUE VALUES
('1', '1', 'webhook', 'opened', '2026-11-27 10:18:29.715832+00', '1', '2026-11-27 10:19:29.814699+00', NULL, NULL, 'the receiver cannot be reached (ECONNREFUSED)'),
('2', '2', 'webhook', 'opened', '2026-11-27 10:18:29.715832+00', '1', '2026-11-27 10:19:29.814699+00', NULL, NULL, 'the receiver cannot be reached (ECONNREFUSED)');
INSERT INTO slotsync.batches ("id", "run_id", "stream", "level", "operation", "exempt", "keys", "state", "counts", "accepted", "error_code", "error_message", "created_at", "finished_at") OVERRIDING SYSTEM VALUE VALUES
('1', '1', 'rooms', '0', 'create', 'true', '{R1,R10,R11,R12,R2,R3,R4,R5,R6,R7,R8,R9}', 'done', '{"dead": 1, "failed": 0, "synced": 11, "deferred": 0, "unchanged": 0}', '{"create": 11, "retire": 0, "update": 0}', NULL, NULL, '2026-11-27 10:17:57.483656+00', '2026-11-27 10:17:57.844074+00'),
('11', '9', 'courses', '1', 'create', 'false', '{5}', 'done', '{"dead": 0, "failed": 0, "synced": 0, "deferred": 1, "unchanged": 0}', NULL, NULL, NULL, '2026-11-27 10:18:36.617411+00', '2026-11-27 10:18:36.858981+00'),
('2', '1', 'staff', '0', 'create', 'true', '{10|N,11|N,1|N,2|N,3|N,4|N,5|N,6|N,7|N,8|N,9|N}', 'done', '{"dead": 0, "failed": 0, "synced": 12, "deferred": 0, "unchanged": 0}', '{"create": 12, "retire": 0, "update": 0}', NULL, NULL, '2026-11-27 10:17:57.483656+00', '2026-11-27 10:17:57.947582+00'),
('3', '1', 'courses', '1', 'create', 'true', '{1,10,11,12,2,3,4,5,6,7,8,9}', 'done', '{"dead": 0, "failed": 0, "synced": 11, "deferred": 1, "unchanged": 0}', '{"create": 11, "retire": 0, "update": 0}', NULL, NULL, '2026-11-27 10:17:57.483656+00', '2026-11-27 10:17:58.063944+00'),
('4', '2', 'rooms', '0', 'update', 'false', '{R1-new,R3}', 'done', '{"dead": 0, "failed": 0, "synced": 1, "deferred": 0, "unchanged": 1}', '{"create": 0, "retire": 0, "update": 1}', NULL, NULL, '2026-11-27 10:18:07.66303+00', '2026-11-27 10:18:07.907452+00'),
('5', '2', 'courses', '1', 'create', 'false', '{5}', 'done', '{"dead": 0, "failed": 0, "synced": 0, "deferred": 1, "unchanged": 0}', NULL, NULL, NULL, '2026-11-27 10:18:07.66303+00', '2026-11-27 10:18:08.042913+00'),
('6', '2', 'courses', '1', 'update', 'false', '{1,4}', 'done', '{"dead": 0, "failed": 0, "synced": 1, "deferred": 0, "unchanged": 1}', '{"create": 0, "retire": 0, "update": 1}', NULL, NULL, '2026-11-27 10:18:07.66303+00', '2026-11-27 10:18:08.09299+00'),
('7', '3', 'staff', '1', 'retire', 'false', '{}', 'done', '{"dead": 0, "failed": 0, "synced": 1, "deferred": 0, "unchanged": 0}', '{"create": 0, "retire": 1, "update": 0}', NULL, NULL, '2026-11-27 10:18:10.398082+00', '2026-11-27 10:18:10.868311+00'),
('9', '4', 'courses', '1', 'create', 'false', '{5}', 'done', '{"dead": 0, "failed": 0, "synced": 0, "deferred": 1, "unchanged": 0}', NULL, NULL, NULL, '2026-11-27 10:18:16.805477+00', '2026-11-27 10:18:17.012054+00');
SELECT setval('slotsync.actions_id_seq', 5);
SELECT setval('slotsync.alert_messages_id_seq', 2);
SELECT setval('slotsync.alerts_id_seq', 2);
SELECT setval('slotsync.batches_id_seq', 11);
SELECT setval('slotsync.changes_id_seq', 2);
SELECT setval('slotsync.drift_events_id_seq', 1);
SELECT setval('slotsync.freezes_id_seq', 1);
SELECT setval('slotsync.history_kinds_id_seq', 6);
SELECT setval('slotsync.migrations_id_seq', 1);
SELECT setval('slotsync.removals_id_seq', 1);
SELECT setval('slotsync.reservation_events_id_seq', 3);
SELECT setval('slotsync.runs_id_seq', 9);

CREATE SCHEMA campus;
CREATE TABLE campus.rooms (code text PRIMARY KEY, name text, seats integer, updated_at timestamptz NOT NULL);
CREATE TABLE campus.courses (id integer PRIMARY KEY, name text, room text);
CREATE TABLE campus.staff (id integer, site text, name text, PRIMARY KEY (id, site));
CREATE TABLE campus.loads (finished_at timestamptz);
CREATE TABLE campus.bookings (id integer PRIMARY KEY, room text, starts_at timestamptz, ends_at timestamptz);
INSERT INTO campus.bookings ("id", "room", "starts_at", "ends_at") OVERRIDING SYSTEM VALUE VALUES
('1', 'R1', '2026-11-28 10:00:00+00', '2026-11-28 11:00:00+00'),
('2', 'R2', '2026-11-29 10:00:00+00', '2026-11-29 11:00:00+00'),
('3', 'R3', '2026-11-30 10:00:00+00', '2026-11-30 11:00:00+00'),
('4', 'R4', '2026-12-01 10:00:00+00', '2026-12-01 11:00:00+00');
INSERT INTO campus.courses ("id", "name", "room") OVERRIDING SYSTEM VALUE VALUES
('1', 'Kurs 1', 'R1-new'),
('10', 'Kurs 10', 'R10'),
('11', 'Kurs 11', 'R11'),
('12', 'Kurs 12', 'R12'),
('2', 'Kurs 2', 'R2'),
('3', 'Kurs 3', 'R3'),
('4', 'Kurs fyra', 'R4'),
('5', 'Kurs 5', 'R5'),
('6', 'Kurs 6', 'R6'),
('7', 'Kurs 7', 'R7'),
('8', 'Kurs 8', 'R8'),
('9', 'Kurs 9', 'R9');
INSERT INTO campus.loads ("finished_at") OVERRIDING SYSTEM VALUE VALUES
('2026-11-27 10:17:48.917568+00');
INSERT INTO campus.rooms ("code", "name", "seats", "updated_at") OVERRIDING SYSTEM VALUE VALUES
('R1-new', 'Sal 1', '10', '2026-11-01 08:00:00+00'),
('R10', 'Sal 10', '100', '2026-11-01 08:00:00+00'),
('R11', 'Sal 11', '110', '2026-11-01 08:00:00+00'),
('R12', 'Sal 12', '120', '2026-11-01 08:00:00+00'),
('R2', 'Sal 2', '21', '2026-11-27 10:18:02.470062+00'),
('R3', 'Sal 3', '31', '2026-11-27 10:18:02.47244+00'),
('R4', 'Sal 4', '40', '2026-11-01 08:00:00+00'),
('R5', 'Sal 5', '50', '2026-11-01 08:00:00+00'),
('R6', 'Sal 6', '60', '2026-11-01 08:00:00+00'),
('R7', 'Sal 7', '70', '2026-11-01 08:00:00+00'),
('R8', 'Sal 8', '80', '2026-11-01 08:00:00+00'),
('R9', 'Sal 9', '90', '2026-11-01 08:00:00+00');
INSERT INTO campus.staff ("id", "site", "name") OVERRIDING SYSTEM VALUE VALUES
('1', 'N', 'Åsa 1'),
('2', 'N', 'Åsa 2'),
('3', 'N', 'Åsa 3'),
('4', 'N', 'Åsa 4'),
('5', 'N', 'Åsa 5'),
('6', 'N', 'Åsa 6'),
('7', 'N', 'Åsa 7'),
('8', 'N', 'Åsa 8');
