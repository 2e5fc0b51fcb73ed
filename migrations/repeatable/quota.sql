-- The functions of the organization's quota: the same algorithm as the script in
-- src/destination/quota/redis-store.ts. To change one, change the other. The rules come as an argument
-- (src/destination/quota/quota-rules.ts). All times are milliseconds of this server's clock.
--
-- Applied as a whole whenever this file has changed. Each statement must be safe to run again: CREATE OR REPLACE, and
-- DROP FUNCTION IF EXISTS before it where the arguments or the result of a function change.

CREATE OR REPLACE FUNCTION slotsync.quota_clock() RETURNS double precision
LANGUAGE sql VOLATILE AS $$
  SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::double precision
$$;

-- The limiter's state as of now (seen_at): recovered from 429 answers, its slots complete.
CREATE OR REPLACE FUNCTION slotsync.quota_refresh(state slotsync.quota_limiters, rules jsonb) RETURNS slotsync.quota_limiters
LANGUAGE plpgsql AS $$
DECLARE
  now_ms double precision := slotsync.quota_clock();
  back double precision := state.seen_at - now_ms;
  calm double precision;
  missing integer;
BEGIN
  IF back > 0 THEN -- the clock jumped back: no time may be further ahead than it was
    state.next_at := state.next_at - back;
    state.paused_until := state.paused_until - back;
    state.reduced_at := state.reduced_at - back;
    state.calm_since := state.calm_since - back;
    state.slot_free_at := ARRAY(SELECT s.f - back FROM unnest(state.slot_free_at) WITH ORDINALITY AS s(f, i) ORDER BY s.i);
    state.waiters := '{}';
  END IF;
  state.seen_at := now_ms;
  calm := floor((now_ms - state.calm_since) / (rules->>'recoverEveryMs')::double precision);
  IF calm > 0 THEN
    state.reduced := greatest(0, state.reduced - calm);
    state.calm_since := state.calm_since + calm * (rules->>'recoverEveryMs')::double precision;
  END IF;
  missing := (rules->>'rate')::integer - cardinality(state.slot_free_at);
  IF missing > 0 THEN
    state.slot_free_at := state.slot_free_at || array_fill(0::double precision, ARRAY[missing]);
    state.slot_seq := state.slot_seq || array_fill(0::bigint, ARRAY[missing]);
    state.slot_lane := state.slot_lane || array_fill(''::text, ARRAY[missing]);
  END IF;
  RETURN state;
END
$$;

-- Writes the state of a limiter that is locked, and returns it as it is written.
CREATE OR REPLACE FUNCTION slotsync.quota_keep(state slotsync.quota_limiters) RETURNS slotsync.quota_limiters
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  UPDATE slotsync.quota_limiters q SET
    changes = state.changes + 1, seq = state.seq, seen_at = state.seen_at, next_at = state.next_at,
    paused_until = state.paused_until, throttled = state.throttled, reduced = state.reduced,
    reduced_at = state.reduced_at, calm_since = state.calm_since, slot_free_at = state.slot_free_at,
    slot_seq = state.slot_seq, slot_lane = state.slot_lane, arrivals = state.arrivals, waiters = state.waiters
  WHERE q.key = state.key AND q.generation = state.generation
  RETURNING q.* INTO STRICT state;
  RETURN state;
END
$$;

-- Locks the limiter and returns its state as of now; null where there is none. Former versions of its row stay while any
-- session holds a snapshot, 200 000 in an hour. They are not read, because the index gives the newest generation first;
-- the settings of the function rule out every other plan, which may be the cheaper one at the moment it is made.
CREATE OR REPLACE FUNCTION slotsync.quota_find(limiter text, rules jsonb) RETURNS slotsync.quota_limiters
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  state slotsync.quota_limiters;
  seen_at double precision;
