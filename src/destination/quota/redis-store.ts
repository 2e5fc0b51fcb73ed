// The slots in Redis: one key, one script, so that every step is atomic and Redis Cluster serves it too.
// The same algorithm as in PostgreSQL; what it must hold is written in limiter.ts.
import { createHash } from 'node:crypto';
import type { Cluster, Redis } from 'ioredis';
import { parseTaken, parseUsage } from './answers.js';
import type { SlotStore } from './limiter.js';
import { quotaRules, type QuotaRules } from './rules.js';

/** KEYS: the limiter. ARGV: the step, the rules as JSON, and what the step needs. Answers JSON. Redis from 6.2 on. */
const SCRIPT = `
local step, rules = ARGV[1], cjson.decode(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- A restarted or promoted server may have come back with an older copy; its run id tells.
local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''

local stored = redis.call('GET', KEYS[1])
local state = stored and cjson.decode(stored) or nil
local changed = false
if state and state.server ~= server then state = nil end

if not state and step ~= 'usage' and step ~= 'release' then
  state = { epoch = now, server = server, seq = 0, seenAt = now, nextAt = now + rules.bootGuardMs, pausedUntil = 0,
    throttled = 0, reduced = 0, reducedAt = 0, calmSince = now, slots = {} }
  changed = true
end

if state and now < state.seenAt then -- the clock jumped back: nothing may lie further ahead than it did
  local back = state.seenAt - now
  for _, field in ipairs({ 'nextAt', 'pausedUntil', 'reducedAt', 'calmSince' }) do state[field] = state[field] - back end
  for _, slot in ipairs(state.slots) do slot.freeAt = slot.freeAt - back end
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

if step == 'take' then
  local lane, leaseMs = ARGV[3], tonumber(ARGV[4])
  local frees, first = {}, 1
  for i, slot in ipairs(state.slots) do
    frees[i] = slot.freeAt
    if slot.freeAt < state.slots[first].freeAt then first = i end
  end
  table.sort(frees)
  -- From this moment on fewer than the allowed number are not free.
  local at = math.max(now, state.nextAt, state.pausedUntil, frees[#frees - allowed + 1])
  local waitMs = at - now
  if waitMs > rules.bookAheadMs then
    answer = { granted = false, waitMs = math.min(waitMs - rules.bookAheadMs, rules.pollMs) }
  else
    state.seq = state.seq + 1
    state.nextAt = at + rules.paceMs
    state.slots[first] = { freeAt = at + leaseMs + rules.holdMs, seq = state.seq, lane = lane }
    answer = { granted = true, token = string.format('%.0f-%d-%.0f', state.epoch, first, state.seq), waitMs = waitMs }
    changed = true
  end

elseif step == 'release' and state then
  local epoch, index, seq = string.match(ARGV[3], '^(%d+)-(%d+)-(%d+)$')
  local slot = state.slots[tonumber(index)]
  if tonumber(epoch) ~= state.epoch then
    -- Sent before the state was lost, judged until now: no slot knows of it, so everyone waits for its second.
    state.nextAt = math.max(state.nextAt, now + rules.holdMs)
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
  local cooling, lanes = 0, {}
  for _, slot in ipairs(state and state.slots or {}) do
    if slot.freeAt > now and slot.seq == 0 then cooling = cooling + 1 end
    if slot.freeAt > now and slot.seq > 0 then lanes[slot.lane] = (lanes[slot.lane] or 0) + 1 end
  end
  answer = { rate = rules.rate, allowed = allowed, cooling = cooling, lanes = lanes,
    pausedMs = state and math.max(0, state.pausedUntil - now) or 0, throttled = state and state.throttled or 0 }
end

if changed then redis.call('SET', KEYS[1], cjson.encode(state), 'PX', rules.keepMs) end
return cjson.encode(answer)
`;
const SCRIPT_SHA = createHash('sha1').update(SCRIPT).digest('hex');

export interface RedisStoreOptions {
  redis: Redis | Cluster;
  /** Whose quota: service address and organization. The same key in other processes is the same quota. */
  key: string;
  /** Requests a second. */
  rate: number;
  rules?: Partial<QuotaRules>;
}

/** Slots in Redis. The connection belongs to the caller and should fail rather than queue while offline. */
export function createRedisStore({ redis, key, rate, rules: changes }: RedisStoreOptions): SlotStore {
  const rules = JSON.stringify(quotaRules(rate, changes));
  const name = `slotsync:quota:${key}`;

  async function run(step: string, ...args: (string | number)[]): Promise<unknown> {
    try {
      return await redis.evalsha(SCRIPT_SHA, 1, name, step, rules, ...args);
    } catch (error) {
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error;
      return redis.eval(SCRIPT, 1, name, step, rules, ...args);
    }
  }

  return {
    take: async (lane, leaseMs) => parseTaken(await run('take', lane, leaseMs)),
    release: async (token) => void (await run('release', token)),
    throttled: async (retryAfterMs) => void (await run('throttled', retryAfterMs ?? '')),
    usage: async () => parseUsage(await run('usage')),
  };
}
