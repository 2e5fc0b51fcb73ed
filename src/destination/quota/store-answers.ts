// What both stores answer: one JSON text, parsed at the border.
import { z } from 'zod';
import type { QuotaUsage, SlotAnswer } from './limiter.js';
import { LANES } from './quota-rules.js';

const ms = z.number().min(0);
const takenSchema = z.discriminatedUnion('granted', [
  z.object({ granted: z.literal(true), token: z.string().min(1), waitMs: ms, askMs: ms.optional() }),
  z.object({ granted: z.literal(false), askMs: ms }),
]);

const byLaneSchema = z
  .partialRecord(z.enum(LANES), z.number())
  .transform((some) => ({ incremental: 0, sync: 0, backfill: 0, verify: 0, ...some }));

const usageSchema = z.object({
  rate: z.number(),
  allowed: z.number(),
  cooling: z.number(),
  pausedMs: z.number(),
  throttled: z.number(),
  granted: z.number(),
  lanes: byLaneSchema,
  waiting: byLaneSchema,
});

export function parseTaken(answer: unknown): SlotAnswer {
  return takenSchema.parse(jsonOf(answer));
}

export function parseUsage(answer: unknown): QuotaUsage {
  const usage = usageSchema.parse(jsonOf(answer));
  const held = LANES.reduce((sum, lane) => sum + usage.lanes[lane], 0);
  return {
    ...usage,
    held,
    free: Math.max(0, usage.allowed - held - usage.cooling),
    usedByOthers: usage.rate - usage.allowed,
  };
}

function jsonOf(answer: unknown): unknown {
  return JSON.parse(z.string().parse(answer));
}
