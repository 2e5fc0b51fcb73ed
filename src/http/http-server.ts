// The HTTP server of health, metrics and the operator's page. Plain node:http: a dozen paths do not need a framework.
// Every answer forbids a browser whatever it does not need: scripts and styles of other origins or within a page, frames,
// guessing of types, and being kept.
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { codeOf } from '../errors.js';
import { asListenError } from '../listen-error.js';
import type { Logger } from '../logger.js';

const SECOND = 1000;
/** Of a monitoring system and a few people. Beyond them new ones are closed, so that files are left for the work. */
const MOST_CONNECTIONS = 100;
/** A form of the page is far smaller. */
const MOST_BODY_BYTES = 16 * 1024;
/** A client that does not read so much is closed. */
const MOST_UNREAD_BYTES = 1024 * 1024;

const HEADERS = {
  'cache-control': 'no-store',
  'content-security-policy': [
    `default-src 'none'`,
    `script-src 'self'`,
    `style-src 'self'`,
    `img-src 'self'`,
    `connect-src 'self'`,
    `form-action 'self'`,
    `frame-ancestors 'none'`,
    `base-uri 'none'`,
  ].join('; '),
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  // Not no-referrer: with that, browsers do not say where a form was sent from.
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
};

export interface HttpRequest {
  method: string;
  /** Path and query, as they were sent. */
  address: string;
  path: string;
  /** Of the parts of the path that begin with a colon, decoded. */
  params: Readonly<Record<string, string>>;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  /** `1.1`; browsers do not speak 1.0. */
  httpVersion: string;
  cookies: ReadonlyMap<string, string>;
  /** The address of the other end. */
  remote: string;
  /** Of POST: the fields of the form. Throws HttpError. */
  form: () => Promise<URLSearchParams>;
}

/** One reader of an endless answer. */
export interface EventClient {
  /** Sends an event; data of several lines stays so. */
  send(data: string): void;
  end(): void;
  /** Aborts when the client or the server has ended it. */
  gone: AbortSignal;
}

export interface HttpAnswer {
  status: number;
  contentType: string;
  body: string;
  /** Sends events after the body, until either side ends. */
  events?: (client: EventClient) => void;
  headers?: Readonly<Record<string, string>> | undefined;
}

export type Handler = (request: HttpRequest) => HttpAnswer | Promise<HttpAnswer>;

const METHODS = ['GET', 'POST'] as const;
/** The answer at each path, such as `/runs/:run`: to GET, or by method. */
export type Routes = Readonly<Record<string, Handler | Partial<Record<(typeof METHODS)[number], Handler>>>>;

/** Ends a request with a status and no more than a sentence. */
export class HttpError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export type HttpServer = Awaited<ReturnType<typeof startHttpServer>>;

