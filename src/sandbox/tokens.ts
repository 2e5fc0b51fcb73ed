// Short-lived tokens, shaped as JWTs. A token is valid when it was issued here and has not expired; the memory decides
// that, with or without `exp` in the token.
import { randomBytes } from 'node:crypto';

export type TokenVerdict = 'valid' | 'expired' | 'invalid';

const HEADER = encode({ alg: 'HS256', typ: 'JWT' });
const REMEMBERED = 10_000;

/** Issues tokens that live `tokenSeconds`; without `tokenExp` they do not say until when. */
export function createTokens(options: { organizationId: string; tokenSeconds: number; tokenExp: boolean }) {
  const endsAtMs = new Map<string, number>();

  return {
    issue(): string {
      const now = Date.now();
      const ends = now + options.tokenSeconds * 1000;
      const exp = options.tokenExp ? { exp: Math.floor(ends / 1000) } : {};
      const claims = { sub: options.organizationId, iat: Math.floor(now / 1000), ...exp };
      const token = `${HEADER}.${encode(claims)}.${randomBytes(32).toString('base64url')}`;
      endsAtMs.set(token, ends);
      const [oldest] = endsAtMs.keys();
      if (endsAtMs.size > REMEMBERED && oldest !== undefined) endsAtMs.delete(oldest);
      return token;
    },
    verify(token: string): TokenVerdict {
      const ends = endsAtMs.get(token);
      if (ends === undefined) return 'invalid';
      return Date.now() < ends ? 'valid' : 'expired';
    },
    revoke(): void {
      for (const token of endsAtMs.keys()) endsAtMs.set(token, 0);
    },
  };
}

export type Tokens = ReturnType<typeof createTokens>;

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
