// A server whose answer never ends: a few bytes at a time, so that no limit of an idle connection is reached.
import { createServer, type AddressInfo, type Socket } from 'node:net';

/** The head of an answer without end, and the body of one. */
export const DRIPS = {
  head: { first: 'HTTP/1.1 200 OK\r\nx-dripping: ', part: 'x' },
  body: {
    first: 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999999\r\n\r\n',
    part: ' ',
  },
};

export interface Drip {
  first: string;
  part: string;
}

/** Answers so until the other side closes the connection. */
export function drip(socket: Socket, { first, part }: Drip): void {
  socket.write(first);
  const timer = setInterval(() => socket.write(part), 20);
  socket.on('error', () => undefined).on('close', () => clearInterval(timer));
}

/** Answers every connection so. `openCount`: connections that the other side has not closed. */
export async function openDripping(answer: Drip) {
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    open.add(socket.on('close', () => open.delete(socket)));
    socket.on('data', () => undefined);
    drip(socket, answer);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `http://127.0.0.1:${port}`,
    openCount: () => open.size,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        for (const socket of open) socket.destroy();
      }),
  };
}
