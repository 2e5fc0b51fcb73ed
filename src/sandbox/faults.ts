// Faults of the sandbox, like those of a real service and network: ordered for certain requests, or by seeded chance.
import { EventEmitter, once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { htmlAnswer, type SandboxAnswer } from './http.js';

const chance = z.number().min(0).max(1).optional();

/** Probability of each fault, from 0 to 1, for each request that the quota accepts. */
export const faultsSchema = z.strictObject({
  /** Answers with status 500 without processing the request. */
  status500: chance,
  /** Resets the connection without processing the request. */
  reset: chance,
  /** Processes the request, then resets the connection instead of answering. */
  loseAnswer: chance,
  /** Processes the request, and answers with half a JSON document. */
  brokenJson: chance,
  /** Neither processes nor answers the request. */
  hang: chance,
  /** Answers with an HTML page and `htmlStatus`, like a gateway, without processing the request. */
  html: chance,
  /** Status of the HTML page; 502 by default. */
  htmlStatus: z.int().min(200).max(599).optional(),
  /** Resets the connection at once, and processes the request `lateMs` later. */
  late: chance,
  /** Milliseconds until a late request is processed; 5000 by default. */
  lateMs: z.number().min(0).optional(),
});
export type Faults = z.infer<typeof faultsSchema>;

const FAULTS = ['status', 'reset', 'loseAnswer', 'brokenJson', 'hang', 'html', 'late'] as const;

export const failRuleSchema = z.strictObject({
  /** End of the request's path. If undefined, the rule matches every path. */
  path: z.string().optional(),
  method: z.string().toUpperCase().optional(),
  /** External id of an object. The rule matches only a PUT or a find that names this object. */
  extId: z.string().optional(),
  fault: z.enum(FAULTS),
  /** Status of the answer for the faults `status` (500 by default) and `html` (502 by default). */
  status: z.int().min(200).max(599).optional(),
  body: z.unknown().optional(),
  /** If true, a request with the fault `status` is processed nevertheless. */
  isProcessed: z.boolean().optional(),
  headers: z.record(z.string(), z.string()).optional(),
  /** Number of requests that get the fault; 1 by default. `always`: until the rules are cleared. */
  times: z.union([z.int().min(1), z.literal('always')]).optional(),
  /** For the fault `late`: milliseconds until the connection is reset (default 0); `asked`: until `resetLate`. */
  afterMs: z.union([z.number().min(0), z.literal('asked')]).optional(),
  /** For the fault `late`: milliseconds until the request is processed. By default, `releaseLate` processes it. */
  delayMs: z.number().min(0).optional(),
});
export type FailRule = z.infer<typeof failRuleSchema>;

const named = z.union([
  z
    .object({ objects: z.array(z.object({ extId: z.string() })) })
    .transform(({ objects }) => objects.map(({ extId }) => extId)),
  z.object({ extIds: z.array(z.string()) }).transform(({ extIds }) => extIds),
]);

/** Returns true if the body of a PUT or a find names the object. */
const isNamed = (extId: string, body: unknown): boolean =>
  named.safeParse(body).data?.includes(extId) ?? false;

/** Draws faults for requests. When `signal` aborts, the requests that a fault delays are dropped. */
export function createFaults(random: () => number, signal: AbortSignal, initial: Faults = {}) {
  const late = createLateRequests(signal);
  let chances = initial;
  let rules: (FailRule & { left: number })[] = [];

  /** Returns the fault for a request, if any. Ordered faults come first, then faults by chance. */
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
    /** Processes a request with its fault. Returns undefined if the connection must be reset without an answer. */
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
      /** Orders a fault for the next request that the rule matches and the quota accepts. */
      failNext(rule: FailRule): void {
        const { times = 1 } = rule;
        rules.push({ ...rule, left: times === 'always' ? Infinity : times });
      },
      /** Removes the ordered faults. Requests that wait to be processed late still wait. */
      clearFailures(): void {
        rules = [];
      },
    },
  };
}

/**
 * Requests whose connection is reset, but that are carried out later. To the client, the answer is lost while its write
 * may still arrive. When `signal` aborts, waiting requests are dropped.
 */
function createLateRequests(signal: AbortSignal) {
  const waiting = new Set<() => unknown>();
  const resetting = new EventEmitter().setMaxListeners(0);
  const carryOut = (request: () => unknown): void => {
    if (waiting.delete(request)) request();
  };

  return {
    /** Carries out a request after `delayMs`, or at `releaseLate`. Resolves when its connection must be reset. */
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
      /** Number of requests that wait to be carried out late. */
      late: () => waiting.size,
      /** Carries out all waiting requests now, in the order of their arrival. */
      releaseLate: (): void => waiting.forEach(carryOut),
      /** Resets the connections of the late requests that wait for this call (`afterMs: 'asked'`). */
      resetLate: (): void => void resetting.emit('reset'),
    },
  };
}
