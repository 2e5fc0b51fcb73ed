// Steps of one request in the sandbox, in order. Half of the simulated latency passes before the request counts against
// the quota, because a service counts a request when it arrives.
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { createArrivals, createQuota, type QuotaOptions } from './quota.js';
import { createFaults, type Faults } from './faults.js';
import type { ReceivedRequest, SandboxAnswer } from './http.js';
import { EventEmitter, once } from 'node:events';

export interface StepOptions extends QuotaOptions {
  /** Latency of a request in milliseconds. Half of it passes before the quota check, half afterwards. */
  latencyMs?: number | undefined;
  /** Maximum of the random milliseconds that are added to the latency. */
  jitterMs?: number | undefined;
  /** Milliseconds, may be a fraction, for each object of a processed PUT and each result of a find of objects. */
  latencyPerObjectMs?: number | undefined;
  /** Seed of the random faults and the jitter. */
  seed?: number | undefined;
  faults?: Faults | undefined;
  /** Rule of a gate that holds matching requests from the start, until `openGate` is called. */
  gate?: GateRule | undefined;
}

export const latencySchema = z.strictObject({
  latencyMs: z.number().min(0),
  jitterMs: z.number().min(0).optional(),
  latencyPerObjectMs: z.number().min(0).optional(),
});

/** Creates the steps of requests. When `signal` aborts, requests in progress are dropped. */
export function createRequestSteps(
  options: StepOptions,
  answer: (request: ReceivedRequest) => SandboxAnswer,
  signal: AbortSignal,
) {
  const random = createRandom(options.seed ?? 1);
  const arrivals = createArrivals();
  const quota = createQuota(options);
  const gate = createGate(options.gate);
  const faults = createFaults(random, signal, options.faults);
  let { latencyMs = 0, jitterMs = 0, latencyPerObjectMs = 0 } = options;

  return {
    /** Returns the answer to a request, or undefined if its connection must be reset. */
    async process(request: ReceivedRequest): Promise<SandboxAnswer | undefined> {
      const halfMs = (latencyMs + random() * jitterMs) / 2;
      if (halfMs > 0) await sleep(halfMs, undefined, { signal });

      // A request is counted and processed without a pause in between, unless the gate holds it.
      const arrival = arrivals.note(request);
      const json = () => {
        const body = request.json();
        const objects = lengthOf(body, 'objects');
        if (objects !== undefined) arrival.objects = objects;
        return body;
      };
      let results = 0;
      const carryOut = () => {
        const carriedOut = answer({ ...request, json });
        // A request that is refused as a whole has no results.
        if (request.path.startsWith('/v1/objects')) results = lengthOf(carriedOut.body, 'results') ?? 0;
        return carriedOut;
      };
      const processed = () => faults.process({ ...request, json }, carryOut);
      const result = quota.refuse(arrival.at) ?? (await gate.process(request, processed, signal));
      if (result !== undefined) arrivals.settle(arrival, result.status);

      const restMs = halfMs + results * latencyPerObjectMs;
      if (restMs > 0) await sleep(restMs, undefined, { signal });
      return result;
    },
    controls: {
      ...arrivals.controls,
      ...quota.controls,
      ...gate.controls,
      ...faults.controls,
      /** Sets latency, jitter and latency per object, in milliseconds. */
      setLatency(nextMs: number, nextJitterMs = 0, nextPerObjectMs = 0): void {
        [latencyMs, jitterMs, latencyPerObjectMs] = [nextMs, nextJitterMs, nextPerObjectMs];
      },
    },
  };
}

/** Returns the length of a list in any document, or undefined if there is no such list. */
function lengthOf(document: unknown, name: 'objects' | 'results'): number | undefined {
  const list = (document as Record<string, unknown> | null | undefined)?.[name];
  return Array.isArray(list) ? list.length : undefined;
}

/** Returns a generator of numbers in [0, 1) (mulberry32). A seed makes the numbers repeatable, and so the faults. */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// The gate holds requests at a known place in the service. A test can then act, for example cancel the run or kill the
// worker, and open the gate. No test depends on timing.

export const gateRuleSchema = z.strictObject({
  /** End of the path of held requests. If undefined, every path matches. */
  path: z.string().optional(),
  method: z.string().toUpperCase().optional(),
  /** `request` (default): a held request is counted but not processed. `answer`: it is processed, its answer held. */
  hold: z.enum(['request', 'answer']).optional(),
  /** Number of matching requests that pass before the gate holds one; 0 by default. */
  after: z.int().min(0).optional(),
});
export type GateRule = z.infer<typeof gateRuleSchema>;

/** Creates a gate. With `initial`, the gate is closed from the start. */
function createGate(initial?: GateRule) {
  let rule = initial;
  let passed = 0;
  const opening = new EventEmitter().setMaxListeners(0);

  /** Returns whether the gate holds this request or its answer, or undefined if it lets the request pass. */
  function placeFor(method: string, path: string): 'request' | 'answer' | undefined {
    if (rule === undefined || method !== (rule.method ?? method) || !path.endsWith(rule.path ?? ''))
      return undefined;
    passed += 1;
    return passed > (rule.after ?? 0) ? (rule.hold ?? 'request') : undefined;
  }

  return {
    /** Processes a request. Holds the request or its answer if the rule says so. Throws if `signal` aborts. */
    async process<T>(
      { method, path }: { method: string; path: string },
      processed: () => Promise<T>,
      signal: AbortSignal,
    ): Promise<T> {
      const place = placeFor(method, path);
      if (place === 'request') await once(opening, 'open', { signal });
      const answer = await processed();
      if (place === 'answer') await once(opening, 'open', { signal });
      return answer;
    },
    controls: {
      /**
       * Closes the gate for matching requests that the quota accepts. Opening the gate processes and answers them, even
       * if their client has disconnected. Requests held by an earlier rule stay held.
       */
      closeGate(next: GateRule = {}): void {
        rule = next;
        passed = 0;
      },
      openGate(): void {
        rule = undefined;
        opening.emit('open');
      },
      /** Returns the gate's state, and the number of held requests, including those of disconnected clients. */
      gate: () => ({ closed: rule !== undefined, held: opening.listenerCount('open') }),
    },
  };
}
