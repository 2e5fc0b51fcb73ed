// The steps of one request to the service: half the latency, the quota, the gate, the faults, the endpoint, the time for its
// objects, the other half. The order matters: requests spread out on the way, and the service counts when they arrive.
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { createArrivals } from './arrivals.js';
import { createFaults, type Faults } from './faults.js';
import { createGate, type GateRule } from './gate.js';
import type { ReceivedRequest, SandboxAnswer } from './http.js';
import { createQuota, type QuotaOptions } from './quota-window.js';
import { createRandom } from './random.js';

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
