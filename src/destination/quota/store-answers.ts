// What both stores answer: one JSON text, checked here. By hand: `status` reads the quota too, and zod would be a third
// of what it loads.
import type { QuotaUsage, SlotAnswer } from './limiter.js';
import { LANES, type Lane } from './quota-rules.js';

type Answer = Readonly<Record<string, unknown>>;

export function parseTaken(text: unknown): SlotAnswer {
  const answer = parseObject(text);
  if (answer['granted'] !== true) return { granted: false, askMs: number(answer, 'askMs') };
  const { token } = answer;
  if (typeof token !== 'string' || token === '') throw invalid('token');
  const askMs = answer['askMs'] === undefined ? {} : { askMs: number(answer, 'askMs') };
  return { granted: true, token, waitMs: number(answer, 'waitMs'), ...askMs };
}

export function parseUsage(text: unknown): QuotaUsage {
  const answer = parseObject(text);
  const rate = number(answer, 'rate');
  const allowed = number(answer, 'allowed');
  const cooling = number(answer, 'cooling');
  const lanes = byLane(answer, 'lanes');
  const held = LANES.reduce((sum, lane) => sum + lanes[lane], 0);
  return {
    rate,
    allowed,
    cooling,
    lanes,
    held,
    waiting: byLane(answer, 'waiting'),
    pausedMs: number(answer, 'pausedMs'),
    throttled: number(answer, 'throttled'),
    granted: number(answer, 'granted'),
    free: Math.max(0, allowed - held - cooling),
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
  const some = answer[field];
  if (typeof some !== 'object' || some === null) throw invalid(field);
  const counts = { incremental: 0, sync: 0, backfill: 0, verify: 0 };
  for (const lane of Object.keys(some)) {
    if (!Object.hasOwn(counts, lane)) throw invalid(`${field}.${lane}`);
    counts[lane as Lane] = number(some as Answer, lane);
  }
  return counts;
}

function number(answer: Answer, field: string): number {
  const value = answer[field];
  if (typeof value !== 'number' || value < 0) throw invalid(field);
  return value;
}

function invalid(field: string): Error {
  return new Error(`the store of the quota gave no valid ${field}`);
}
