// A network between a program and its servers, over TCP on loopback: each direction takes its time, and it can stall, be
// silent or lose every connection. It limits no bandwidth and keeps the order. It shares the event loop of the process that
// starts it, so the programs under test are other processes.
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export type Hop = Awaited<ReturnType<typeof startHop>>;

/** Called with each chunk that the client of one connection sends. */
export type Listener = (chunk: Buffer) => void;

interface Network {
  delayMs: number;
  /** Nothing arrives before this time; `Infinity`: until somebody ends the silence. */
  stalledUntil: number;
}

/** Timers fire at whole milliseconds. */
const TIMER_MS = 0.5;

/** Starts one in front of the server of `serverUrl`. `onConnection` returns the listener of a new connection. */
export async function startHop(
  serverUrl: string,
  { delayMs = 0, onConnection }: { delayMs?: number; onConnection?: () => Listener } = {},
) {
  const { hostname, port } = new URL(serverUrl);
  const network: Network = { delayMs, stalledUntil: 0 };
  const open = new Set<Socket>();
  const directions = new Set<ReturnType<typeof passOn>>();
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    const upstream = connect({ host: hostname, port: Number(port), allowHalfOpen: true, noDelay: true });
    const listener = onConnection?.();
    if (listener) client.on('data', listener);
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      const direction = passOn(from, to, network);
      open.add(from);
      directions.add(direction);
      from.on('close', () => open.delete(from));
      to.on('close', () => {
        directions.delete(direction);
        direction.stop();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const ownPort = (server.address() as AddressInfo).port;
  const stallUntil = (time: number) => {
    network.stalledUntil = time;
    for (const direction of directions) direction.flush();
  };
  const dropAll = () => {
    for (const socket of open) socket.resetAndDestroy();
  };

  return {
    /** The same address, through the hop. */
    through(url: string): string {
      const address = new URL(url);
      address.host = `127.0.0.1:${ownPort}`;
      return address.href;
    },
    /** For what arrives from now on. */
    setDelay(ms: number): void {
      network.delayMs = ms;
    },
    /** Passes nothing on for this time, and then all of it. */
    stall: (ms: number) => stallUntil(performance.now() + ms),
    /** Passes nothing on and closes nothing, until `speak`. Connections are still taken. */
    silence: () => stallUntil(Infinity),
    /** Ends a stall or a silence: what was kept is passed on. */
    speak: () => stallUntil(0),
    /** Connections that the clients have open. */
    connections: () => open.size / 2,
    /** Resets every connection; new ones are taken. */
    dropAll,
    async close(): Promise<void> {
      const closed = once(server, 'close');
      server.close();
      dropAll();
      await closed;
    },
  };
}

/** Passes one direction of a connection on: every chunk, and the end, arrives its delay after it was sent. */
function passOn(from: Socket, to: Socket, network: Network) {
  const underWay: { due: number; deliver: () => void }[] = [];
  let timer: NodeJS.Timeout | undefined;

  function flush(): void {
    clearTimeout(timer);
    const now = performance.now();
    const isDue = (due: number) => Math.max(due, network.stalledUntil) <= now + TIMER_MS;
    for (let next = underWay[0]; next && isDue(next.due); next = underWay[0]) {
      underWay.shift();
      next.deliver();
    }
    const waitMs = Math.max(underWay[0]?.due ?? Infinity, network.stalledUntil) - now;
    if (Number.isFinite(waitMs)) timer = setTimeout(flush, waitMs);
  }
  const send = (deliver: () => void) => {
    underWay.push({ due: performance.now() + network.delayMs, deliver });
    if (underWay.length === 1) flush();
  };

  from.on('data', (chunk: Buffer) => send(() => to.write(chunk)));
  from.on('end', () => send(() => to.end()));
  from.on('error', () => send(() => to.resetAndDestroy()));
  return {
    flush,
    stop(): void {
      clearTimeout(timer);
      underWay.length = 0;
    },
  };
}
