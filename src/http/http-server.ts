// The HTTP server of health and metrics, for an orchestrator and a monitoring system. Plain node:http: three paths do not
// need a framework. It is read-only and shows no secrets.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { codeOf } from '../errors.js';
import { asListenError } from '../listen-error.js';
import type { Logger } from '../logger.js';

const SECOND = 1000;
/** Of a monitoring system and a few people. Beyond them new ones are closed, so that files are left for the work. */
const MOST_CONNECTIONS = 100;

export interface HttpAnswer {
  status: number;
  contentType: string;
  body: string;
}

/** The answer to GET at each path. */
export type Routes = Readonly<Record<string, () => HttpAnswer | Promise<HttpAnswer>>>;

export type HttpServer = Awaited<ReturnType<typeof startHttpServer>>;

/** Listens; port 0 takes a free one. Throws UsageError when it cannot listen at the port of that host. */
export async function startHttpServer({
  host,
  port,
  routes,
  log,
}: {
  host: string;
  port: number;
  routes: Routes;
  log: Logger;
}) {
  const timeouts = { requestTimeout: 10 * SECOND, keepAliveTimeout: 5 * SECOND };
  const server = createServer(timeouts, (request, response) => void respond(request, response));
  server.maxConnections = MOST_CONNECTIONS;

  async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { status, contentType, body } = await answer(request);
    request.resume();
    response.writeHead(status, {
      'content-type': contentType,
      'cache-control': 'no-store',
      ...(status === 405 ? { allow: 'GET' } : {}),
    });
    response.end(body);
  }

  async function answer({ url = '/', method }: IncomingMessage): Promise<HttpAnswer> {
    const [path = '/'] = url.split('?', 1);
    const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
    if (!route) return json(404, { error: 'not found', paths: Object.keys(routes) });
    if (method !== 'GET') return json(405, { error: 'GET only' });
    try {
      return await route();
    } catch (error) {
      log.error({ path, code: codeOf(error) }, 'http answer failed');
      return json(500, { error: codeOf(error) });
    }
  }

  server.listen(port, host);
  try {
    await once(server, 'listening');
  } catch (error) {
    const remedy = 'Each worker on a host needs its own port; 0 opens none.';
    const setting = ['EADDRNOTAVAIL', 'ENOTFOUND'].includes(codeOf(error)) ? 'HTTP_HOST' : 'HTTP_PORT';
    throw asListenError(error, { setting, port, host, remedy });
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
