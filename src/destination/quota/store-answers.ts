// Parses the JSON answers of both stores. Not with zod, which would be a third of the code that `status` loads.
import { LANES, type Lane } from './quota-rules.js';

type Answer = Readonly<Record<string, unknown>>;
const parse = (text: unknown) => JSON.parse(String(text)) as Answer;

/**
 * Granted slots. Each request must wait for its `waitMs` before it is sent. If `askMs` is set, the waiter stays
 * registered and asks again after that time.
 */
export interface SlotAnswer {
  grants: readonly { token: string; waitMs: number }[];
  askMs?: number | undefined;
}

export function parseTaken(text: unknown): SlotAnswer {
  const answer = parse(text);
  // Lua encodes an empty list as an empty JSON object.
  const grants = Object.values(answer['grants'] as Record<string, Answer>).map((grant) => ({
    token: String(grant['token']),
    waitMs: number(grant, 'waitMs'),
  }));
  return grants.length > 0 && answer['askMs'] === undefined
    ? { grants }
    : { grants, askMs: number(answer, 'askMs') };
}

/** Returns the run id of the Redis server that stores the quota. */
export const parseServer = (text: unknown) => String(parse(text)['server']);

export type QuotaUsage = ReturnType<typeof parseUsage>;

export function parseUsage(text: unknown) {
  const answer = parse(text);
  const rate = number(answer, 'rate');
  const allowed = number(answer, 'allowed');
  const cooling = number(answer, 'cooling');
  const lanes = byLane(answer['lanes']);
  const held = LANES.reduce((sum, lane) => sum + lanes[lane], 0);
  return {
    /** The quota (`rate`), and the number of slots allowed at present, which is lower after a 429. */
    rate,
    allowed,
    /** Numbers of slots: used by a request (`held`), in the second after an answer (`cooling`), and `free`. */
    held,
    cooling,
    free: Math.max(0, allowed - held - cooling),
    lanes,
    /** Number of waiting queues, by lane. A process counts once in a lane, however many of its requests wait. */
    waiting: byLane(answer['waiting']),
    /** Milliseconds until the pause ends; 0 without a pause. */
    pausedMs: number(answer, 'pausedMs'),
    /** Numbers of grants and of 429 answers since the store's state was created. */
    granted: number(answer, 'granted'),
    throttled: number(answer, 'throttled'),
    /**
     * Estimated requests per second that other programs use: how far the allowed rate is reduced. A 429 shows only that
     * the service refused while fewer than `rate` of our requests were counted.
     */
    usedByOthers: rate - allowed,
  };
}

/** Counts by lane. The store omits lanes without requests. */
function byLane(counts: unknown): Record<Lane, number> {
  const { incremental = 0, sync = 0, backfill = 0, verify = 0 } = counts as Partial<Record<Lane, number>>;
  return { incremental, sync, backfill, verify };
}

/** Returns a number of an answer. Throws for a missing one, which would send a request without waiting. */
function number(answer: Answer, field: string): number {
  const value = answer[field];
  if (typeof value !== 'number' || value < 0)
    throw new Error(`the quota store's answer has no valid ${field}`);
  return value;
}
