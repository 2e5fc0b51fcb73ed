// Slot store in Redis. One key and one script make every step atomic, and work with Redis Cluster. The algorithm is
// that of PostgreSQL; limiter.ts explains it. migrations/repeatable/quota.sql has the same steps as the script: change both.
import { createHash } from 'node:crypto';
import type { RedisClient } from '../../connections/redis-connection.js';
import { parseServer, parseTaken, parseUsage } from './store-answers.js';
import type { SlotStore } from './limiter.js';
import { quotaRules, type StoreOptions } from './quota-rules.js';

/** KEYS: the limiter. ARGV: the step, the rules as JSON, and the step's arguments. Needs Redis 6.2 or later. */
const SCRIPT = `
local step, rules = ARGV[1], cjson.decode(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- A restarted or promoted server may have come back with an older copy; its run id tells. Without the right to ask for it
-- nothing is granted.
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')

local stored = redis.call('GET', KEYS[1])
local state = stored and cjson.decode(stored) or nil
local changed = false
if state and state.server ~= server then state = nil end

if not state and (step == 'take' or step == 'throttled') then
  state = { epoch = now, server = server, seq = 0, seenAt = now, nextAt = now + rules.bootGuardMs + rules.aheadMs, pausedUntil = 0,
    throttled = 0, reduced = 0, reducedAt = 0, calmSince = now, slots = {}, arrivals = 0, waiters = {} }
  changed = true
end

if state and now < state.seenAt then -- the clock jumped back: no time may be further ahead than it was
  local back = state.seenAt - now
  for _, field in ipairs({ 'nextAt', 'pausedUntil', 'reducedAt', 'calmSince' }) do state[field] = state[field] - back end
  for _, slot in ipairs(state.slots) do slot.freeAt = slot.freeAt - back end
  state.waiters = {}
  changed = true
end

if state then
  state.seenAt = now
  local calm = math.floor((now - state.calmSince) / rules.recoverEveryMs)
  if calm > 0 then
    state.reduced = math.max(0, state.reduced - calm)
    state.calmSince = state.calmSince + calm * rules.recoverEveryMs
  end
  for i = #state.slots + 1, rules.rate do state.slots[i] = { freeAt = 0, seq = 0, lane = '' } end
end
local allowed = math.max(1, rules.rate - (state and state.reduced or 0))
local answer = {}

-- The place of a waiter's grant from now on: 1 when no waiter before it will ask in time for a grant at \`at\`.
local function placeOf(me, at)
  local toAnyLane = rules.anyLaneEvery - state.seq % rules.anyLaneEvery
  local rank, waiting = {}, {}
  for i, lane in ipairs(rules.lanes) do rank[lane] = i end -- a lane that only a newer version knows comes last
  for _, waiter in pairs(state.waiters) do
    if waiter == me or waiter.asksAt + rules.lateMs >= now then waiting[#waiting + 1] = waiter end
  end
  table.sort(waiting, function(a, b)
    if a.lane ~= b.lane then return (rank[a.lane] or 99) < (rank[b.lane] or 99) end
    return a.since < b.since
  end)

  local place, oldest, nextUp
  for i, waiter in ipairs(waiting) do
    if waiter == me then place = i end
    -- Of those left at the grant that ignores lanes.
    if i >= toAnyLane and (not oldest or waiter.since < waiting[oldest].since) then oldest = i end
    if waiter == me or waiter.asksAt <= at then
      if not nextUp or (toAnyLane == 1 and waiter.since < nextUp.since) then nextUp = waiter end
    end
  end
  if nextUp == me then return 1 end
  if place == oldest then return toAnyLane end
  if oldest and toAnyLane <= place and place < oldest then place = place + 1 end
  return math.min(place, toAnyLane + rules.anyLaneEvery)
end

-- Registers the waiter where it is not, and sets when it is to ask. Returns the slot that is free first, when it can be
-- used, and the waiter's place in the queue for it.
local function enqueue(id, lane)
  local frees, first = {}, 1
  for i, slot in ipairs(state.slots) do
    frees[i] = slot.freeAt
    if slot.freeAt < state.slots[first].freeAt then first = i end
  end
  table.sort(frees)
  -- From then on fewer than the allowed number are not free.
  local at = math.max(now, state.nextAt - rules.aheadMs, state.pausedUntil, frees[#frees - allowed + 1])
  if not state.waiters[id] then
    state.arrivals = state.arrivals + 1
    state.waiters[id] = { lane = lane, since = state.arrivals }
  end
  local place = placeOf(state.waiters[id], at)
  local turn = math.max(at + (place - 1) * rules.paceMs, frees[math.min(#frees, #frees - allowed + place)])
  local soonest = place > 1 and rules.yieldMs or 0
  state.waiters[id].asksAt = math.max(now + soonest, math.min(turn - rules.bookAheadMs, now + rules.pollMs))
  return first, at, place
end

local function isOtherWaiting(id)
  for other in pairs(state.waiters) do
    if other ~= id then return true end
  end
end

if step == 'take' then
  local id, lane, leaseMs, wanted = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
  -- As many as are wanted, as if the waiter had asked again after each, until it has to wait. Only one while another one waits, who
  -- may be farther away.
  answer.grants = {}
  while #answer.grants < wanted do
    local first, at, place = enqueue(id, lane)
    if place > 1 or at - now > rules.bookAheadMs then break end
    if #answer.grants > 0 and isOtherWaiting(id) then break end
    state.seq = state.seq + 1
    state.nextAt = math.max(at, state.nextAt) + rules.paceMs
    state.slots[first] = { freeAt = at + leaseMs + rules.holdMs, seq = state.seq, lane = lane }
    local token = string.format('%.0f-%d-%.0f', state.epoch, first, state.seq)
    answer.grants[#answer.grants + 1] = { token = token, waitMs = at - now }
    state.waiters[id] = nil
  end
  if state.waiters[id] then answer.askMs = state.waiters[id].asksAt - now end
  for other, waiter in pairs(state.waiters) do
    if waiter.asksAt + rules.forgetMs < now then state.waiters[other] = nil end
  end
  changed = true

elseif step == 'withdraw' and state and state.waiters[ARGV[3]] then
  state.waiters[ARGV[3]] = nil
  changed = true

elseif step == 'release' and state then
  local epoch, index, seq = string.match(ARGV[3], '^(%d+)-(%d+)-(%d+)$')
  local slot = state.slots[tonumber(index)]
  if tonumber(epoch) ~= state.epoch then
    -- Sent before the limiter's state was lost: no slot counts it, so every grant waits until its second is over.
    state.nextAt = math.max(state.nextAt, now + rules.holdMs + rules.aheadMs)
    changed = true
  elseif slot and slot.seq == tonumber(seq) then
    slot.seq, slot.freeAt = 0, now + rules.holdMs
    changed = true
  end

elseif step == 'throttled' then
  local pauseMs = math.min((tonumber(ARGV[3]) or rules.pauseDefaultMs) + rules.pauseExtraMs, rules.pauseMaxMs)
  state.throttled = state.throttled + 1
  state.pausedUntil = math.max(state.pausedUntil, now + pauseMs)
  state.calmSince = state.pausedUntil
  if now - state.reducedAt >= rules.reduceEveryMs then
    state.reduced, state.reducedAt = math.min(state.reduced + 1, rules.rate - 1), now
  end
  changed = true

elseif step == 'usage' then
  local cooling, lanes, waiting = 0, {}, {}
  for _, slot in ipairs(state and state.slots or {}) do
    if slot.freeAt > now and slot.seq == 0 then cooling = cooling + 1 end
    if slot.freeAt > now and slot.seq > 0 then lanes[slot.lane] = (lanes[slot.lane] or 0) + 1 end
  end
  for _, waiter in pairs(state and state.waiters or {}) do
    if waiter.asksAt + rules.lateMs >= now then waiting[waiter.lane] = (waiting[waiter.lane] or 0) + 1 end
  end
  answer = { rate = rules.rate, allowed = allowed, cooling = cooling, lanes = lanes, waiting = waiting,
    server = server, pausedMs = state and math.max(0, state.pausedUntil - now) or 0, granted = state and state.seq or 0,
    throttled = state and state.throttled or 0 }
end

if changed then redis.call('SET', KEYS[1], cjson.encode(state), 'PX', rules.keepMs) end
return cjson.encode(answer)
`;

