// A hop between clients and a server that can fall silent, as a firewall does that has forgotten its connections: it forwards
// nothing of them in either direction, and closes none. New connections work.
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

interface Flow {
  isSilent: boolean;
}

/** The address of the hop is that of the server but for host and port. */
export async function openHop(address: string) {
  const server = new URL(address);
  const [port, host] = [Number(server.port || 5432), server.hostname];
  const flows = new Map<Flow, readonly Socket[]>();
  let replaced: readonly [text: string, by: string] | undefined;
  /** Once, in one packet of a client; both texts are equally long. */
  const replace = (bytes: Buffer) => {
    const at = replaced ? bytes.indexOf(replaced[0]) : -1;
    if (at >= 0) bytes.write(replaced?.[1] ?? '', at);
    if (at >= 0) replaced = undefined;
    return bytes;
  };
  const hop = createServer((client) => {
    const flow = { isSilent: false };
    const onward = connect(port, host);
    flows.set(flow, [client, onward]);
    for (const [from, to] of [
      [client, onward],
      [onward, client],
    ] as const) {
      from.on(
        'data',
        (bytes: Buffer) => void (flow.isSilent || to.write(from === client ? replace(bytes) : bytes)),
      );
      from.on('error', () => undefined).on('close', () => void (flow.isSilent || to.destroy()));
    }
  });
  hop.listen(0, '127.0.0.1');
  await once(hop, 'listening');
  const url = new URL(address);
  url.host = `127.0.0.1:${(hop.address() as AddressInfo).port}`;
  return {
    url: url.href,
    /** Connections that are open now fall silent. */
    silence(): void {
      for (const flow of flows.keys()) flow.isSilent = true;
    },
    /** New connections are refused, open ones go on. */
    refuse: (): void => void hop.close(),
    /** The next of these texts that a client sends arrives as the other one. */
    replaceOnce: (text: string, by: string): void => void (replaced = [text, by]),
    close(): void {
      hop.close();
      for (const socket of [...flows.values()].flat()) socket.destroy();
    },
  };
}
