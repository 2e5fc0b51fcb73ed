// The service's own endpoints: which paths there are, who may call them, and what answers. No socket, no clock.
import type { IncomingHttpHeaders } from 'node:http';
import { decodeSegment } from './http.js';
import type { SandboxAnswer } from './http.js';
import { Refusal } from './refusal.js';
import type { Tokens } from './tokens.js';

export interface ServiceRequest {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  /** Parsed on demand, because authenticating has no body. */
  json: () => unknown;
}

export interface Access {
  organizationId: string;
  apiKey: string;
  region: string;
  expiredStatus: 401 | 403;
}

/** An endpoint's work: the parsed body in, the answer out; refusals are thrown. */
export type Endpoint = (body: unknown) => SandboxAnswer;

const AUTHENTICATE = /^\/v1\/organizations\/([^/]+)\/api-keys\/authenticate$/;

/** Answers one request of the service. `endpoints` are keyed `METHOD /path`. Throws a `Refusal` for the rest. */
export function createRouter(
  deps: { tokens: Tokens; endpoints: ReadonlyMap<string, Endpoint> },
  access: Access,
) {
  const { tokens, endpoints } = deps;

  return (request: ServiceRequest): SandboxAnswer => {
    const organization = AUTHENTICATE.exec(request.path)?.[1];
    if (organization !== undefined) {
      if (request.method !== 'POST') throw methodNotAllowed(['POST']);
      authenticate(request.headers, decodeSegment(organization));
      return { status: 200, body: { token: tokens.issue() } };
    }
    const endpoint = endpoints.get(`${request.method} ${request.path}`);
    if (endpoint === undefined) {
      const allowed = [...endpoints.keys()].filter((key) => key.endsWith(` ${request.path}`));
      if (allowed.length === 0) throw new Refusal(404, `no such path: ${request.path}`);
      throw methodNotAllowed(allowed.map((key) => key.split(' ')[0] ?? ''));
    }
    admit(request.headers.authorization);
    return endpoint(request.json());
  };

  function authenticate(headers: IncomingHttpHeaders, organization: string): void {
    if (headers.authorization !== `Api-Key ${access.apiKey}`) throw new Refusal(401, 'API key not accepted');
    if (organization !== access.organizationId)
      throw new Refusal(401, 'API key does not belong to this organization');
    if (headers['x-region'] !== access.region)
      throw new Refusal(401, `X-Region ${access.region} expected for this organization`);
  }

  function admit(authorization: string | undefined): void {
    const token = /^Bearer (.+)$/.exec(authorization ?? '')?.[1];
    if (token === undefined) throw new Refusal(401, 'Authorization: Bearer <token> expected');
    switch (tokens.verify(token)) {
      case 'valid':
        return;
      case 'expired':
        throw new Refusal(access.expiredStatus, 'token expired or revoked');
      case 'invalid':
        throw new Refusal(401, 'token not accepted');
    }
  }
}

function methodNotAllowed(allowed: readonly string[]): Refusal {
  return new Refusal(405, `allowed here: ${allowed.join(', ')}`, { allow: allowed.join(', ') });
}
