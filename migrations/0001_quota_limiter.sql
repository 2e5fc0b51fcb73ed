-- The organization's quota: N slots in one row, whose lock puts all processes in order. The algorithm is the
-- Redis store's; the figures come as an argument. Unlogged: a crash empties it, and a limiter without
-- state waits before its first grant. All times are milliseconds of this server's clock.
CREATE UNLOGGED TABLE slotsync.quota_limiters (
  key text PRIMARY KEY,
  epoch double precision NOT NULL,
  seq bigint NOT NULL DEFAULT 0,
  seen_at double precision NOT NULL,
  next_at double precision NOT NULL,
  paused_until double precision NOT NULL DEFAULT 0,
  throttled bigint NOT NULL DEFAULT 0,
  reduced integer NOT NULL DEFAULT 0,
  reduced_at double precision NOT NULL DEFAULT 0,
  calm_since double precision NOT NULL,
  slot_free_at double precision[] NOT NULL DEFAULT '{}',
  slot_seq bigint[] NOT NULL DEFAULT '{}',
  slot_lane text[] NOT NULL DEFAULT '{}',
  arrivals bigint NOT NULL DEFAULT 0,
  waiters jsonb NOT NULL DEFAULT '{}' -- by id: lane, since (number of its arrival), asksAt
) WITH (fillfactor = 10);
--> statement-breakpoint
CREATE FUNCTION slotsync.quota_clock() RETURNS double precision
LANGUAGE sql VOLATILE AS $$
  SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::double precision
$$;
--> statement-breakpoint
-- The limiter's state as of now (seen_at): recovered from 429 answers, its slots complete.
CREATE FUNCTION slotsync.quota_refresh(state slotsync.quota_limiters, rules jsonb) RETURNS slotsync.quota_limiters
LANGUAGE plpgsql AS $$
DECLARE
  moment double precision := slotsync.quota_clock();
  back double precision := state.seen_at - moment;
  calm double precision;
  missing integer;
BEGIN
  IF back > 0 THEN -- the clock jumped back: nothing may lie further ahead than it did
    state.next_at := state.next_at - back;
    state.paused_until := state.paused_until - back;
    state.reduced_at := state.reduced_at - back;
    state.calm_since := state.calm_since - back;
    state.slot_free_at := ARRAY(SELECT s.f - back FROM unnest(state.slot_free_at) WITH ORDINALITY AS s(f, i) ORDER BY s.i);
    state.waiters := '{}';
  END IF;
  state.seen_at := moment;
  calm := floor((moment - state.calm_since) / (rules->>'recoverEveryMs')::double precision);
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
--> statement-breakpoint
-- Locks the limiter and returns its state as of now; creates it, with the boot guard, where there is none.
CREATE FUNCTION slotsync.quota_lock(limiter text, rules jsonb) RETURNS slotsync.quota_limiters
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters;
  moment double precision;
BEGIN
  LOOP
    SELECT q.* INTO state FROM slotsync.quota_limiters q WHERE q.key = limiter FOR UPDATE;
    EXIT WHEN FOUND;
    moment := slotsync.quota_clock();
    INSERT INTO slotsync.quota_limiters (key, epoch, seen_at, next_at, calm_since)
    VALUES (limiter, moment, moment, moment + (rules->>'bootGuardMs')::double precision, moment)
    ON CONFLICT DO NOTHING;
  END LOOP;
  moment := state.seen_at;
  state := slotsync.quota_refresh(state, rules);
  IF state.seen_at < moment THEN -- a shift must be kept, or the next caller would shift again
    PERFORM slotsync.quota_keep(state);
  END IF;
  RETURN state;
END
$$;
--> statement-breakpoint
CREATE FUNCTION slotsync.quota_keep(state slotsync.quota_limiters) RETURNS void
LANGUAGE sql AS $$
  UPDATE slotsync.quota_limiters q SET
    seq = state.seq, seen_at = state.seen_at, next_at = state.next_at, paused_until = state.paused_until,
    throttled = state.throttled, reduced = state.reduced, reduced_at = state.reduced_at,
    calm_since = state.calm_since, slot_free_at = state.slot_free_at, slot_seq = state.slot_seq,
    slot_lane = state.slot_lane, arrivals = state.arrivals, waiters = state.waiters
  WHERE q.key = state.key
