CREATE TABLE "slotsync"."processes" (
	"id" text PRIMARY KEY NOT NULL,
	"command" text NOT NULL,
	"host" text NOT NULL,
	"pid" integer NOT NULL,
	"started_at" timestamp with time zone DEFAULT now() NOT NULL,
	"seen_at" timestamp with time zone DEFAULT now() NOT NULL,
	"stopped_since" timestamp with time zone,
	"error_code" text,
	"error_message" text
);
--> statement-breakpoint
CREATE TABLE "slotsync"."request_seconds" (
	"second" timestamp with time zone PRIMARY KEY NOT NULL,
	"requests" integer NOT NULL,
	"throttled" integer DEFAULT 0 NOT NULL
);
--> statement-breakpoint
ALTER TABLE "slotsync"."destination" ADD COLUMN "answered_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "slotsync"."destination" ADD COLUMN "answer" text;--> statement-breakpoint
ALTER TABLE "slotsync"."destination" ADD COLUMN "succeeded_at" timestamp with time zone;