// Requests by table: an endpoint is a method, a path, the shape of its body and its work. The endpoints of the service and
// the control requests are tables of this form.
import type { IncomingHttpHeaders } from 'node:http';
import type { z } from 'zod';
import { errorAnswer, Refusal, type SandboxAnswer } from './http.js';

export interface ReceivedRequest {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  /** The body, undefined when it is empty; throws a `Refusal` when it is no JSON. */
  json(): unknown;
}

export interface Endpoint {
  method: string;
  /** `{}` stands for one segment, which `answer` gets decoded as `name`. */
  path: string;
  answer(request: ReceivedRequest, name: string): SandboxAnswer;
}

/**
 * One row of a table. Without a `body` the request's body is not read. The result is answered with 200, or with 204 when
 * there is none, unless `statusOf` gives another status.
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
      const given = body === undefined ? (undefined as T) : parseBody(body, request.json());
      const result = work(given, name, request);
      return { status: statusOf(result), body: result };
    },
  };
}

/** Answers a request by the endpoint that is for it; refusals become answers too. */
export function createRouter(endpoints: readonly Endpoint[]) {
  const routes = endpoints.map((endpoint) => ({
    endpoint,
    pattern: new RegExp(`^${endpoint.path.replace('{}', '([^/]+)')}$`),
  }));

  return (request: ReceivedRequest): SandboxAnswer => {
    try {
      const matching = routes.filter(({ pattern }) => pattern.test(request.path));
      if (matching.length === 0) throw new Refusal(404, `no such path: ${request.path}`);
      const route = matching.find(({ endpoint }) => endpoint.method === request.method);
      const allow = matching.map(({ endpoint }) => endpoint.method).join(', ');
      if (!route)
        return { ...errorAnswer(new Refusal(405, `allowed methods: ${allow}`)), headers: { allow } };
      const [, name = ''] = route.pattern.exec(request.path) ?? [];
      return route.endpoint.answer(request, decodeSegment(name));
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
