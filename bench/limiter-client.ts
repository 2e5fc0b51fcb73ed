// One of the processes that share the quota: opens the scheme it is told, saturates it until told to stop, and says
// how long its requests took.
import { Pool } from 'undici';
import { SCHEMES, type SchemeName, type SchemeOptions } from './schemes.js';

export interface OpenOrder {
  order: 'open';
  scheme: SchemeName;
  client: number;
  serverUrl: string;
  /** Wishes for a request of the better lane this often; 0: never. */
  askEveryMs: number;
  options: Omit<SchemeOptions, 'send'>;
}

export type Order = OpenOrder | { order: 'start' } | { order: 'stop' };

export type Report =
  | { report: 'opened' }
  | {
      report: 'closed';
      requests: number;
      /** Of all requests together. */
      latencyMs: number;
      /** Wishes for the better lane not yet sent. */
      waitingMs: number[];
    };

type Opened = Awaited<ReturnType<typeof open>>;

async function open({ scheme, client, serverUrl, askEveryMs, options }: OpenOrder) {
  const pool = new Pool(serverUrl, { connections: 64, pipelining: 1 });
  const sent = { requests: 0, latencyMs: 0 };
  const wishes: number[] = [];
  let isOpen = true;
  let asking: NodeJS.Timeout | undefined;

  const opened = await SCHEMES[scheme]({
    ...options,
    async send(lane, waitedMs) {
      if (!isOpen) return;
      if (lane === 'better') wishes.shift();
      const sentAt = performance.now();
      const path = `/?client=${client}&lane=${lane}&waited=${waitedMs.toFixed(1)}`;
      const { body } = await pool.request({ method: 'GET', path });
      sent.requests++;
      sent.latencyMs += performance.now() - sentAt;
      void body.dump().catch(() => undefined);
    },
  });

  return {
    start(): void {
      opened.start();
      if (askEveryMs === 0) return;
      asking = setInterval(() => {
        if (opened.isShared) return void opened.ask(); // whoever gets it sends it
        wishes.push(performance.now());
        void opened.ask();
      }, askEveryMs);
    },
    async close(): Promise<Report> {
      isOpen = false;
      clearInterval(asking);
      const now = performance.now();
      const report = {
        report: 'closed',
        ...sent,
        waitingMs: wishes.map((wished) => now - wished),
      } as const;
      await opened.close();
      await pool.destroy();
      return report;
    },
  };
}

let current: Opened | undefined;

async function obey(order: Order): Promise<Report | undefined> {
  switch (order.order) {
    case 'open':
      current = await open(order);
      return { report: 'opened' };
    case 'start':
      current?.start();
      return undefined;
    case 'stop':
      return current?.close();
  }
}

process.on('message', (order: Order) => {
  void obey(order).then((report) => report && process.send?.(report));
});
process.on('disconnect', () => process.exit(0));
