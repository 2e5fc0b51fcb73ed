// The sandbox: a simulation of the scheduling service over HTTP, with which an organization rehearses. It shares no
// code with the client, so that both cannot have the same mistake. It has the endpoints of the service (service.ts),
// and control requests below /sandbox/ (control-requests.ts).
import { once, setMaxListeners } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { isLoopback, nameOfHost } from '../connections/addresses.js';
import { asListenError } from '../errors/errors.js';
import { controlRequests } from './control-requests.js';
import { createRouter, errorAnswer, parseJson, Refusal, send } from './http.js';
import { createService, type SandboxControls, type ServiceOptions } from './service.js';

export interface SandboxOptions extends ServiceOptions {
  /** Port to listen on. 0, the default, takes a free port. */
  port?: number | undefined;
  host?: string | undefined;
}

export interface Sandbox extends SandboxControls {
  url: string;
  /** Stops listening, and destroys all open connections. */
  close(): Promise<void>;
}

/** Starts the sandbox, and resolves when it listens. Throws UsageError if it cannot listen. */
export async function startSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const { host = '127.0.0.1', port = 0 } = options;
  const closing = new AbortController();
  setMaxListeners(0, closing.signal); // one listener for each request in progress
  const service = createService(options, closing.signal);
  const control = createRouter(controlRequests(service.controls));

  const handleRequest = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { method = 'GET', url = '/', headers, socket } = request;
    const [path = '/', query] = url.split('?', 2);
    try {
      const text = await readText(request);
      const json = () => parseJson(text);
      const received = { method, path, query: new URLSearchParams(query), headers, json };
      const isControl = path.startsWith('/sandbox/');
      if (isControl) requireSameMachine(request);
      const answer = isControl ? control(received) : await service.process(received);
      if (answer === undefined) socket.resetAndDestroy();
      else send(response, answer);
    } catch (error) {
      // If the client has disconnected or the sandbox is closing, there is no connection for an answer.
      if (!response.destroyed) send(response, errorAnswer(error));
    }
  };
  const server = createServer({ keepAliveTimeout: 60_000, noDelay: true }, (request, response) => {
    void handleRequest(request, response);
  });
  server.listen(port, host);
  try {
    await once(server, 'listening');
  } catch (error) {
    const remedy = 'Choose another with --port or --host. --port 0 takes a free port.';
    throw asListenError(error, { setting: '--port', port, host, remedy });
  }
  const { port: listeningAt } = server.address() as AddressInfo;

  return {
    ...service.controls,
    url: `http://${host.includes(':') ? `[${host}]` : host}:${listeningAt}`,
    close: () =>
      new Promise<void>((resolve) => {
        closing.abort();
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/**
 * Refuses control requests from other machines. Also refuses those that a local browser sends for a page from
 * elsewhere: such a request has a foreign Origin, or a foreign host name that leads to this machine.
 */
function requireSameMachine({ socket, headers: { host = '', origin } }: IncomingMessage): void {
  const names = [(socket.remoteAddress ?? '').replace('::ffff:', ''), nameOfHost(host)];
  if (origin !== undefined) names.push(URL.canParse(origin) ? new URL(origin).hostname : '');
  if (!names.every(isLoopback))
    throw new Refusal(403, 'control requests are accepted only from this machine');
}