BEGIN
  SELECT q.* INTO state FROM slotsync.quota_limiters q WHERE q.key = limiter
    ORDER BY q.generation DESC LIMIT 1 FOR UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  seen_at := state.seen_at;
  state := slotsync.quota_refresh(state, rules);
  IF state.seen_at < seen_at THEN -- the clock jumped back: kept, or the next caller would shift the times again
    state := slotsync.quota_keep(state);
  END IF;
  RETURN state;
END
$$;

-- The same; creates the limiter, with the boot guard, where there is none.
CREATE OR REPLACE FUNCTION slotsync.quota_lock(limiter text, rules jsonb) RETURNS slotsync.quota_limiters
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters;
  now_ms double precision;
BEGIN
  LOOP
    state := slotsync.quota_find(limiter, rules);
    EXIT WHEN state.key IS NOT NULL;
    now_ms := slotsync.quota_clock();
    INSERT INTO slotsync.quota_limiters (key, epoch, seen_at, next_at, calm_since)
    VALUES (limiter, now_ms, now_ms, now_ms + (rules->>'bootGuardMs')::double precision + (rules->>'aheadMs')::double precision, now_ms)
    ON CONFLICT DO NOTHING;
  END LOOP;
  RETURN state;
END
$$;

-- The place of a waiter's grant from now on: 1 when no waiter before it will ask in time for a grant at `due`.
CREATE OR REPLACE FUNCTION slotsync.quota_place(state slotsync.quota_limiters, me text, due double precision, rules jsonb)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  every integer := (rules->>'anyLaneEvery')::integer;
  to_any_lane integer := every - state.seq % every;
  next_up text;
  place integer;
  oldest integer;
BEGIN
  WITH waiting AS (
    SELECT w.id, w.since, w.asks_at, row_number() OVER (ORDER BY w.rank, w.since)::integer AS i
    FROM (
      SELECT e.key AS id, (e.value->>'since')::bigint AS since, (e.value->>'asksAt')::double precision AS asks_at,
        (SELECT l.i FROM jsonb_array_elements_text(rules->'lanes') WITH ORDINALITY AS l(lane, i)
          WHERE l.lane = e.value->>'lane') AS rank -- a lane that only a newer version knows comes last
      FROM jsonb_each(state.waiters) e
    ) w
    WHERE w.id = me OR w.asks_at + (rules->>'lateMs')::double precision >= state.seen_at
  )
  SELECT
    (SELECT w.i FROM waiting w WHERE w.id = me),
    -- Of those left at the grant that ignores lanes.
    (SELECT w.i FROM waiting w WHERE w.i >= to_any_lane ORDER BY w.since LIMIT 1),
    (SELECT w.id FROM waiting w WHERE w.id = me OR w.asks_at <= due
      ORDER BY CASE WHEN to_any_lane = 1 THEN w.since ELSE w.i END LIMIT 1)
  INTO place, oldest, next_up;
  IF next_up = me THEN
    RETURN 1;
  ELSIF place = oldest THEN
    RETURN to_any_lane;
  ELSIF to_any_lane <= place AND place < oldest THEN
    place := place + 1;
  END IF;
  RETURN least(place, to_any_lane + every);
END
$$;

-- Registers the waiter where it is not, and sets when it is to ask. Returns the slot that is free first, when it can be
-- used, and the waiter's place in the queue for it.
CREATE OR REPLACE FUNCTION slotsync.quota_enqueue(INOUT state slotsync.quota_limiters, waiter text, lane text, rules jsonb,
  OUT slot integer, OUT at double precision, OUT place integer)
LANGUAGE plpgsql AS $$
DECLARE
  allowed integer := greatest(1, (rules->>'rate')::integer - state.reduced);
  frees double precision[];
  turn double precision;
  soonest double precision := 0;
