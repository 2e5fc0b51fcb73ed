CREATE TABLE "slotsync"."request_sizes" (
	"type" text PRIMARY KEY NOT NULL,
	"objects" integer NOT NULL,
	"accepted" integer NOT NULL,
	"too_many" integer,
	"accepted_bytes" bigint NOT NULL,
	"refused_bytes" bigint,
	"seconds" real,
	"reason" text NOT NULL,
	"changed_at" timestamp with time zone DEFAULT now() NOT NULL
);
