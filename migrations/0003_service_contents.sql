CREATE TABLE "slotsync"."drift" (
	"stream" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"external_id" text,
	"kind" text NOT NULL,
	"fields" jsonb,
	"seen_at" timestamp with time zone NOT NULL,
	CONSTRAINT "drift_stream_local_key_pk" PRIMARY KEY("stream","local_key"),
	CONSTRAINT "drift_kind" CHECK (kind IN ('changed', 'missing', 'inactive', 'wrong_type', 'extra'))
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
CREATE TABLE "slotsync"."links" (
	"stream" text NOT NULL,
	"local_key" text COLLATE "C" NOT NULL,
	"external_id" text COLLATE "C" NOT NULL,
	"destination_id" bigint,
	"assigns_id" boolean DEFAULT false NOT NULL,
	"linked_by" text NOT NULL,
	"fields" text[],
	"linked_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "links_stream_local_key_pk" PRIMARY KEY("stream","local_key"),
	CONSTRAINT "links_linked_by" CHECK (linked_by IN ('match', 'rename'))
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
CREATE TABLE "slotsync"."verifications" (
	"stream" text PRIMARY KEY NOT NULL,
	"verified_at" timestamp with time zone NOT NULL,
	"objects" bigint NOT NULL,
	"run_id" bigint
);
--> statement-breakpoint
ALTER TABLE "slotsync"."approvals" DROP CONSTRAINT "approvals_operation";--> statement-breakpoint
ALTER TABLE "slotsync"."batches" DROP CONSTRAINT "batches_operation";--> statement-breakpoint
CREATE INDEX "drift_external_id" ON "slotsync"."drift" USING btree ("external_id");--> statement-breakpoint
CREATE INDEX "drift_events_key" ON "slotsync"."drift_events" USING btree ("stream","local_key");--> statement-breakpoint
CREATE INDEX "drift_events_at" ON "slotsync"."drift_events" USING btree ("at");--> statement-breakpoint
CREATE UNIQUE INDEX "links_external_id" ON "slotsync"."links" USING btree ("external_id");--> statement-breakpoint
CREATE UNIQUE INDEX "links_destination_id" ON "slotsync"."links" USING btree ("destination_id");--> statement-breakpoint
ALTER TABLE "slotsync"."approvals" ADD CONSTRAINT "approvals_operation" CHECK (operation IN ('create', 'update', 'retire', 'overwrite', 'repair'));--> statement-breakpoint
ALTER TABLE "slotsync"."batches" ADD CONSTRAINT "batches_operation" CHECK (operation IN ('create', 'update', 'retire', 'overwrite', 'repair'));