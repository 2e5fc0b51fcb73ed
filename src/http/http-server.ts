// The HTTP server of health, metrics and the operator's page: Hono, and what every answer has in common. Every answer forbids
// a browser whatever it does not need: scripts and styles of other origins or within a page, frames, guessing of types, and
// being kept. Every client has limits: of its connections, and of the time it takes.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { getRequestListener, RequestError, type HttpBindings } from '@hono/node-server';
import { Hono, type Context } from 'hono';
import { HTTPException } from 'hono/http-exception';
import { secureHeaders } from 'hono/secure-headers';
import { codeOf } from '../errors/errors.js';
import { asListenError } from '../process/listen-error.js';
import type { Logger } from '../process/logger.js';

const SECOND = 1000;
/** Enough for a monitoring system and a few people. Further connections are closed, so that files are left for the work. */
const MOST_CONNECTIONS = 100;
/** A form of the page is far smaller. */
const MOST_BODY_BYTES = 16 * 1024;
/** A client that reads nothing of its answer for this long is closed. */
const LONGEST_UNREAD_MS = 60 * SECOND;

/** A client that does not send its request in time is closed: connections are few. */
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
  // Not no-referrer: with that, browsers do not say where a form was sent from.
  referrerPolicy: 'same-origin',
  // Whether the name is reached over https is the proxy's decision.
  strictTransportSecurity: false,
};

interface HttpEnv {
  Bindings: HttpBindings;
}
export type HttpContext = Context<HttpEnv>;
export type Handler = (context: HttpContext) => Response | Promise<Response>;
/** The answer at each path, such as `/runs/:run`: to GET, or by method. */
export type Routes = Readonly<Record<string, Handler | Partial<Record<'GET' | 'POST', Handler>>>>;

/** Ends a request with a status and no more than a sentence. */
export class HttpError extends HTTPException {}

export type HttpServer = Awaited<ReturnType<typeof startHttpServer>>;

/** Listens; port 0 takes a free one. Throws UsageError when it cannot listen at the port of that host. */
export async function startHttpServer({
  host,
  port,
  routes,
  notFound,
  log,
  portSetting = 'HTTP_PORT',
  longestUnreadMs = LONGEST_UNREAD_MS,
}: {
  host: string;
  /** The name under which an operator chose the port. */
  portSetting?: string | undefined;
  port: number;
  routes: Routes;
  /** The answer to GET at every other path; by default JSON. */
  notFound?: Handler | undefined;
  log: Logger;
  longestUnreadMs?: number;
}) {
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
    // HTTP/1.0 does not have to name one. Whoever judges the name reads its header.
    hostname: 'localhost',
    // Request and Response of the process stay those of Node.
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

/** The fields of the form of a POST. Throws HttpError. */
export async function readForm({ req }: HttpContext): Promise<URLSearchParams> {
  const [type = ''] = (req.header('content-type') ?? '').split(';', 1);
  if (type.trim().toLowerCase() !== 'application/x-www-form-urlencoded')
    throw new HttpError(415, { message: 'a form is expected' });
  const bytes = req.header('content-length');
  if (bytes === undefined) throw new HttpError(411, { message: 'the length of the form is expected' });
  if (Number(bytes) > MOST_BODY_BYTES) throw new HttpError(413, { message: 'the form is too large' });
  const text = await req.text().catch((cause: unknown) => {
    throw new HttpError(400, { message: 'the form was cut off', cause });
  });
  return new URLSearchParams(text);
}

/** An answer in JSON, for programs. */
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

/** An answer of one sentence, for a person to whom no page is shown. */
export const plain = (status: number, sentence: string): Response =>
  new Response(`${sentence}\n`, { status, headers: { 'content-type': 'text/plain; charset=utf-8' } });
