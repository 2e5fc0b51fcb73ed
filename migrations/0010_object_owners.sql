ALTER TABLE "slotsync"."records" ADD COLUMN "row_external_id" text;--> statement-breakpoint
ALTER TABLE "slotsync"."records" ADD COLUMN "former_key" text COLLATE "C";--> statement-breakpoint
CREATE INDEX "records_row_external_id" ON "slotsync"."records" USING btree ("row_external_id") WHERE row_external_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX "records_former_key" ON "slotsync"."records" USING btree ("stream","former_key") WHERE former_key IS NOT NULL;--> statement-breakpoint
-- Several records may know of one object: the one that was accepted last owns it from here on. Nobody knows which of them wrote
-- last, so the object is looked at.
WITH "known" AS (
	SELECT "stream", "local_key", "external_id", row_number() OVER "owners" AS "place",
		"object_hash" IS NOT NULL OR "in_doubt" OR "check_after" IS NOT NULL OR "claimed_by" IS NOT NULL AS "has_facts",
		max("check_after") OVER "of_object" AS "check_after"
	FROM "slotsync"."records" WHERE "external_id" IS NOT NULL
	WINDOW "of_object" AS (PARTITION BY "external_id"),
		"owners" AS (PARTITION BY "external_id" ORDER BY "object_hash" IS NULL, "synced_at" DESC NULLS LAST,
			"in_doubt" OR "check_after" IS NOT NULL OR "claimed_by" IS NOT NULL DESC, "status" = 'retired', "stream", "local_key")
), "doubtful" AS (
	SELECT "external_id" FROM "known" WHERE "has_facts" GROUP BY "external_id" HAVING count(*) > 1
	UNION SELECT "former_external_id" FROM "slotsync"."records"
	WHERE "former_external_id" IS NOT NULL AND "former_external_id" IS DISTINCT FROM "external_id"
), "owners" AS (
	UPDATE "slotsync"."records" AS r SET "in_doubt" = true, "check_after" = greatest(r."check_after", k."check_after")
	FROM "known" AS k JOIN "doubtful" AS d USING ("external_id")
	WHERE r."stream" = k."stream" AND r."local_key" = k."local_key" AND k."place" = 1
)
UPDATE "slotsync"."records" AS r SET "external_id" = NULL, "row_external_id" = k."external_id", "destination_id" = NULL,
	"source_hash" = NULL, "object_hash" = NULL, "in_doubt" = false, "check_after" = NULL, "synced_at" = NULL,
	"claimed_by" = NULL, "claimed_until" = NULL,
	"refused_hash" = CASE WHEN r."error_code" IS DISTINCT FROM 'external_id_changed' THEN r."refused_hash" END,
	"status" = CASE WHEN r."status" IN ('synced', 'retired') THEN 'pending'
		WHEN r."error_code" = 'external_id_changed' THEN 'failed' ELSE r."status" END
FROM "known" AS k WHERE r."stream" = k."stream" AND r."local_key" = k."local_key" AND k."place" > 1;
--> statement-breakpoint
-- An object that a record had before its external id changed is kept by a record of its own.
INSERT INTO "slotsync"."records" AS f ("stream", "local_key", "former_key", "external_id", "object_hash", "status", "in_doubt",
	"check_after", "gone_since")
SELECT DISTINCT ON (r."former_external_id") r."stream", '#former ' || r."former_external_id", r."local_key",
	r."former_external_id", '', 'synced', true, r."check_after", now()
FROM "slotsync"."records" AS r
WHERE r."former_external_id" IS NOT NULL AND r."former_external_id" IS DISTINCT FROM r."external_id"
	AND NOT EXISTS (SELECT FROM "slotsync"."records" AS o
		WHERE o."external_id" = r."former_external_id"
			AND (o."stream", o."local_key") <> (r."stream", '#former ' || o."external_id"))
ORDER BY r."former_external_id", r."updated_at" DESC
ON CONFLICT ("stream", "local_key") DO UPDATE SET "former_key" = excluded."former_key";
