// The life of one request to the service: half the latency, the quota, the gate, the faults, the answer, the other
// half. The order matters: requests spread out on the way, and the service counts when they arrive.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { text as readText } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Arrivals } from './arrivals.js';
import type { FaultSource } from './faults.js';
import type { Gate } from './gate.js';
import { answerTo, parseJson, requireJson, send } from './http.js';
import type { SandboxAnswer } from './http.js';
import { countObjects } from './put-objects.js';
import type { QuotaWindow } from './quota-window.js';
import type { ServiceRequest } from './router.js';

/** What can be changed while the sandbox runs. */
export interface Conditions {
  window: QuotaWindow;
  retryAfter: boolean;
  latencyMs: number;
  jitterMs: number;
}

/** Handles requests of the service until `signal` aborts; then those on the way are dropped. */
export function createExchange(deps: {
  conditions: Conditions;
  arrivals: Arrivals;
  faults: FaultSource;
  gate: Gate;
  route: (request: ServiceRequest) => SandboxAnswer;
  random: () => number;
  signal: AbortSignal;
}) {
  const { conditions, arrivals, faults, gate, route, random, signal } = deps;

  return async (request: IncomingMessage, response: ServerResponse, path: string): Promise<void> => {
    const text = await readText(request);
    const halfMs = (conditions.latencyMs + random() * conditions.jitterMs) / 2;
    if (halfMs > 0) await sleep(halfMs, undefined, { signal });

    // Checked and processed without a pause in between, unless the gate holds it, so nothing else happens in between.
    const at = performance.now();
    const waitMs = conditions.window.take(at);
    const method = request.method ?? 'GET';
    const lane = request.headers['x-slotsync-lane'];
    const arrival = arrivals.note({
      at,
      method,
      path,
      status: 0,
      ...(typeof lane === 'string' ? { lane } : {}),
    });
    const json = () => {
      requireJson(request);
      const body = parseJson(text);
      const objects = method === 'PUT' ? countObjects(body) : undefined;
      if (objects !== undefined) arrival.objects = objects;
      return body;
    };
    const process = (): SandboxAnswer => {
      try {
        return route({ method, path, headers: request.headers, json });
      } catch (error) {
        return answerTo(error);
      }
    };

    const held = waitMs > 0 ? undefined : gate.placeFor(method, path);
    if (held === 'request') await gate.wait(signal);
    const fault = waitMs > 0 ? undefined : faults.draw(path);
    const answer = waitMs > 0 ? overQuota(waitMs, conditions.retryAfter) : answerFor(fault?.fault, process);
    if (fault?.fault === 'hang') return;
    if (fault?.fault === 'status') {
      answer.status = fault.status ?? 500;
      answer.body = fault.body ?? { status: answer.status, message: 'fault on order' };
      answer.headers = fault.headers;
    }
    if (held === 'answer') await gate.wait(signal);
    const isReset = fault?.fault === 'reset' || fault?.fault === 'loseAnswer';
    if (!isReset) arrivals.settle(arrival, answer.status);
    if (halfMs > 0) await sleep(halfMs, undefined, { signal });
    if (isReset) request.socket.resetAndDestroy();
    else send(response, answer, { broken: fault?.fault === 'brokenJson' });
  };
}

function answerFor(fault: string | undefined, process: () => SandboxAnswer): SandboxAnswer {
  const isProcessed = fault === undefined || fault === 'loseAnswer' || fault === 'brokenJson';
  return isProcessed ? process() : { status: 500 };
}

function overQuota(waitMs: number, retryAfter: boolean): SandboxAnswer {
  return {
    status: 429,
    body: { status: 429, message: 'the organization is over its quota' },
    headers: retryAfter ? { 'retry-after': String(Math.ceil(waitMs / 1000)) } : undefined,
  };
}
