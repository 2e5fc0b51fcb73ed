// What both stores answer: one JSON text, parsed at the border.
import { z } from 'zod';
import { LANES, type QuotaUsage, type Taken } from './limiter.js';

const takenSchema = z.discriminatedUnion('granted', [
  z.object({ granted: z.literal(true), token: z.string().min(1), waitMs: z.number().min(0) }),
  z.object({ granted: z.literal(false), waitMs: z.number().positive() }),
]);

const usageSchema = z.object({
  rate: z.number(),
  allowed: z.number(),
  cooling: z.number(),
  pausedMs: z.number(),
  throttled: z.number(),
  lanes: z.partialRecord(z.enum(LANES), z.number()),
});

export function parseTaken(answer: unknown): Taken {
  return takenSchema.parse(jsonOf(answer));
}

export function parseUsage(answer: unknown): QuotaUsage {
  const { lanes: held, ...usage } = usageSchema.parse(jsonOf(answer));
  const lanes = { incremental: 0, nightly: 0, backfill: 0, verify: 0, ...held };
  const heldSlots = LANES.reduce((sum, lane) => sum + lanes[lane], 0);
  return { ...usage, lanes, held: heldSlots, free: Math.max(0, usage.allowed - heldSlots - usage.cooling) };
}

function jsonOf(answer: unknown): unknown {
  return JSON.parse(z.string().parse(answer));
}
