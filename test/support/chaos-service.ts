// The played service with two things more than the sandbox has: it can go down and come back as it was, and a
// stranger can use the organization's quota beside us.
import { setTimeout as pause } from 'node:timers/promises';
import { mostInAnySecond, type Arrival } from '../../src/sandbox/quota.js';
import type { FailRule, Faults } from '../../src/sandbox/faults.js';
import type { GateRule } from '../../src/sandbox/request-steps.js';
import { startSandbox, type Sandbox, type SandboxOptions } from '../../src/sandbox/sandbox.js';

export type ChaosService = Awaited<ReturnType<typeof startChaosService>>;

export const API = { organizationId: 'demo', apiKey: 'sandbox-key', region: 'EU_EES' };
const STRANGER = 'stranger';

export async function startChaosService(options: SandboxOptions) {
  let sandbox: Sandbox | undefined = await startSandbox(options);
  const { url } = sandbox;
  const port = Number(new URL(url).port);
  /** Arrivals and objects of those that went down. */
  const before: Arrival[] = [];
  let kept = sandbox.objects();
  let faults: Faults = {};
  let latency: [number, number] = [options.latencyMs ?? 0, options.jitterMs ?? 0];

  const objects = () => sandbox?.objects() ?? kept;
  const arrivals = () => [...before, ...(sandbox?.arrivals() ?? [])];
  const ours = () => arrivals().filter(({ lane }) => lane !== STRANGER);

  async function down(): Promise<void> {
    if (!sandbox) return;
    kept = sandbox.objects();
    before.push(...sandbox.arrivals());
    const closing = sandbox;
    sandbox = undefined;
    await closing.close();
  }

  async function send(method: string, path: string, headers: Record<string, string>): Promise<Response> {
    return fetch(`${url}${path}`, {
      method,
      headers: { 'x-slotsync-lane': STRANGER, 'content-type': 'application/json', ...headers },
      body: path.endsWith('/find') ? JSON.stringify({ idFormat: 'EXTERNAL' }) : null,
    });
  }

  return {
    url,
    objects,
    arrivals,
    /** Arrivals that were not the stranger's. */
    ours,
    puts: () => arrivals().filter(({ method }) => method === 'PUT'),
    object: (extId: string) => objects().find((object) => object.extId === extId),
    mostOfOursInAnySecond: () => mostInAnySecond(ours().map(({ at }) => at)),
    sandbox: () => sandbox,

    setFaults(next: Faults): void {
      faults = next;
      sandbox?.setFaults(next);
    },
    /** Orders a fault for the next write; ignored while the service is down. */
    failNextWrite: (rule: Pick<FailRule, 'fault' | 'afterMs' | 'delayMs'>) =>
      sandbox?.failNext({ ...rule, method: 'PUT', path: '/objects' }),
    /** Requests whose connection broke and that are still to be carried out. */
    late: () => sandbox?.late() ?? 0,
    /** Forgets what was ordered and has not happened. */
    clearFailures: () => sandbox?.clearFailures(),
    setLatency(latencyMs: number, jitterMs = 0): void {
      latency = [latencyMs, jitterMs];
      sandbox?.setLatency(latencyMs, jitterMs);
    },
    revokeTokens: () => sandbox?.revokeTokens(),
    /** Holds requests until `openGate`; ignored while the service is down. */
    closeGate: (rule: GateRule) => sandbox?.closeGate(rule),
    openGate: () => sandbox?.openGate(),
    held: () => sandbox?.gate().held ?? 0,

    /** Refuses connections from now on, and drops what is on the way. */
    down,
    /** Back at its address with the objects it had; its tokens are forgotten. */
    async up(): Promise<void> {
      if (sandbox) return;
      const back = await startSandbox({ ...options, port });
      for (const object of kept) back.putObject(object);
      back.setFaults(faults);
      back.setLatency(...latency);
      sandbox = back;
    },

    /** Someone else's requests on the same quota, `perSecond` of them for a while. */
    async stranger(perSecond: number, ms: number): Promise<void> {
      const until = performance.now() + ms;
      let token = '';
      while (performance.now() < until) {
        try {
          if (token === '') {
            const path = `/v1/organizations/${API.organizationId}/api-keys/authenticate`;
            const headers = { authorization: `Api-Key ${API.apiKey}`, 'x-region': API.region };
            const answer = await send('POST', path, headers);
            if (answer.ok) token = ((await answer.json()) as { token: string }).token;
          } else {
            const answer = await send('POST', '/v1/types/find', { authorization: `Bearer ${token}` });
            if (answer.status === 401) token = '';
            await answer.arrayBuffer();
          }
        } catch {
          // The service's faults are the stranger's too.
        }
        await pause(1000 / perSecond);
      }
    },

    async close(): Promise<void> {
      await down();
    },
  };
}
