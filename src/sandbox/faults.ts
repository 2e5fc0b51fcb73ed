// Faults on the way to a real service and back: ordered for certain requests, or by seeded chance.
import { EventEmitter, once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { htmlAnswer, type SandboxAnswer } from './http.js';

const chance = z.number().min(0).max(1).optional();

/** Probabilities from 0 to 1, for each request that the quota lets through. */
export const faultsSchema = z.strictObject({
  /** Answered with 500, not processed. */
  status500: chance,
  /** Connection reset before processing. */
  reset: chance,
  /** Processed, then the connection is reset instead of an answer. */
  loseAnswer: chance,
  /** Processed, and answered with half a JSON document. */
  brokenJson: chance,
  /** Not processed and never answered. */
  hang: chance,
  /** Not processed, and answered as a gateway does: an HTML page with `htmlStatus`. */
  html: chance,
  /** 502 unless given. */
  htmlStatus: z.int().min(200).max(599).optional(),
  /** The connection is reset at once, and the request is processed `lateMs` later. */
  late: chance,
  /** 5000 unless given. */
  lateMs: z.number().min(0).optional(),
});
export type Faults = z.infer<typeof faultsSchema>;

const FAULTS = ['status', 'reset', 'loseAnswer', 'brokenJson', 'hang', 'html', 'late'] as const;

export const failRuleSchema = z.strictObject({
  /** The end of the path it is for; any request, when absent. */
  path: z.string().optional(),
  method: z.string().toUpperCase().optional(),
  /** Only a PUT with this object in it, or a find that names it. */
  extId: z.string().optional(),
  fault: z.enum(FAULTS),
  /** For `status`: 500 unless given. For `html`: 502 unless given. */
  status: z.int().min(200).max(599).optional(),
  body: z.unknown().optional(),
  /** For `status`: the request is processed all the same. */
  isProcessed: z.boolean().optional(),
  headers: z.record(z.string(), z.string()).optional(),
  /** How many requests it hits; 1 unless given. `always`: until the rules are cleared. */
  times: z.union([z.int().min(1), z.literal('always')]).optional(),
  /** For `late`: the connection is reset so many milliseconds after arrival; 0 unless given. `asked`: at `resetLate`. */
  afterMs: z.union([z.number().min(0), z.literal('asked')]).optional(),
  /** For `late`: processed so many milliseconds after arrival; at `releaseLate` unless given. */
  delayMs: z.number().min(0).optional(),
});
export type FailRule = z.infer<typeof failRuleSchema>;

const named = z.union([
  z
    .object({ objects: z.array(z.object({ extId: z.string() })) })
    .transform(({ objects }) => objects.map(({ extId }) => extId)),
  z.object({ extIds: z.array(z.string()) }).transform(({ extIds }) => extIds),
]);

/** Whether an object is in the body of a PUT or of a find. */
const isNamed = (extId: string, body: unknown): boolean =>
  named.safeParse(body).data?.includes(extId) ?? false;

/** Draws faults until `signal` aborts; then the requests that a fault holds are dropped. */
export function createFaults(random: () => number, signal: AbortSignal, initial: Faults = {}) {
  const late = createLateRequests(signal);
  let chances = initial;
  let rules: (FailRule & { left: number })[] = [];

  /** The fault that a request meets, if any: ordered ones first, in their order, then by chance. */
  function draw(method: string, path: string, json: () => unknown = () => undefined): FailRule | undefined {
    const rule = rules.find(
      (rule) =>
        path.endsWith(rule.path ?? '') &&
        method === (rule.method ?? method) &&
        (rule.extId === undefined || isNamed(rule.extId, json())),
    );
    if (rule !== undefined) {
      rule.left -= 1;
      if (rule.left <= 0) rules = rules.filter((other) => other !== rule);
      return rule;
    }
    let left = random();
    for (const fault of FAULTS) {
      left -= chances[fault === 'status' ? 'status500' : fault] ?? 0;
      if (left >= 0) continue;
      const { htmlStatus, lateMs = 5000 } = chances;
      return { fault, ...(fault === 'html' ? { status: htmlStatus } : { delayMs: lateMs }) };
    }
    return undefined;
  }

  return {
    draw,
    /** Processes a request with the fault that it meets; without an answer the connection is to be reset. */
    async process(
      { method, path, json }: { method: string; path: string; json?: () => unknown },
      processed: () => SandboxAnswer,
    ): Promise<SandboxAnswer | undefined> {
      const rule = draw(method, path, json);
      const status = rule?.status ?? 500;
      switch (rule?.fault) {
        case undefined:
          return processed();
        case 'status':
          if (rule.isProcessed) processed();
          return { status, headers: rule.headers, body: rule.body ?? { status, message: 'requested fault' } };
        case 'reset':
          return undefined;
        case 'loseAnswer':
          processed();
          return undefined;
        case 'brokenJson':
          return { ...processed(), isBroken: true };
        case 'hang':
          await once(signal, 'abort');
          return undefined;
        case 'html':
          return htmlAnswer(rule.status ?? 502);
        case 'late':
          await late.keep(processed, rule);
          return undefined;
      }
    },
    controls: {
      setFaults(next: Faults): void {
        chances = next;
      },
      ...late.controls,
      /** Orders a fault for the next request that the quota lets through and that the rule is for. */
      failNext(rule: FailRule): void {
        const { times = 1 } = rule;
        rules.push({ ...rule, left: times === 'always' ? Infinity : times });
      },
      /** Forgets what `failNext` ordered and has not happened yet; what waits to be processed late still waits. */
      clearFailures(): void {
        rules = [];
      },
    },
  };
}

/**
 * Requests that lost their connection and are carried out all the same, later: a client sees a lost answer while its write
 * may still land. They are carried out as they were sent, after whatever was written meanwhile. When `signal` aborts, those
 * that wait are dropped.
 */
function createLateRequests(signal: AbortSignal) {
  const waiting = new Set<() => unknown>();
  const resetting = new EventEmitter().setMaxListeners(0);
  const carryOut = (request: () => unknown): void => {
    if (waiting.delete(request)) request();
  };

  return {
    /**
     * Carries a request out `delayMs` after its arrival, or when `releaseLate` is called. Resolves when its connection is
     * to be reset; throws when `signal` aborts before.
     */
    async keep(
      request: () => unknown,
      { afterMs = 0, delayMs }: Pick<FailRule, 'afterMs' | 'delayMs'>,
    ): Promise<void> {
      waiting.add(request);
      if (delayMs !== undefined) void sleep(delayMs, request, { signal }).then(carryOut, () => undefined);
      if (afterMs === 'asked') await once(resetting, 'reset', { signal });
      else if (afterMs > 0) await sleep(afterMs, undefined, { signal });
    },
    controls: {
      /** How many requests wait to be carried out late. */
      late: () => waiting.size,
      /** Carries them out now, in the order in which they arrived. */
      releaseLate: (): void => waiting.forEach(carryOut),
      /** Resets the connections that were to stay until this is called. */
      resetLate: (): void => void resetting.emit('reset'),
    },
  };
}
