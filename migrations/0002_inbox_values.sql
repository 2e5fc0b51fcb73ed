DELETE FROM "slotsync"."changes" WHERE octet_length(stream) > 1024 OR octet_length(local_key) > 1024;--> statement-breakpoint
UPDATE "slotsync"."changes" SET "requested_at" = CASE WHEN isfinite("requested_at") THEN "requested_at" ELSE now() END, "not_before" = CASE WHEN isfinite("not_before") THEN "not_before" END
WHERE NOT isfinite("requested_at") OR NOT isfinite("not_before");--> statement-breakpoint
ALTER TABLE "slotsync"."changes" ADD CONSTRAINT "changes_size" CHECK (octet_length(stream) <= 1024 AND octet_length(local_key) <= 1024);--> statement-breakpoint
ALTER TABLE "slotsync"."changes" ADD CONSTRAINT "changes_times" CHECK (isfinite(requested_at) AND isfinite(not_before));