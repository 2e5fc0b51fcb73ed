// Requests and answers without their sockets. An endpoint is a method, a path, the shape of its body and its work; the
// endpoints of the service and the control requests are tables of them. A request is refused by throwing a `Refusal` where
// the reason is known; it becomes an answer in one place.
import { STATUS_CODES, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { z } from 'zod';

export interface ReceivedRequest {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  /** The body, undefined when it is empty; throws a `Refusal` when it is no JSON. */
  json(): unknown;
}

export interface SandboxAnswer {
  status: number;
  body?: unknown;
  headers?: Record<string, string> | undefined;
  /** Sent as it is instead of a body. */
  html?: string;
  /** Sends half of the document, as if it were whole. */
  isBroken?: boolean;
}

/** A request that is refused as a whole. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly status: number;
  readonly headers: Record<string, string> | undefined;

  constructor(status: number, message: string, headers?: Record<string, string>) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}

/** The answer for what was thrown: anything but a `Refusal` is a defect of the sandbox. */
export function errorAnswer(error: unknown): SandboxAnswer {
  const { status, message, headers } =
    error instanceof Refusal ? error : new Refusal(500, `sandbox defect: ${String(error)}`);
  return { status, body: { status, message }, headers };
}

/** The page with which a gateway answers in the place of the service. */
export function htmlAnswer(status: number): SandboxAnswer {
  const title = `${status} ${STATUS_CODES[status] ?? ''}`.trim();
  const html = `<!DOCTYPE html>\n<html><head><title>${title}</title></head><body><h1>${title}</h1></body></html>\n`;
  return { status, html };
}

/** The text as JSON, undefined when it is empty; a 400 when it is no JSON. */
export function parseJson(text: string): unknown {
  try {
    return text === '' ? undefined : JSON.parse(text);
  } catch {
    throw new Refusal(400, 'the body is not JSON');
  }
}

export function send(
  response: ServerResponse,
  { status, body, html, headers, isBroken }: SandboxAnswer,
): void {
  const whole = html ?? (body === undefined ? '' : JSON.stringify(body));
  const contentType = html === undefined ? 'application/json' : 'text/html; charset=utf-8';
  const text = isBroken ? whole.slice(0, Math.max(1, Math.floor(whole.length / 2))) : whole;
  response.writeHead(status, {
    ...(text === '' ? {} : { 'content-type': contentType }),
    'content-length': Buffer.byteLength(text),
    ...headers,
  });
  response.end(text);
}

export interface Endpoint {
  method: string;
  /** `{}` is one segment, which `answer` gets decoded as `name`. */
  path: string;
  answer(request: ReceivedRequest, name: string): SandboxAnswer;
}

/**
 * A row of a table. Without a `body` the request's body is not read. The result is answered with 200, or with 204 when
 * it is undefined, unless `statusOf` returns another status.
 */
export function endpoint<T, R>(
  method: string,
  path: string,
  body: z.ZodType<T> | undefined,
  work: (body: T, name: string, request: ReceivedRequest) => R,
  statusOf: (result: R) => number = (result) => (result === undefined ? 204 : 200),
): Endpoint {
  return {
    method,
    path,
    answer(request, name) {
      const parsed = body === undefined ? (undefined as T) : parseBody(body, request.json());
      const result = work(parsed, name, request);
      return { status: statusOf(result), body: result };
    },
  };
}

/** Answers a request by the endpoint that is for it; refusals become answers too. */
export function createRouter(endpoints: readonly Endpoint[]) {
  const routes = endpoints.map((endpoint) => ({
    ...endpoint,
    pattern: new RegExp(`^${endpoint.path.replace('{}', '([^/]+)')}$`),
  }));

  return (request: ReceivedRequest): SandboxAnswer => {
    try {
      const matching = routes.filter(({ pattern }) => pattern.test(request.path));
      if (matching.length === 0) throw new Refusal(404, `no such path: ${request.path}`);
      const allow = matching.map(({ method }) => method).join(', ');
      const route = matching.find(({ method }) => method === request.method);
      if (!route) throw new Refusal(405, `allowed methods: ${allow}`, { allow });
      return route.answer(request, decodeSegment(route.pattern.exec(request.path)?.[1] ?? ''));
    } catch (error) {
      return errorAnswer(error);
    }
  };
}

/** The body in the shape of `schema`; a 400 that names the place when it has another. */
function parseBody<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new Refusal(400, `${issue?.path.join('.') || 'body'}: ${issue?.message ?? 'invalid'}`);
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw new Refusal(400, 'the path is not well formed');
  }
}
