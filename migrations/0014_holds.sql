CREATE TABLE "slotsync"."holds" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "slotsync"."holds_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"run_id" bigint NOT NULL,
	"stream" text NOT NULL,
	"operation" text NOT NULL,
	"count" integer NOT NULL,
	"facts" jsonb NOT NULL,
	"approvable" boolean NOT NULL,
	"samples" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"state" text DEFAULT 'open' NOT NULL,
	"replaced_by" bigint,
	"allowed" integer,
	"keys_digest" text,
	"exactly" boolean DEFAULT false NOT NULL,
	"for_run" bigint,
	"same_keys" boolean,
	"expires_at" timestamp with time zone,
	"decided_at" timestamp with time zone,
	"decided_by" text,
	"reason" text,
	CONSTRAINT "holds_operation" CHECK (operation IN ('create', 'update', 'retire', 'overwrite', 'repair')),
	CONSTRAINT "holds_state" CHECK (state IN ('open', 'approved', 'used', 'rejected', 'replaced', 'expired')),
	CONSTRAINT "holds_decided_by" CHECK (decided_by IN ('command', 'page'))
);
--> statement-breakpoint
CREATE TABLE "slotsync"."replaced_runs" (
	"run_id" bigint NOT NULL,
	"stream" text NOT NULL,
	"replaced_by" bigint NOT NULL,
	CONSTRAINT "replaced_runs_run_id_stream_pk" PRIMARY KEY("run_id","stream")
);
--> statement-breakpoint
-- Which later run has taken over what a run says of a stream: as src/state/runs/replaced-runs.ts decides it from now on.
INSERT INTO "slotsync"."replaced_runs" (run_id, stream, replaced_by)
SELECT r.id, s.stream, later.id
FROM "slotsync"."runs" AS r
  CROSS JOIN LATERAL unnest(CASE r.kind WHEN 'reconcile' THEN '{""}' ELSE r.streams END) AS s(stream)
  CROSS JOIN LATERAL (
    SELECT l.id FROM "slotsync"."runs" AS l
    WHERE l.id > r.id AND l.status <> 'planning'
      AND (l.plan ? s.stream OR l.plan = '{}'::jsonb AND l.finished_at IS NOT NULL AND l.status <> 'cancelled'
        AND s.stream = ANY (CASE l.kind WHEN 'reconcile' THEN '{""}' ELSE l.streams END))
      AND CASE r.kind
        WHEN 'reconcile' THEN l.kind = r.kind AND ((l.range->>'to')::timestamptz > l.requested_at + interval '1 hour'
          OR ((l.range->>'to')::timestamptz > l.requested_at + interval '1 hour')
            IS NOT DISTINCT FROM ((r.range->>'to')::timestamptz > r.requested_at + interval '1 hour'))
        WHEN 'verify' THEN l.kind = r.kind AND (l.range IS NULL OR l.range IS NOT DISTINCT FROM r.range)
        WHEN 'repair' THEN l.kind = 'verify' AND l.range IS NULL OR l.kind = r.kind AND l.range IS NOT DISTINCT FROM r.range
        ELSE l.range IS NULL AND l.kind IN ('sync', 'backfill') OR CASE r.kind
          WHEN 'incremental' THEN l.kind = r.kind AND r.status = 'failed' AND r.id > l.id - 2000
          ELSE l.kind = r.kind AND l.range IS NOT DISTINCT FROM r.range END
        END
    ORDER BY l.status IN ('failed', 'cancelled'), l.id LIMIT 1
  ) AS later
WHERE r.status <> 'succeeded';--> statement-breakpoint
-- The facts are read from the sentences, which had them alone.
INSERT INTO "slotsync"."holds" (run_id, stream, operation, count, facts, approvable, samples, state, replaced_by, allowed,
  keys_digest, exactly, for_run, same_keys, expires_at, decided_at)
