-- Grants may run ahead of the pace by rules.aheadMs: next_at is when the next one would be due at the pace.
-- Locks the limiter and returns its state as of now; creates it, with the boot guard, where there is none.
CREATE OR REPLACE FUNCTION slotsync.quota_lock(limiter text, rules jsonb) RETURNS slotsync.quota_limiters
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
    VALUES (limiter, moment, moment, moment + (rules->>'bootGuardMs')::double precision + coalesce((rules->>'aheadMs')::double precision, 0), moment)
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
-- Registers the caller where he is not, and sets when he is to ask. Returns the slot that is free first, when it
-- can be used, and his place in line for it.
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
  -- From this moment on fewer than the allowed number are not free.
  at := greatest(state.seen_at, state.next_at - coalesce((rules->>'aheadMs')::double precision, 0), state.paused_until,
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
--> statement-breakpoint
-- Grants a slot ({granted: true, token, waitMs}: send in waitMs) or does not ({granted: false}). Whoever waits
-- after this, because he got none or wants another one, is told when to ask (askMs).
CREATE OR REPLACE FUNCTION slotsync.take_slot(limiter text, waiter text, lane text, lease_ms double precision, again boolean,
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
    state.next_at := greatest(at, state.next_at) + (rules->>'paceMs')::double precision;
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
-- The answer has arrived: the slot is free again after the hold. Anything but its present token does nothing.
CREATE OR REPLACE FUNCTION slotsync.release_slot(limiter text, token text, rules jsonb) RETURNS void
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
    state.next_at := greatest(state.next_at, until_ms + coalesce((rules->>'aheadMs')::double precision, 0));
  ELSIF state.slot_seq[slot] = split_part(token, '-', 3)::bigint THEN
    state.slot_seq[slot] := 0;
    state.slot_free_at[slot] := until_ms;
  ELSE
    RETURN;
  END IF;
  PERFORM slotsync.quota_keep(state);
END
$$;