BEGIN
  SELECT array_agg(s.f ORDER BY s.f), (array_agg(s.i ORDER BY s.f, s.i))[1] INTO frees, slot
  FROM unnest(state.slot_free_at) WITH ORDINALITY AS s(f, i);
  -- From then on fewer than the allowed number are not free.
  at := greatest(state.seen_at, state.next_at - (rules->>'aheadMs')::double precision, state.paused_until,
    frees[cardinality(frees) - allowed + 1]);
  IF NOT state.waiters ? waiter THEN
    state.arrivals := state.arrivals + 1;
    state.waiters := state.waiters
      || jsonb_build_object(waiter, jsonb_build_object('lane', lane, 'since', state.arrivals));
  END IF;
  place := slotsync.quota_place(state, waiter, at, rules);
  turn := greatest(at + (place - 1) * (rules->>'paceMs')::double precision,
    frees[least(cardinality(frees), cardinality(frees) - allowed + place)]);
  IF place > 1 THEN
    soonest := (rules->>'yieldMs')::double precision;
  END IF;
  state.waiters := jsonb_set(state.waiters, ARRAY[waiter, 'asksAt'], to_jsonb(greatest(state.seen_at + soonest,
    least(turn - (rules->>'bookAheadMs')::double precision, state.seen_at + (rules->>'pollMs')::double precision))));
END
$$;

