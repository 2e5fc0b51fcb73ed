// The HTTP server of health and metrics, for an orchestrator and a monitoring system. Plain node:http: three paths do not
// need a framework. It is read-only and shows no secrets.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { codeOf, UsageError } from '../errors.js';
import type { Logger } from '../logger.js';

/** All addresses: in a container, the loopback address cannot be reached from outside. */
const HOST = '0.0.0.0';
const SECOND = 1000;

export interface HttpAnswer {
  status: number;
  contentType: string;
  body: string;
}

/** The answer to GET at each path. */
export type Routes = Readonly<Record<string, () => HttpAnswer | Promise<HttpAnswer>>>;

export type HttpServer = Awaited<ReturnType<typeof startHttpServer>>;

/** Listens; port 0 takes a free one. Throws UsageError when it cannot listen at the port. */
export async function startHttpServer({ port, routes, log }: { port: number; routes: Routes; log: Logger }) {
  const server = createServer(
    { requestTimeout: 10 * SECOND, keepAliveTimeout: 5 * SECOND },
    (request, response) => {
      void respond(request, response);
    },
  );

  async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [path = '/'] = (request.url ?? '/').split('?', 1);
    const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
    let answer: HttpAnswer;
    if (!route) answer = json(404, { error: 'not found', paths: Object.keys(routes) });
    else if (request.method !== 'GET') answer = json(405, { error: 'GET only' });
    else {
      try {
        answer = await route();
      } catch (error) {
        log.error({ path, code: codeOf(error) }, 'http answer failed');
        answer = json(500, { error: codeOf(error) });
      }
    }
    request.resume();
    response.writeHead(answer.status, {
      'content-type': answer.contentType,
      'cache-control': 'no-store',
      ...(answer.status === 405 ? { allow: 'GET' } : {}),
    });
    response.end(answer.body);
  }

  server.listen(port, HOST);
  try {
    await once(server, 'listening');
  } catch (error) {
    const taken = codeOf(error) === 'EADDRINUSE';
    throw new UsageError(
      taken
        ? `HTTP_PORT: port ${port} is taken`
        : `HTTP_PORT: cannot listen at port ${port} (${codeOf(error)})`,
      { remedy: 'Each worker on a host needs a port of its own; 0 is none.', cause: error },
    );
  }
  server.on('error', (error) => log.warn({ code: codeOf(error) }, 'http server failed'));

  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

export function json(status: number, value: unknown): HttpAnswer {
  return { status, contentType: 'application/json; charset=utf-8', body: `${JSON.stringify(value)}\n` };
}
