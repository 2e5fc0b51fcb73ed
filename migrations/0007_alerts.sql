CREATE TABLE "slotsync"."alert_messages" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."alert_messages_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"alert_id" bigint NOT NULL,
	"channel" text NOT NULL,
	"event" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"next_at" timestamp with time zone DEFAULT now() NOT NULL,
	"sent_at" timestamp with time zone,
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
	"recovered_at" timestamp with time zone,
	CONSTRAINT "alerts_condition" CHECK (condition IN ('run_failed', 'run_partial', 'run_held', 'sending_stopped', 'no_success', 'drift', 'inbox'))
);
--> statement-breakpoint
ALTER TABLE "slotsync"."alert_messages" ADD CONSTRAINT "alert_messages_alert_id_alerts_id_fk" FOREIGN KEY ("alert_id") REFERENCES "slotsync"."alerts"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "alert_messages_alert" ON "slotsync"."alert_messages" USING btree ("alert_id");--> statement-breakpoint
CREATE INDEX "alert_messages_due" ON "slotsync"."alert_messages" USING btree ("channel","next_at") WHERE sent_at IS NULL;--> statement-breakpoint
CREATE UNIQUE INDEX "alerts_open" ON "slotsync"."alerts" USING btree ("cause") WHERE recovered_at IS NULL;