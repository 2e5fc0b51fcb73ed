CREATE TABLE "slotsync"."actions" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."actions_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"at" timestamp with time zone DEFAULT now() NOT NULL,
	"by" text,
	"via" text NOT NULL,
	"action" text NOT NULL,
	"subject" text,
	"run_id" bigint,
	"reason" text,
	CONSTRAINT "actions_action" CHECK (action IN ('approve', 'reject', 'pause', 'resume', 'cancel', 'retry', 'rename', 'link', 'unlink', 'forget', 'repair', 'freeze', 'unfreeze', 'triggers')),
	CONSTRAINT "actions_via" CHECK (via IN ('command', 'page'))
);
--> statement-breakpoint
INSERT INTO "slotsync"."actions" ("at", "via", "action", "subject", "run_id", "reason")
SELECT decided_at, decided_by, CASE state WHEN 'rejected' THEN 'reject' ELSE 'approve' END,
	stream || ': ' || operation || ' ' || count, run_id, reason
FROM "slotsync"."holds" WHERE decided_by IS NOT NULL ORDER BY decided_at, id;--> statement-breakpoint
ALTER TABLE "slotsync"."holds" DROP CONSTRAINT "holds_decided_by";--> statement-breakpoint
CREATE INDEX "actions_at" ON "slotsync"."actions" USING btree ("at");--> statement-breakpoint
CREATE INDEX "actions_run" ON "slotsync"."actions" USING btree ("run_id");--> statement-breakpoint
ALTER TABLE "slotsync"."holds" DROP COLUMN "decided_by";--> statement-breakpoint
ALTER TABLE "slotsync"."holds" DROP COLUMN "reason";