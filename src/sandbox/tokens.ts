// The API key and the short-lived tokens that it is exchanged for. Tokens are shaped as JWTs. One is valid when it was
// issued here and has not expired; the memory decides that, with or without `exp` in the token.
import { randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { Refusal } from './http.js';

export interface AccessOptions {
  organizationId?: string | undefined;
  apiKey?: string | undefined;
  region?: string | undefined;
  tokenSeconds?: number | undefined;
  /** False: the JWT does not say when it expires. It expires all the same. */
  tokenExp?: boolean | undefined;
  expiredStatus?: 401 | 403 | undefined;
}

export function createTokens(options: AccessOptions) {
  const { organizationId = 'demo', region = 'EU_EES' } = options;
  const { tokenSeconds = 300, tokenExp = true, expiredStatus = 401 } = options;
  let { apiKey = 'sandbox-key' } = options;
  const endsAtMs = new Map<string, number>();

  function issue(): string {
    const now = Date.now();
    const ends = now + tokenSeconds * 1000;
    const exp = tokenExp ? { exp: Math.floor(ends / 1000) } : {};
    const claims = { sub: organizationId, iat: Math.floor(now / 1000), ...exp };
    const signature = randomBytes(32).toString('base64url');
    const token = `${encode({ alg: 'HS256', typ: 'JWT' })}.${encode(claims)}.${signature}`;
    endsAtMs.set(token, ends);
    return token;
  }

  return {
    /** A token for the right key, organization and region; throws a 401 otherwise. */
    authenticate(organization: string, headers: IncomingHttpHeaders): { token: string } {
      if (headers.authorization !== `Api-Key ${apiKey}`) throw new Refusal(401, 'API key not accepted');
      if (organization !== organizationId)
        throw new Refusal(401, 'API key does not belong to this organization');
      if (headers['x-region'] !== region)
        throw new Refusal(401, `X-Region ${region} expected for this organization`);
      return { token: issue() };
    },
    /** Throws a `Refusal` unless the request has a valid token. */
    requireToken({ authorization = '' }: IncomingHttpHeaders): void {
      const token = /^Bearer (.+)$/.exec(authorization)?.[1];
      if (token === undefined) throw new Refusal(401, 'Authorization: Bearer <token> expected');
      const ends = endsAtMs.get(token);
      if (ends === undefined) throw new Refusal(401, 'token not accepted');
      if (Date.now() >= ends) throw new Refusal(expiredStatus, 'token expired or revoked');
    },
    controls: {
      /** Only this key is accepted from now on. Tokens stay as they are. */
      setApiKey: (key: string): void => void (apiKey = key),
      /** Every token issued so far is refused from now on. */
      revokeTokens(): void {
        for (const token of endsAtMs.keys()) endsAtMs.set(token, 0);
      },
    },
  };
}

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
