// The service of the limiter's figures: a real server on loopback that takes its time, and notes when it would have
// judged a request: at a random moment between its sending and its answer. The judging is done afterwards, so that
// every scheme meets the same service.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

export interface Profile {
  name: string;
  /** Of the lognormal distribution; draws outside the bounds are drawn again. */
  medianMs: number;
  sigma: number;
  leastMs: number;
  mostMs: number;
}

export type Urgency = 'better' | 'worse';

export interface Arrival {
  at: number;
  client: number;
  lane: Urgency;
  /** From the wish to send until the sending. */
  waitedMs: number;
}

/** Listens on a free port of 127.0.0.1. */
export async function startJudgedServer() {
  let arrivals: Arrival[] = [];
  let profile: Profile | undefined;
  const server = createServer({ keepAliveTimeout: 60_000, noDelay: true }, (request, response) => {
    const query = new URLSearchParams(request.url?.split('?')[1]);
    const latencyMs = profile ? drawLatency(profile) : 0;
    const judgedMs = latencyMs * Math.random();
    const answer = async () => {
      await pause(judgedMs);
      arrivals.push({
        at: performance.now(),
        client: Number(query.get('client')),
        lane: query.get('lane') === 'better' ? 'better' : 'worse',
        waitedMs: Number(query.get('waited')),
      });
      await pause(latencyMs - judgedMs);
      response.end();
    };
    void answer();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** Forgets what arrived. */
    begin(next: Profile): void {
      profile = next;
      arrivals = [];
    },
    arrivals: (): readonly Arrival[] => arrivals,
    close(): void {
      server.close();
      server.closeAllConnections();
    },
  };
}

function drawLatency({ medianMs, sigma, leastMs, mostMs }: Profile): number {
  for (;;) {
    const normal = Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
    const drawn = medianMs * Math.exp(sigma * normal);
    if (drawn >= leastMs && drawn <= mostMs) return drawn;
  }
}
