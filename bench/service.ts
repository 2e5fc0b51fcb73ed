// Starts the service in a process of its own.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { SandboxOptions } from '../src/sandbox/sandbox.js';

export interface ServiceOptions extends SandboxOptions {
  /** So many of an hour each, their begins evenly between two times (seconds), in a hundred rooms. */
  reservations?: { count: number; from: number; to: number };
  /** Things 1 to `count`, as `fillThings` has their rows: those above `named` were made by hand, without an external id. */
  things?: { count: number; named: number };
}

/** A part of the service's summary. */
export interface Summary {
  requests: number;
  /** By endpoint and status. */
  answers: Record<string, Record<number, number>>;
  /** By type. */
  objects: Record<string, { active: number; inactive: number }>;
  mostInAnySecond: number;
}

export type Service = Awaited<ReturnType<typeof startService>>;

const SCRIPT = fileURLToPath(new URL('service-process.ts', import.meta.url));

export async function startService(options: ServiceOptions) {
  const args = ['--import', 'jiti/register', SCRIPT, JSON.stringify(options)];
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const [url] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  const summary = async (): Promise<Summary> =>
    (await (await fetch(`${url}/sandbox/summary`)).json()) as Summary;
  return {
    url,
    summary,
    /** Requests it has had so far. */
    requests: async (): Promise<number> => (await summary()).requests,
    async stop(): Promise<void> {
      const exit = once(child, 'exit');
      child.stdin.end();
      await exit;
    },
  };
}

/** The token of a loop that calls the service without the client. */
export async function authenticate(url: string): Promise<string> {
  const answer = await fetch(`${url}/v1/organizations/demo/api-keys/authenticate`, {
    method: 'POST',
    headers: { authorization: 'Api-Key sandbox-key', 'x-region': 'EU_EES' },
  });
  return ((await answer.json()) as { token: string }).token;
}