/** Listens; port 0 takes a free one. Throws UsageError when it cannot listen at the port of that host. */
export async function startHttpServer({
  host,
  port,
  routes,
  notFound,
  log,
}: {
  host: string;
  port: number;
  routes: Routes;
  /** The answer to GET at every other path; by default JSON. */
  notFound?: Handler | undefined;
  log: Logger;
}) {
  const timeouts = { requestTimeout: 10 * SECOND, keepAliveTimeout: 5 * SECOND };
  const server = createServer(timeouts, (request, response) => {
    respond(request, response).catch((error: unknown) => {
      log.error({ code: codeOf(error) }, 'http answer failed');
      response.destroy();
    });
  });
  server.maxConnections = MOST_CONNECTIONS;
  const find = createRouter(routes);

  async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { status, contentType, body, events, headers } = await answer(request);
    request.resume();
    response.writeHead(status, { ...HEADERS, 'content-type': contentType, ...headers });
    if (!events) return void response.end(body);
    response.write(body);
    events(createEventClient(response));
  }

  async function answer(incoming: IncomingMessage): Promise<HttpAnswer> {
    const { url = '/', method = 'GET' } = incoming;
    const [path = '/'] = url.split('?', 1);
    const found = find(path);
    const handlers = found ? byMethod(found.route) : { GET: notFound };
    const handler = Object.hasOwn(handlers, method) ? handlers[method as 'GET'] : undefined;
    if (!found && !handler) return json(404, { error: 'not found', paths: Object.keys(routes) });
    if (!handler) {
      const allow = METHODS.filter((each) => handlers[each]).join(', ');
      return { ...json(405, { error: `${allow} only` }), headers: { allow } };
    }
    try {
      return await handler(readRequest(incoming, path, found?.params ?? {}));
    } catch (error) {
      if (error instanceof HttpError) return json(error.status, { error: error.message });
      log.error({ path: found?.pattern, code: codeOf(error) }, 'http answer failed');
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

const byMethod = (route: Routes[string]): Partial<Record<string, Handler>> =>
  typeof route === 'function' ? { GET: route } : route;

interface FoundRoute {
  pattern: string;
  route: Routes[string];
  params: Record<string, string>;
}

/** Finds the route of a path. A path without parameters comes first. */
function createRouter(routes: Routes): (path: string) => FoundRoute | undefined {
  const patterns = Object.entries(routes)
    .filter(([pattern]) => pattern.includes('/:'))
    .map(([pattern, route]) => ({ pattern, route, parts: pattern.split('/') }));
  return (path) => {
    const exact = Object.hasOwn(routes, path) ? routes[path] : undefined;
    if (exact) return { pattern: path, route: exact, params: {} };
    const given = path.split('/');
    for (const { pattern, route, parts } of patterns) {
      const params = given.length === parts.length ? matchParts(parts, given) : undefined;
      if (params) return { pattern, route, params };
    }
    return undefined;
  };
}

function matchParts(parts: readonly string[], given: readonly string[]): Record<string, string> | undefined {
  const params: Record<string, string> = {};
  for (const [at, part] of parts.entries()) {
    const text = given[at] ?? '';
    if (!part.startsWith(':')) {
      if (part !== text) return undefined;
      continue;
    }
    const decoded = decode(text);
    if (!decoded) return undefined;
    params[part.slice(1)] = decoded;
  }
  return params;
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

function readRequest(incoming: IncomingMessage, path: string, params: Record<string, string>): HttpRequest {
  const { url = '/', method = 'GET', headers, httpVersion, socket } = incoming;
  return {
    httpVersion,
    method,
    address: url,
    path,
    params,
    query: new URLSearchParams(url.slice(path.length + 1)),
    headers,
    cookies: readCookies(headers.cookie),
    remote: socket.remoteAddress ?? '',
    form: () => readForm(incoming),
  };
}

function readCookies(header = ''): ReadonlyMap<string, string> {
  const pairs = header.split(';').map((pair) => pair.split('='));
  return new Map(pairs.map(([name = '', ...value]) => [name.trim(), value.join('=').trim()]));
}

async function readForm(incoming: IncomingMessage): Promise<URLSearchParams> {
  const [type = ''] = (incoming.headers['content-type'] ?? '').split(';', 1);
  if (type.trim().toLowerCase() !== 'application/x-www-form-urlencoded')
    throw new HttpError(415, 'a form is expected');
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MOST_BODY_BYTES) throw new HttpError(413, 'the form is too large');
    chunks.push(chunk);
  }
  return new URLSearchParams(Buffer.concat(chunks).toString());
}

function createEventClient(response: ServerResponse): EventClient {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  response.on('error', () => gone.abort());
  return {
    gone: gone.signal,
    send(data) {
      if (gone.signal.aborted) return;
      response.write(`${data.replaceAll(/^/gm, 'data: ')}\n\n`);
      if (response.writableLength > MOST_UNREAD_BYTES) response.destroy();
    },
    end: () => void response.end(),
  };
}

export function json(status: number, value: unknown): HttpAnswer {
  return { status, contentType: 'application/json; charset=utf-8', body: `${JSON.stringify(value)}\n` };
}
