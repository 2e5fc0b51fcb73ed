// The steps of one request to the service: half the latency, the quota, the gate, the faults, the endpoint, the time for its
// objects, the other half. The order matters: requests spread out on the way, and the service counts when they arrive.
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { createArrivals, createQuota, type QuotaOptions } from './quota.js';
import { createFaults, type Faults } from './faults.js';
import type { ReceivedRequest, SandboxAnswer } from './http.js';
import { EventEmitter, once } from 'node:events';

export interface StepOptions extends QuotaOptions {
  /** Half of it passes before the quota is checked, half after. */
  latencyMs?: number | undefined;
  /** Up to this much is added to the latency, by seeded chance. */
  jitterMs?: number | undefined;
  /** Added for each object of a PUT that is carried out, and for each result of a find of objects. May be a fraction. */
  latencyPerObjectMs?: number | undefined;
  /** For random faults and jitter. */
  seed?: number | undefined;
  faults?: Faults | undefined;
  /** Holds matching requests from the start, until `openGate`. */
  gate?: GateRule | undefined;
}

export const latencySchema = z.strictObject({
  latencyMs: z.number().min(0),
  jitterMs: z.number().min(0).optional(),
  latencyPerObjectMs: z.number().min(0).optional(),
});

/** Takes requests through the steps until `signal` aborts; then those on their way are dropped. */
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
    /** The answer to a request; undefined when its connection is to be reset. */
    async process(request: ReceivedRequest): Promise<SandboxAnswer | undefined> {
      const halfMs = (latencyMs + random() * jitterMs) / 2;
      if (halfMs > 0) await sleep(halfMs, undefined, { signal });

      // Counted and processed without a pause in between, unless the gate holds it.
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
      /** In milliseconds; `nextPerObjectMs` is `latencyPerObjectMs`. */
      setLatency(nextMs: number, nextJitterMs = 0, nextPerObjectMs = 0): void {
        [latencyMs, jitterMs, latencyPerObjectMs] = [nextMs, nextJitterMs, nextPerObjectMs];
      },
    },
  };
}

/** The length of a list in a document, valid or not; undefined when it has none. */
function lengthOf(document: unknown, name: 'objects' | 'results'): number | undefined {
  const list = (document as Record<string, unknown> | null | undefined)?.[name];
  return Array.isArray(list) ? list.length : undefined;
}

/**
 * A generator of numbers in [0, 1) (mulberry32): the same seed makes the same numbers. Faults have to be repeatable.
 */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// Holds requests at the service until they are let go. A rehearsal stops the service at a known place with it, acts
// (cancels the run, kills the worker, changes a row) and lets the service continue, so that nothing depends on a clock.

export const gateRuleSchema = z.strictObject({
  /** The end of the path it holds; any path, when absent. */
  path: z.string().optional(),
  method: z.string().toUpperCase().optional(),
  /**
   * `request`, the default: held on arrival, counted by the quota, not processed. `answer`: processed, and the answer is
   * held.
   */
  hold: z.enum(['request', 'answer']).optional(),
  /** So many matching requests pass first; 0 unless given. */
  after: z.int().min(0).optional(),
});
export type GateRule = z.infer<typeof gateRuleSchema>;

/** Closed from the start when a rule is given. */
function createGate(initial?: GateRule) {
  let rule = initial;
  let passed = 0;
  const opening = new EventEmitter().setMaxListeners(0);

  /** The place where the rule holds this request, if it does. */
  function placeFor(method: string, path: string): 'request' | 'answer' | undefined {
    if (rule === undefined || method !== (rule.method ?? method) || !path.endsWith(rule.path ?? ''))
      return undefined;
    passed += 1;
    return passed > (rule.after ?? 0) ? (rule.hold ?? 'request') : undefined;
  }

  return {
    /** Processes a request, and holds it or its answer if the rule says so; throws when `signal` aborts meanwhile. */
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
       * Holds the requests that match and that the quota lets through, from now on. They are answered when the gate opens,
       * and processed then if they were not yet, also when their client has gone. What an earlier rule holds stays held.
       */
      closeGate(next: GateRule = {}): void {
        rule = next;
        passed = 0;
      },
      /** Lets go all that is held. */
      openGate(): void {
        rule = undefined;
        opening.emit('open');
      },
      /** Whether the gate is closed, and how many requests it holds, also those whose client has gone. */
      gate: () => ({ closed: rule !== undefined, held: opening.listenerCount('open') }),
    },
  };
}
