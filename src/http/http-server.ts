// HTTP server of health, metrics and the operator's page. Every answer forbids the browser what it does not need:
// inline and foreign scripts and styles, frames, guessing of types, and caching. Each client is limited in connections
// and time.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { getRequestListener, RequestError, type HttpBindings } from '@hono/node-server';
import { Hono, type Context } from 'hono';
import { HTTPException } from 'hono/http-exception';
import { secureHeaders } from 'hono/secure-headers';
import { codeOf, asListenError } from '../errors/errors.js';
import type { Logger } from '../process/logger.js';

const SECOND = 1000;
/** Enough for monitoring and a few users. Further connections are closed, to leave file descriptors for the work. */
const MOST_CONNECTIONS = 100;
/** Maximum size of a form in bytes. Forms of the page are far smaller. */
const MOST_BODY_BYTES = 16 * 1024;
/** Time in milliseconds after which a client that does not read its answer is disconnected. */
const LONGEST_UNREAD_MS = 60 * SECOND;

/** A client that sends its request too slowly is disconnected, because connections are few. */
const TIMEOUTS = {
  headersTimeout: 5 * SECOND,
  requestTimeout: 10 * SECOND,
  keepAliveTimeout: 5 * SECOND,
  connectionsCheckingInterval: SECOND,
};

const SECURE_HEADERS = {
  contentSecurityPolicy: {
    defaultSrc: [`'none'`],
    scriptSrc: [`'self'`],
    styleSrc: [`'self'`],
    imgSrc: [`'self'`],
    connectSrc: [`'self'`],
    formAction: [`'self'`],
    frameAncestors: [`'none'`],
    baseUri: [`'none'`],
  },
  xFrameOptions: 'DENY',
  // Not `no-referrer`, because browsers would then hide from which page a form was sent.
  referrerPolicy: 'same-origin',
  // The proxy decides if the host is reached over https, so this server sends no HSTS header.
  strictTransportSecurity: false,
};

interface HttpEnv {
  Bindings: HttpBindings;
}
export type HttpContext = Context<HttpEnv>;
export type Handler = (context: HttpContext) => Response | Promise<Response>;
/** Handlers by path, such as `/runs/:run`: a single handler for GET, or one for each method. */
export type Routes = Readonly<Record<string, Handler | Partial<Record<'GET' | 'POST', Handler>>>>;

export class HttpError extends HTTPException {}

export type HttpServer = Awaited<ReturnType<typeof startHttpServer>>;

/** Starts the server. Port 0 means any free port. Throws UsageError if it cannot listen on this host and port. */
export async function startHttpServer(options: {
  host: string;
  /** Name of the setting or option that chose the port. Named in the error message. */
  portSetting?: string | undefined;
  port: number;
  routes: Routes;
  /** Answers GET at every other path. Default: an answer in JSON. */
  notFound?: Handler | undefined;
  log: Logger;
  longestUnreadMs?: number;
}) {
  const { host, port, routes, notFound, log, portSetting = 'HTTP_PORT' } = options;
  const { longestUnreadMs = LONGEST_UNREAD_MS } = options;
  const failed = (error: unknown, path?: string): Response => {
    if (error instanceof HttpError) return json(error.status, { error: error.message });
    log.error({ path, code: codeOf(error) }, 'http answer failed');
    return json(500, { error: codeOf(error) });
  };
  const app = new Hono<HttpEnv>();
  app.use(secureHeaders(SECURE_HEADERS), async (context, next) => {
    await next();
    context.res.headers.set('cache-control', 'no-store');
    context.env.incoming.socket.setTimeout(longestUnreadMs);
  });
  for (const [path, route] of Object.entries(routes)) {
    const handlers: Partial<Record<string, Handler>> = typeof route === 'function' ? { GET: route } : route;
    const allow = Object.keys(handlers).join(', ');
    app.all(path, async (context) => {
      const handler = handlers[context.req.method];
      if (!handler) return json(405, { error: `${allow} only` }, { allow });
      try {
        return await handler(context);
      } catch (error) {
        return failed(error, path); // not the address: it may name a record
      }
    });
  }
  app.notFound((context) =>
    notFound && context.req.method === 'GET'
      ? notFound(context)
      : json(404, { error: 'not found', paths: Object.keys(routes) }),
  );
  app.onError((error) => failed(error));

  const listener = getRequestListener(app.fetch, {
    // Host name of requests that have no host, such as in HTTP/1.0. Security checks read the header instead.
    hostname: 'localhost',
    // Keeps Node's own global Request and Response objects.
    overrideGlobalObjects: false,
    errorHandler: (error) =>
      error instanceof RequestError ? json(400, { error: 'malformed request' }) : failed(error),
  });
  const server = createServer(TIMEOUTS, (incoming, outgoing) => {
    listener(incoming, outgoing).catch((error: unknown) => {
      failed(error);
      outgoing.destroy();
    });
  });
  server.maxConnections = MOST_CONNECTIONS;
  server.listen(port, host);
  try {
    await once(server, 'listening');
  } catch (error) {
    const remedy = `Every process on a host needs its own port: choose another one with ${portSetting}.`;
    const setting = ['EADDRNOTAVAIL', 'ENOTFOUND'].includes(codeOf(error)) ? 'HTTP_HOST' : portSetting;
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

/** Returns the fields of a posted form. Throws HttpError if the form is malformed or too large. */
export async function readForm({ req }: HttpContext): Promise<URLSearchParams> {
  const [type = ''] = (req.header('content-type') ?? '').split(';', 1);
  if (type.trim().toLowerCase() !== 'application/x-www-form-urlencoded')
    throw new HttpError(415, { message: 'a form is expected' });
  const bytes = req.header('content-length');
  if (bytes === undefined) throw new HttpError(411, { message: 'the length of the form is expected' });
  if (Number(bytes) > MOST_BODY_BYTES) throw new HttpError(413, { message: 'the form is too large' });
  const text = await req.text().catch((cause: unknown) => {
    throw new HttpError(400, { message: 'the form was incomplete', cause });
  });
  return new URLSearchParams(text);
}

export function json(
  status: number,
  value: unknown,
  headers: Readonly<Record<string, string>> = {},
): Response {
  return new Response(`${JSON.stringify(value)}\n`, {
    status,
    headers: { 'content-type': 'application/json; charset=utf-8', ...headers },
  });
}

export const plain = (status: number, sentence: string): Response =>
  new Response(`${sentence}\n`, { status, headers: { 'content-type': 'text/plain; charset=utf-8' } });