$$;
--> statement-breakpoint
-- How many grants from now is this waiter's: 1 when nobody goes first who will ask in time for a grant at `due`.
CREATE FUNCTION slotsync.quota_place(state slotsync.quota_limiters, me text, due double precision, rules jsonb)
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
          WHERE l.lane = e.value->>'lane') AS rank -- one that a newer version knows comes last
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
--> statement-breakpoint
-- Registers the caller where he is not, and sets when he is to ask. Returns the slot that is free first, when it
-- can be used, and his place in line for it.
CREATE FUNCTION slotsync.quota_enqueue(INOUT state slotsync.quota_limiters, waiter text, lane text, rules jsonb,
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
  -- From this moment on fewer than the allowed number are not free.
  at := greatest(state.seen_at, state.next_at, state.paused_until, frees[cardinality(frees) - allowed + 1]);
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
--> statement-breakpoint
-- Grants a slot ({granted: true, token, waitMs}: send in waitMs) or does not ({granted: false}). Whoever waits
-- after this, because he got none or wants another one, is told when to ask (askMs).
CREATE FUNCTION slotsync.take_slot(limiter text, waiter text, lane text, lease_ms double precision, again boolean,
  rules jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters := slotsync.quota_lock(limiter, rules);
  forget_ms double precision := (rules->>'forgetMs')::double precision;
  line record := slotsync.quota_enqueue(state, waiter, lane, rules);
  slot integer := line.slot;
  at double precision := line.at;
  answer jsonb := '{"granted": false}';
BEGIN
  state := line.state;
  IF line.place = 1 AND at - state.seen_at <= (rules->>'bookAheadMs')::double precision THEN
    state.seq := state.seq + 1;
    state.next_at := at + (rules->>'paceMs')::double precision;
    state.slot_free_at[slot] := at + lease_ms + (rules->>'holdMs')::double precision;
    state.slot_seq[slot] := state.seq;
    state.slot_lane[slot] := lane;
    answer := jsonb_build_object('granted', true, 'waitMs', at - state.seen_at,
      'token', state.epoch::bigint || '-' || slot || '-' || state.seq);
    state.waiters := state.waiters - waiter;
    IF again THEN
      state := (slotsync.quota_enqueue(state, waiter, lane, rules)).state;
    END IF;
  END IF;
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
--> statement-breakpoint
-- Whoever waited has left. A waiter that is not known does nothing.
CREATE FUNCTION slotsync.withdraw_waiter(limiter text, waiter text, rules jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters;
BEGIN
  IF EXISTS (SELECT FROM slotsync.quota_limiters q WHERE q.key = limiter AND q.waiters ? waiter) THEN
    state := slotsync.quota_lock(limiter, rules);
    state.waiters := state.waiters - waiter;
    PERFORM slotsync.quota_keep(state);
  END IF;
END
$$;
--> statement-breakpoint
-- The answer has arrived: the slot is free again after the hold. Anything but its present token does nothing.
CREATE FUNCTION slotsync.release_slot(limiter text, token text, rules jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters;
  slot integer := split_part(token, '-', 2)::integer;
  until_ms double precision := (rules->>'holdMs')::double precision;
BEGIN
  IF NOT EXISTS (SELECT FROM slotsync.quota_limiters q WHERE q.key = limiter) THEN
    RETURN; -- nothing to release; the next to take waits for the boot guard
  END IF;
  state := slotsync.quota_lock(limiter, rules);
  until_ms := state.seen_at + until_ms;
  IF state.epoch <> split_part(token, '-', 1)::double precision THEN
    -- Sent before the state was lost, judged until now: no slot knows of it, so everyone waits for its second.
    state.next_at := greatest(state.next_at, until_ms);
  ELSIF state.slot_seq[slot] = split_part(token, '-', 3)::bigint THEN
    state.slot_seq[slot] := 0;
    state.slot_free_at[slot] := until_ms;
  ELSE
    RETURN;
  END IF;
  PERFORM slotsync.quota_keep(state);
END
$$;
--> statement-breakpoint
-- A 429: pauses the organization and lowers N. retry_after_ms is null when the answer named none.
CREATE FUNCTION slotsync.quota_throttled(limiter text, retry_after_ms double precision, rules jsonb) RETURNS void
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
--> statement-breakpoint
-- The state for people and metrics: changes nothing, waits for no lock.
CREATE FUNCTION slotsync.quota_usage(limiter text, rules jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  state slotsync.quota_limiters;
  moment double precision;
  answer jsonb;
BEGIN
  SELECT q.* INTO state FROM slotsync.quota_limiters q WHERE q.key = limiter;
  IF FOUND THEN
    state := slotsync.quota_refresh(state, rules);
  END IF;
  moment := state.seen_at;
  SELECT jsonb_build_object(
    'rate', (rules->>'rate')::integer,
    'allowed', greatest(1, (rules->>'rate')::integer - coalesce(state.reduced, 0)),
    'cooling', count(*) FILTER (WHERE s.seq = 0),
    'lanes', coalesce((SELECT jsonb_object_agg(l.lane, l.held) FROM (
      SELECT h.lane, count(*) AS held
      FROM unnest(state.slot_free_at, state.slot_seq, state.slot_lane) AS h(f, seq, lane)
      WHERE h.f > moment AND h.seq > 0 GROUP BY h.lane) l), '{}'),
    'waiting', coalesce((SELECT jsonb_object_agg(l.lane, l.waiting) FROM (
      SELECT w.value->>'lane' AS lane, count(*) AS waiting FROM jsonb_each(state.waiters) w
      WHERE (w.value->>'asksAt')::double precision + (rules->>'lateMs')::double precision >= moment GROUP BY 1) l), '{}'),
    'pausedMs', greatest(0, coalesce(state.paused_until - moment, 0)),
    'granted', coalesce(state.seq, 0),
    'throttled', coalesce(state.throttled, 0))
  INTO answer
  FROM unnest(state.slot_free_at, state.slot_seq) AS s(f, seq) WHERE s.f > moment;
  RETURN answer;
END
$$;