SELECT r.id, s.key, o.key, (o.value->>'count')::int, jsonb_strip_nulls(jsonb_build_object(
    'accepted', coalesce(substring(t.reason FROM '[0-9]+ of ([0-9]+) records (?:would|that were never)')::int, 0),
    'earlier', substring(t.reason FROM ' after ([0-9]+) within')::int,
    'limit', CASE WHEN t.reason ~ ', more than [0-9]+ and more than [0-9.]+ %' THEN jsonb_build_object(
      'count', substring(t.reason FROM ', more than ([0-9]+) and')::int,
      'percent', substring(t.reason FROM ' and more than ([0-9.]+) %')::numeric) END,
    'alsoHeld', CASE WHEN t.reason ~ ', and run [0-9]+ holds [0-9]+ of them' THEN jsonb_build_object(
      'runId', substring(t.reason FROM ', and run ([0-9]+) holds')::bigint,
      'count', substring(t.reason FROM ' holds ([0-9]+) of them')::int) END,
    'approval', CASE WHEN t.reason ~ ', and the approval allows' THEN jsonb_build_object(
      'allowed', substring(t.reason FROM ', and the approval allows (?:exactly the )?([0-9]+)')::int,
      'isOther', t.reason ~ 'and these are others') END,
    'mirrorChange', substring(t.reason FROM '^the mirror (.*): approve only if its data'),
    'isSourceEmpty', CASE WHEN t.reason ~ 'but the source is empty' THEN true END
  )), (o.value->>'approvable')::boolean, coalesce(o.value->'samples', '[]'::jsonb),
  CASE
    WHEN r.status = 'cancelled' THEN 'expired'
    WHEN later.id IS NOT NULL THEN CASE WHEN a.id IS NULL THEN 'replaced' WHEN a.used_by IS NULL THEN 'expired' ELSE 'used' END
    WHEN f.status = 'planning' THEN 'approved'
    ELSE 'open' END,
  later.id, a.allowed, a.keys_digest, coalesce(a.exactly, false), a.for_run, a.same_keys, a.expires_at, a.approved_at
FROM "slotsync"."runs" AS r
  CROSS JOIN LATERAL jsonb_each(r.holds) AS s
  CROSS JOIN LATERAL jsonb_each(s.value) AS o
  CROSS JOIN LATERAL (SELECT o.value->>'reason' AS reason) AS t
  LEFT JOIN LATERAL (
    SELECT l.id FROM "slotsync"."replaced_runs" AS p JOIN "slotsync"."runs" AS l ON l.id = p.replaced_by
    WHERE p.run_id = r.id AND p.stream = s.key AND l.status <> 'cancelled' AND l.plan ? s.key
      AND l.kind IN ('sync', 'backfill', 'repair') AND (l.kind <> 'backfill' OR o.key <> 'retire')
  ) AS later ON true
  LEFT JOIN LATERAL (
    SELECT * FROM "slotsync"."approvals" AS a
    WHERE a.run_id = r.id AND a.stream = s.key AND a.operation = o.key AND a.for_run IS NOT NULL
    ORDER BY a.id DESC LIMIT 1
  ) AS a ON true
  LEFT JOIN "slotsync"."runs" AS f ON f.id = a.for_run;--> statement-breakpoint
ALTER TABLE "slotsync"."approvals" DISABLE ROW LEVEL SECURITY;--> statement-breakpoint
DROP TABLE "slotsync"."approvals" CASCADE;--> statement-breakpoint
ALTER TABLE "slotsync"."holds" ADD CONSTRAINT "holds_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "slotsync"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "slotsync"."replaced_runs" ADD CONSTRAINT "replaced_runs_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "slotsync"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "slotsync"."replaced_runs" ADD CONSTRAINT "replaced_runs_replaced_by_runs_id_fk" FOREIGN KEY ("replaced_by") REFERENCES "slotsync"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "holds_run" ON "slotsync"."holds" USING btree ("run_id","stream","operation");--> statement-breakpoint
CREATE INDEX "holds_standing" ON "slotsync"."holds" USING btree ("id") WHERE state IN ('open', 'approved');--> statement-breakpoint
CREATE INDEX "holds_for_run" ON "slotsync"."holds" USING btree ("for_run");--> statement-breakpoint
CREATE INDEX "holds_replaced_by" ON "slotsync"."holds" USING btree ("replaced_by");--> statement-breakpoint
CREATE INDEX "replaced_runs_by" ON "slotsync"."replaced_runs" USING btree ("replaced_by");--> statement-breakpoint
CREATE INDEX "runs_not_succeeded" ON "slotsync"."runs" USING btree ("id") WHERE status <> 'succeeded';--> statement-breakpoint
ALTER TABLE "slotsync"."runs" DROP COLUMN "holds";