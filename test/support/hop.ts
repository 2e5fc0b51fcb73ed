// A network between a program and its servers, over TCP on loopback, that does what networks do: it takes its time, is
// narrow, passes on in pieces, stalls, falls silent, forgets connections, cuts them in the middle of an answer, resets or
// refuses them, and closes late. It keeps the order. It shares the event loop of the process that starts it, so the programs
// under test are other processes, or wait for it.
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export type Hop = Awaited<ReturnType<typeof startHop>>;

/** Called with each chunk that the client of one connection sends. */
export type Listener = (chunk: Buffer) => void;

/** How each direction of a connection passes on what is sent from now on. */
export interface Shape {
  /** Until a chunk arrives, in milliseconds. */
  delayMs: number;
  /** At most so many milliseconds more, by chance for each chunk. */
  jitterMs: number;
  bytesPerSecond: number;
  /** A longer chunk arrives in pieces of this length, each in a turn of its own. */
  pieceBytes: number;
  /** Until the end of a connection arrives, in milliseconds beyond the delay. */
  closeMs: number;
}

interface Flow {
  readonly client: Socket;
  readonly upstream: Socket;
  readonly directions: readonly Direction[];
  /** Passes nothing on any more, not even its end. */
  isForgotten: boolean;
  /** Bytes that its client still gets before the connection ends. */
  left: number;
}

type Direction = ReturnType<typeof passOn>;

const PLAIN: Shape = { delayMs: 0, jitterMs: 0, bytesPerSecond: Infinity, pieceBytes: Infinity, closeMs: 0 };
/** Timers fire at whole milliseconds. */
const TIMER_MS = 0.5;

/** Starts one in front of the server of `serverUrl`. `onConnection` returns the listener of a new connection. */
export async function startHop(
  serverUrl: string,
  { delayMs = 0, onConnection }: { delayMs?: number; onConnection?: () => Listener } = {},
) {
  const { hostname, port } = new URL(serverUrl);
  const usual: Shape = { ...PLAIN, delayMs };
  let shape = usual;
  /** Nothing arrives before this time; `Infinity`: until somebody ends the silence. */
  let stalledUntil = 0;
  let replaced: readonly [text: string, by: string] | undefined;
  const flows = new Set<Flow>();

  const reset = ({ client, upstream }: Flow) => {
    client.resetAndDestroy();
    upstream.resetAndDestroy();
  };
  const replace = (chunk: Buffer) => {
    const at = replaced ? chunk.indexOf(replaced[0]) : -1;
    if (at < 0) return;
    chunk.write(replaced?.[1] ?? '', at);
    replaced = undefined;
  };
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    const upstream = connect({ host: hostname, port: Number(port), allowHalfOpen: true, noDelay: true });
    const network = {
      shape: () => shape,
      stalledUntil: () => (flow.isForgotten ? Infinity : stalledUntil),
    };
    const toServer = passOn(client, upstream, network);
    const toClient = passOn(upstream, client, network, (chunk) => {
      const passed = chunk.subarray(0, flow.left);
      flow.left -= passed.length;
      if (flow.left > 0) return void client.write(passed);
      client.end(passed);
      upstream.destroy();
    });
    const flow: Flow = {
      client,
      upstream,
      directions: [toServer, toClient],
      isForgotten: false,
      left: Infinity,
    };
    flows.add(flow);
    client.on('data', replace);
    const listener = onConnection?.();
    if (listener) client.on('data', listener);
    toServer.begin();
    toClient.begin();
    client.on('close', () => {
      if (!flow.isForgotten) flows.delete(flow);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const ownPort = (server.address() as AddressInfo).port;
  const stallUntil = (time: number) => {
    stalledUntil = time;
    for (const { directions } of flows) for (const direction of directions) direction.flush();
  };
  const dropAll = () => {
    for (const flow of flows) reset(flow);
  };

  return {
    /** The same address, through the hop. */
    through(url: string): string {
      const address = new URL(url);
      address.host = `127.0.0.1:${ownPort}`;
      return address.href;
    },
    /** For what is sent from now on; what is not named is as it was at the start. */
    setShape(changed: Partial<Shape>): void {
      shape = { ...usual, ...changed };
    },
    /** Passes nothing on for this time, and then all of it. */
    stall: (ms: number) => stallUntil(performance.now() + ms),
    /** Passes nothing on and closes nothing, until `speak`. Connections are still taken. */
    silence: () => stallUntil(Infinity),
    /** Ends a stall or a silence: what was kept is passed on. */
    speak: () => stallUntil(0),
    /** Connections that are open now pass nothing on for ever, and none is closed: new ones work, as behind a firewall. */
    forget(): void {
      for (const flow of flows) flow.isForgotten = true;
    },
    /** Ends each connection that is open now as soon as its client has got so many bytes more. */
    cutAfter(bytes: number): void {
      for (const flow of flows) flow.left = bytes;
    },
    /** The next of these texts that a client sends arrives as the other one, which is as long. */
    replaceOnce: (text: string, by: string): void => void (replaced = [text, by]),
    /** Connections that the clients have open. */
    connections: () => flows.size,
    /** Resets every connection; new ones are taken. */
    dropAll,
    /** Takes no new connections; open ones go on. */
    refuse: (): void => void server.close(),
    /** Takes them again. */
    async accept(): Promise<void> {
      server.listen(ownPort, '127.0.0.1');
      await once(server, 'listening');
    },
    async close(): Promise<void> {
      const closed = server.listening ? once(server, 'close') : undefined;
      if (closed) server.close();
      dropAll();
      await closed;
    },
  };
}

/** Passes one direction of a connection on, in order: every chunk, and the end, arrives when the shape says so. */
function passOn(
  from: Socket,
  to: Socket,
  network: { shape(): Shape; stalledUntil(): number },
  deliver: (chunk: Buffer) => void = (chunk) => void to.write(chunk),
) {
  const underWay: { due: number; arrive: () => void }[] = [];
  /** When what was sent so far has gone through a narrow network. */
  let freeAt = 0;
  let timer: NodeJS.Timeout | undefined;

  function flush(): void {
    clearTimeout(timer);
    const now = performance.now();
    const isDue = (due: number) => Math.max(due, network.stalledUntil()) <= now + TIMER_MS;
    for (let next = underWay[0]; next && isDue(next.due); next = underWay[0]) {
      underWay.shift();
      next.arrive();
    }
    const waitMs = Math.max(underWay[0]?.due ?? Infinity, network.stalledUntil()) - now;
    if (Number.isFinite(waitMs)) timer = setTimeout(flush, waitMs);
  }
  const send = (arrive: () => void, { bytes = 0, laterMs = 0 } = {}) => {
    const { delayMs, jitterMs, bytesPerSecond } = network.shape();
    freeAt = Math.max(freeAt, performance.now()) + (bytes / bytesPerSecond) * 1000;
    underWay.push({ due: freeAt + delayMs + jitterMs * Math.random() + laterMs, arrive });
    if (underWay.length === 1) flush();
  };

  return {
    begin(): void {
      from.on('data', (chunk: Buffer) => {
        const { pieceBytes } = network.shape();
        for (let at = 0; at < chunk.length; at += pieceBytes) {
          const piece = chunk.subarray(at, at + pieceBytes);
          send(() => deliver(piece), { bytes: piece.length });
        }
      });
      from.on('end', () => send(() => to.end(), { laterMs: network.shape().closeMs }));
      from.on('error', () => send(() => to.resetAndDestroy()));
      to.on('close', () => {
        clearTimeout(timer);
        underWay.length = 0;
      });
    },
    flush,
  };
}
