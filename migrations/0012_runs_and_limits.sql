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
	"passed" text[] DEFAULT '{}' NOT NULL,
	CONSTRAINT "databases_name" CHECK (name IN ('state', 'mirror'))
);
--> statement-breakpoint
ALTER TABLE "slotsync"."alerts" DROP CONSTRAINT "alerts_condition";--> statement-breakpoint
ALTER TABLE "slotsync"."drift" DROP CONSTRAINT "drift_kind";--> statement-breakpoint
DROP INDEX "slotsync"."approvals_open";--> statement-breakpoint
ALTER TABLE "slotsync"."approvals" ADD COLUMN "for_run" bigint;--> statement-breakpoint
ALTER TABLE "slotsync"."approvals" ADD COLUMN "keys_digest" text;--> statement-breakpoint
ALTER TABLE "slotsync"."approvals" ADD COLUMN "exactly" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "slotsync"."approvals" ADD COLUMN "same_keys" boolean;--> statement-breakpoint
ALTER TABLE "slotsync"."batches" ADD COLUMN "exempt" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "slotsync"."processes" ADD COLUMN "configuration" text;--> statement-breakpoint
ALTER TABLE "slotsync"."processes" ADD COLUMN "fingerprints" jsonb;--> statement-breakpoint
ALTER TABLE "slotsync"."processes" ADD COLUMN "configuration_loaded_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "slotsync"."processes" ADD COLUMN "configuration_changed_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "slotsync"."runs" ADD COLUMN "configuration" text;--> statement-breakpoint
ALTER TABLE "slotsync"."runs" ADD COLUMN "fingerprints" jsonb;--> statement-breakpoint
CREATE INDEX "approvals_run" ON "slotsync"."approvals" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "approvals_for_run" ON "slotsync"."approvals" USING btree ("for_run");--> statement-breakpoint
CREATE INDEX "batches_limited" ON "slotsync"."batches" USING btree ("stream","operation","created_at") WHERE operation IS NOT NULL;--> statement-breakpoint
ALTER TABLE "slotsync"."alerts" ADD CONSTRAINT "alerts_condition" CHECK (condition IN ('run_failed', 'run_partial', 'run_held', 'sending_stopped', 'no_success', 'drift', 'inbox', 'state_restored'));--> statement-breakpoint
ALTER TABLE "slotsync"."drift" ADD CONSTRAINT "drift_kind" CHECK (kind IN ('changed', 'missing', 'inactive', 'wrong_type', 'extra', 'stored_otherwise'));