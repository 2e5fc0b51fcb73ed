// The steps of one request to the service: half the latency, the quota, the gate, the faults, the endpoint, the other half.
// The order matters: requests spread out on the way, and the service counts when they arrive.
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { createArrivals } from './arrivals.js';
import { createFaults, type Faults } from './faults.js';
import { createGate, type GateRule } from './gate.js';
import type { SandboxAnswer } from './http.js';
import { createQuota, type QuotaOptions } from './quota-window.js';
import { createRandom } from './random.js';
import type { ReceivedRequest } from './router.js';

export interface StepOptions extends QuotaOptions {
  /** Half of it passes before the quota is checked, half after. */
  latencyMs?: number | undefined;
  /** Up to this much is added to the latency, by seeded chance. */
  jitterMs?: number | undefined;
  /** For random faults and jitter. */
  seed?: number | undefined;
  faults?: Faults | undefined;
  /** Holds matching requests from the start, until `openGate`. */
  gate?: GateRule | undefined;
}

export const latencySchema = z.strictObject({
  latencyMs: z.number().min(0),
  jitterMs: z.number().min(0).optional(),
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
  let { latencyMs = 0, jitterMs = 0 } = options;

  return {
    /** The answer to a request; undefined when its connection is to be reset. */
    async process(request: ReceivedRequest): Promise<SandboxAnswer | undefined> {
      const halfMs = (latencyMs + random() * jitterMs) / 2;
      if (halfMs > 0) await sleep(halfMs, undefined, { signal });

      // Counted and processed without a pause in between, unless the gate holds it.
      const arrival = arrivals.note(request);
      const json = () => {
        const body = request.json();
        const objects = request.method === 'PUT' ? countObjects(body) : undefined;
        if (objects !== undefined) arrival.objects = objects;
        return body;
      };
      const processed = () => faults.process(request, () => answer({ ...request, json }));
      const result = quota.refuse(arrival.at) ?? (await gate.process(request, processed, signal));
      if (result !== undefined) arrivals.settle(arrival, result.status);

      if (halfMs > 0) await sleep(halfMs, undefined, { signal });
      return result;
    },
    controls: {
      ...arrivals.controls,
      ...quota.controls,
      ...gate.controls,
      ...faults.controls,
      setLatency(nextMs: number, nextJitterMs = 0): void {
        [latencyMs, jitterMs] = [nextMs, nextJitterMs];
      },
    },
  };
}

/** The objects in a body, valid or not; undefined when it has none. */
function countObjects(body: unknown): number | undefined {
  if (typeof body !== 'object' || body === null || !('objects' in body)) return undefined;
  return Array.isArray(body.objects) ? body.objects.length : undefined;
}
