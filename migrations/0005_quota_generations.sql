-- The row of a quota is updated at every step of it, and while some session holds a snapshot none of its former versions
-- can be removed. Each 64 changes are a generation with a place of its own in the index, so that the versions of former
-- generations are not read. There is still one row for each limiter.
ALTER TABLE slotsync.quota_limiters
  ADD COLUMN changes bigint NOT NULL DEFAULT 0,
  ADD COLUMN generation bigint NOT NULL GENERATED ALWAYS AS (changes / 64) STORED,
  DROP CONSTRAINT quota_limiters_pkey,
  ADD PRIMARY KEY (key, generation);
