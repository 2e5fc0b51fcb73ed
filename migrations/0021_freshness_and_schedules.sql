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
ALTER TABLE "slotsync"."alerts" DROP CONSTRAINT "alerts_condition";--> statement-breakpoint
ALTER TABLE "slotsync"."schedules" ADD COLUMN "streams" text[] DEFAULT '{}' NOT NULL;--> statement-breakpoint
ALTER TABLE "slotsync"."schedules" ADD COLUMN "wait_minutes" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "slotsync"."alerts" ADD CONSTRAINT "alerts_condition" CHECK (condition IN ('run_failed', 'run_partial', 'run_held', 'sending_stopped', 'no_success', 'drift', 'inbox', 'state_restored', 'source_stale', 'needs_person', 'nightly_run'));