-- Grants slots ({token, waitMs}: send in waitMs): as many as are wanted, as if the waiter had asked again after each, until it
-- has to wait. Only one while another one waits, who may be farther away. A waiter that got fewer gets the time to ask again (askMs).
CREATE OR REPLACE FUNCTION slotsync.take_slots(limiter text, waiter text, lane text, lease_ms double precision, wanted integer,
  rules jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters := slotsync.quota_lock(limiter, rules);
  forget_ms double precision := (rules->>'forgetMs')::double precision;
  queued record;
  grants jsonb := '[]';
  answer jsonb;
BEGIN
  WHILE jsonb_array_length(grants) < wanted LOOP
    queued := slotsync.quota_enqueue(state, waiter, lane, rules);
    state := queued.state;
    EXIT WHEN queued.place > 1 OR queued.at - state.seen_at > (rules->>'bookAheadMs')::double precision
      OR grants <> '[]' AND state.waiters - waiter <> '{}';
    state.seq := state.seq + 1;
    state.next_at := greatest(queued.at, state.next_at) + (rules->>'paceMs')::double precision;
    state.slot_free_at[queued.slot] := queued.at + lease_ms + (rules->>'holdMs')::double precision;
    state.slot_seq[queued.slot] := state.seq;
    state.slot_lane[queued.slot] := lane;
    grants := grants || jsonb_build_object('waitMs', queued.at - state.seen_at,
      'token', state.epoch::bigint || '-' || queued.slot || '-' || state.seq);
    state.waiters := state.waiters - waiter;
  END LOOP;
  answer := jsonb_build_object('grants', grants);
  IF state.waiters ? waiter THEN
    answer := answer || jsonb_build_object('askMs',
      (state.waiters->waiter->>'asksAt')::double precision - state.seen_at);
  END IF;
  SELECT coalesce(jsonb_object_agg(w.key, w.value), '{}') INTO state.waiters
  FROM jsonb_each(state.waiters) w WHERE (w.value->>'asksAt')::double precision + forget_ms >= state.seen_at;
  PERFORM slotsync.quota_keep(state);
  RETURN answer;
END
$$;

-- A waiter has left. One that is not known changes nothing.
CREATE OR REPLACE FUNCTION slotsync.withdraw_waiter(limiter text, waiter text, rules jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters := slotsync.quota_find(limiter, rules);
BEGIN
  IF state.waiters ? waiter THEN
    state.waiters := state.waiters - waiter;
    PERFORM slotsync.quota_keep(state);
  END IF;
END
$$;

-- The answer has arrived: the slot is free again after the hold. Any token but its present one changes nothing.
CREATE OR REPLACE FUNCTION slotsync.release_slot(limiter text, token text, rules jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters := slotsync.quota_find(limiter, rules);
  slot integer := split_part(token, '-', 2)::integer;
  until_ms double precision := (rules->>'holdMs')::double precision;
BEGIN
  IF state.key IS NULL THEN
    RETURN; -- nothing to release; the next grant waits for the boot guard
  END IF;
  until_ms := state.seen_at + until_ms;
  IF state.epoch <> split_part(token, '-', 1)::double precision THEN
    -- Sent before the limiter's state was lost: no slot counts it, so every grant waits until its second is over.
    state.next_at := greatest(state.next_at, until_ms + (rules->>'aheadMs')::double precision);
  ELSIF state.slot_seq[slot] = split_part(token, '-', 3)::bigint THEN
    state.slot_seq[slot] := 0;
    state.slot_free_at[slot] := until_ms;
  ELSE
    RETURN;
  END IF;
  PERFORM slotsync.quota_keep(state);
END
$$;

-- A 429: pauses the organization and lowers N. retry_after_ms is null when the answer named none.
CREATE OR REPLACE FUNCTION slotsync.quota_throttled(limiter text, retry_after_ms double precision, rules jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters := slotsync.quota_lock(limiter, rules);
  pause_ms double precision := coalesce(retry_after_ms, (rules->>'pauseDefaultMs')::double precision)
    + (rules->>'pauseExtraMs')::double precision;
BEGIN
  state.throttled := state.throttled + 1;
  state.paused_until := greatest(state.paused_until,
    state.seen_at + least(pause_ms, (rules->>'pauseMaxMs')::double precision));
  state.calm_since := state.paused_until;
  IF state.seen_at - state.reduced_at >= (rules->>'reduceEveryMs')::double precision THEN
    state.reduced := least(state.reduced + 1, (rules->>'rate')::integer - 1);
    state.reduced_at := state.seen_at;
  END IF;
  PERFORM slotsync.quota_keep(state);
END
$$;

-- The quota's use, for people and metrics: changes nothing, waits for no lock.
CREATE OR REPLACE FUNCTION slotsync.quota_usage(limiter text, rules jsonb) RETURNS jsonb
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  state slotsync.quota_limiters;
  now_ms double precision;
  answer jsonb;
BEGIN
  SELECT q.* INTO state FROM slotsync.quota_limiters q WHERE q.key = limiter ORDER BY q.generation DESC LIMIT 1;
  IF FOUND THEN
    state := slotsync.quota_refresh(state, rules);
  END IF;
  now_ms := state.seen_at;
  SELECT jsonb_build_object(
    'rate', (rules->>'rate')::integer,
    'allowed', greatest(1, (rules->>'rate')::integer - coalesce(state.reduced, 0)),
    'cooling', count(*) FILTER (WHERE s.seq = 0),
    'lanes', coalesce((SELECT jsonb_object_agg(l.lane, l.held) FROM (
      SELECT h.lane, count(*) AS held
      FROM unnest(state.slot_free_at, state.slot_seq, state.slot_lane) AS h(f, seq, lane)
      WHERE h.f > now_ms AND h.seq > 0 GROUP BY h.lane) l), '{}'),
    'waiting', coalesce((SELECT jsonb_object_agg(l.lane, l.waiting) FROM (
      SELECT w.value->>'lane' AS lane, count(*) AS waiting FROM jsonb_each(state.waiters) w
      WHERE (w.value->>'asksAt')::double precision + (rules->>'lateMs')::double precision >= now_ms GROUP BY 1) l), '{}'),
    'pausedMs', greatest(0, coalesce(state.paused_until - now_ms, 0)),
    'granted', coalesce(state.seq, 0),
    'throttled', coalesce(state.throttled, 0))
  INTO answer
  FROM unnest(state.slot_free_at, state.slot_seq) AS s(f, seq) WHERE s.f > now_ms;
  RETURN answer;
END
$$;
