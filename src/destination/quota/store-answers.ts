// The answers of both stores: one JSON text, checked here. By hand: `status` reads the quota too, and zod would be a third
// of what it loads.
import { LANES, type Lane } from './quota-rules.js';

type Answer = Readonly<Record<string, unknown>>;

/** Each to be sent in its `waitMs`. `askMs`: the waiter, who wants more, stays registered and asks again then. */
export interface SlotAnswer {
  grants: readonly { token: string; waitMs: number }[];
  askMs?: number | undefined;
}

export function parseTaken(text: unknown): SlotAnswer {
  const answer = parseObject(text);
  // An empty list of Lua is an empty object of JSON.
  const grants = Object.values(objectIn(answer, 'grants')).map((grant) => {
    const { token } = grant as Answer;
    if (typeof token !== 'string' || token === '') throw invalid('token');
    return { token, waitMs: number(grant as Answer, 'waitMs') };
  });
  return grants.length > 0 && answer['askMs'] === undefined
    ? { grants }
    : { grants, askMs: number(answer, 'askMs') };
}

/** The run id of the Redis that has the quota. */
export function parseServer(text: unknown): string {
  const { server } = parseObject(text);
  if (typeof server !== 'string') throw invalid('server');
  return server;
}

export type QuotaUsage = ReturnType<typeof parseUsage>;

export function parseUsage(text: unknown) {
  const answer = parseObject(text);
  const rate = number(answer, 'rate');
  const allowed = number(answer, 'allowed');
  const cooling = number(answer, 'cooling');
  const lanes = byLane(answer, 'lanes');
  const held = LANES.reduce((sum, lane) => sum + lanes[lane], 0);
  return {
    /** The quota, and what of it is allowed at present: less after a 429. */
    rate,
    allowed,
    /** Slots with a request under way; in the second after their answer; free. */
    held,
    cooling,
    free: Math.max(0, allowed - held - cooling),
    /** Held, by lane. */
    lanes,
    /** Waiting, by lane. Each process counts once in a lane, whatever number of its requests wait there. */
    waiting: byLane(answer, 'waiting'),
    /** Milliseconds until the pause ends, 0 without a pause. */
    pausedMs: number(answer, 'pausedMs'),
    /** Grants and 429 answers since the store has had its state. */
    granted: number(answer, 'granted'),
    throttled: number(answer, 'throttled'),
    /**
     * An estimate of how much of the quota other programs use, in requests a second. A 429 says only that the service
     * refused while fewer than N of our requests were in its window. So this is how far N was reduced: it rises by one
     * with each reduction and falls as N recovers.
     */
    usedByOthers: rate - allowed,
  };
}

function parseObject(text: unknown): Answer {
  const answer: unknown = typeof text === 'string' ? JSON.parse(text) : undefined;
  if (typeof answer !== 'object' || answer === null) throw invalid('object');
  return answer as Answer;
}

/** Lanes without a request are left out by the store. */
function byLane(answer: Answer, field: string): Record<Lane, number> {
  const some = objectIn(answer, field);
  const counts = { incremental: 0, sync: 0, backfill: 0, verify: 0 };
  for (const lane of Object.keys(some)) {
    if (!Object.hasOwn(counts, lane)) throw invalid(`${field}.${lane}`);
    counts[lane as Lane] = number(some, lane);
  }
  return counts;
}

function objectIn(answer: Answer, field: string): Answer {
  const value = answer[field];
  if (typeof value !== 'object' || value === null) throw invalid(field);
  return value as Answer;
}

function number(answer: Answer, field: string): number {
  const value = answer[field];
  if (typeof value !== 'number' || value < 0) throw invalid(field);
  return value;
}

function invalid(field: string): Error {
  return new Error(`the store of the quota gave no valid ${field}`);
}
