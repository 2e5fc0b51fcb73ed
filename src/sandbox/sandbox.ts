// A stand-in for the scheduling service, over HTTP, on which an organization rehearses before it uses the real one. It
// shares no code with the client, so that a mistake of the client cannot be repeated and hidden in it. Beside the
// service's endpoints (service.ts) it has control requests below /sandbox/ (control-requests.ts).
import { once, setMaxListeners } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { isLoopback, nameOfHost } from '../connections/addresses.js';
import { asListenError } from '../process/listen-error.js';
import { controlRequests } from './control-requests.js';
import { createRouter, errorAnswer, parseJson, Refusal, send } from './http.js';
import { createService, type SandboxControls, type ServiceOptions } from './service.js';

export interface SandboxOptions extends ServiceOptions {
  /** 0, the default: a free one. */
  port?: number | undefined;
  host?: string | undefined;
}

export interface Sandbox extends SandboxControls {
  url: string;
  /** Stops listening and destroys open connections, hanging ones too. */
  close(): Promise<void>;
}

/** Starts the sandbox and resolves when it listens; throws UsageError when it cannot listen. */
export async function startSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const { host = '127.0.0.1', port = 0 } = options;
  const closing = new AbortController();
  setMaxListeners(0, closing.signal); // one for each request under way
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
      // When the client has gone, or the sandbox is closing, there is no connection to answer on.
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
    const remedy = '--port and --host choose others; --port 0 takes a free port.';
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
 * Control requests come from programs and pages of this machine. A browser on it also sends requests of pages from elsewhere: it
 * names where they are from, or the name that they made lead to this machine.
 */
function requireSameMachine({ socket, headers: { host = '', origin } }: IncomingMessage): void {
  const names = [(socket.remoteAddress ?? '').replace('::ffff:', ''), nameOfHost(host)];
  if (origin !== undefined) names.push(URL.canParse(origin) ? new URL(origin).hostname : '');
  if (!names.every(isLoopback))
    throw new Refusal(403, 'control requests are answered to programs and pages of the same machine only');
}
