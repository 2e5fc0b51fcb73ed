// The client processes of all cells: started once, since loading takes a process longer than a cell would like, and
// ended by their own process objects whatever happens.
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { OpenOrder, Order, Report } from './limiter-client.js';

const CLIENT = fileURLToPath(new URL('./limiter-client.ts', import.meta.url));
const END_MS = 3_000;

export type Clients = ReturnType<typeof startClients>;

/** Forks `most` clients, idle at first. */
export function startClients(most: number) {
  const children = Array.from({ length: most }, () =>
    fork(CLIENT, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] }),
  );
  let working: ChildProcess[] = [];

  const tell = async <Kind extends Report['report']>(kind: Kind, orderFor: (client: number) => Order) => {
    const reports = working.map((child) => reported(child, kind));
    working.forEach((child, client) => child.send(orderFor(client), () => undefined));
    return Promise.all(reports);
  };

  return {
    /** Opens a scheme in the first `count` of them. Throws when one of them has ended. */
    async open(count: number, orderFor: (client: number) => OpenOrder): Promise<void> {
      working = children.slice(0, count);
      await tell('opened', orderFor);
    },
    start(): void {
      for (const child of working) child.send({ order: 'start' } satisfies Order, () => undefined);
    },
    /** Closes the scheme, and tells the mean latency they saw and what still waited on the better lane, for how long. */
    async stop(): Promise<{ meanLatencyMs: number; waitingMs: number[] }> {
      const reports = await tell('closed', () => ({ order: 'stop' }));
      const sum = (of: (report: (typeof reports)[number]) => number) =>
        reports.reduce((total, report) => total + of(report), 0);
      return {
        meanLatencyMs: sum(({ latencyMs }) => latencyMs) / sum(({ requests }) => requests),
        waitingMs: reports.flatMap(({ waitingMs }) => waitingMs),
      };
    },
    async end(): Promise<void> {
      await Promise.all(children.map((child) => end(child)));
    },
  };
}

function reported<Kind extends Report['report']>(
  child: ChildProcess,
  kind: Kind,
): Promise<Report & { report: Kind }> {
  return new Promise((resolve, reject) => {
    const onExit = () => reject(new Error('a client process has ended before its time'));
    const onMessage = (report: Report) => {
      if (report.report !== kind) return;
      child.off('exit', onExit);
      child.off('message', onMessage);
      resolve(report as Report & { report: Kind });
    };
    child.on('exit', onExit);
    child.on('message', onMessage);
    if (hasEnded(child)) onExit();
  });
}

async function end(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return;
  const exit = once(child, 'exit');
  if (child.connected) child.disconnect();
  const timer = setTimeout(() => child.kill('SIGKILL'), END_MS);
  await exit;
  clearTimeout(timer);
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}