const SCRIPT_SHA = createHash('sha1').update(SCRIPT).digest('hex');

/** Creates the store. `redis` should fail rather than queue commands while it is offline. */
export function createRedisStore({
  redis,
  key,
  rate,
  rules: changes,
}: StoreOptions & { redis: RedisClient }) {
  const rules = () => JSON.stringify(quotaRules(rate, changes));
  const name = `slotsync:quota:${key}`;

  async function run(step: string, ...args: (string | number)[]): Promise<unknown> {
    try {
      return await redis.evalsha(SCRIPT_SHA, 1, name, step, rules(), ...args);
    } catch (error) {
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error;
      return redis.eval(SCRIPT, 1, name, step, rules(), ...args);
    }
  }

  return {
    take: async ({ id, lane, wanted }, leaseMs) => parseTaken(await run('take', id, lane, leaseMs, wanted)),
    withdraw: async (waiterId) => void (await run('withdraw', waiterId)),
    release: async (token) => void (await run('release', token)),
    throttled: async (retryAfterMs) => void (await run('throttled', retryAfterMs ?? '')),
    usage: async () => parseUsage(await run('usage')),
    /** Returns the run id of the Redis server, which is unique and changes with a restart. */
    server: async () => parseServer(await run('usage')),
  } satisfies SlotStore & { server: () => Promise<string> };
}
