// Short-lived JWTs, made and judged here. They are signed in earnest, so that a client that sends a stale, foreign
// or mangled one is found out; when a token ends is decided by this memory, with or without `exp` in it.
import { createHmac, randomBytes, randomUUID, timingSafeEqual } from 'node:crypto';

export type TokenVerdict = 'valid' | 'expired' | 'invalid';

const HEADER = encode({ alg: 'HS256', typ: 'JWT' });
const REMEMBERED = 10_000;

/** Issues tokens that live `tokenSeconds`; without `tokenExp` the token does not say until when. */
export function createTokens(options: { organizationId: string; tokenSeconds: number; tokenExp: boolean }) {
  const secret = randomBytes(32);
  const endsAtMs = new Map<string, number>();

  const sign = (content: string): Buffer => createHmac('sha256', secret).update(content).digest();

  return {
    issue(): string {
      const now = Date.now();
      const ends = now + options.tokenSeconds * 1000;
      const id = randomUUID();
      endsAtMs.set(id, ends);
      const [oldest] = endsAtMs.keys();
      if (endsAtMs.size > REMEMBERED && oldest !== undefined) endsAtMs.delete(oldest);
      const claims = { sub: options.organizationId, jti: id, iat: Math.floor(now / 1000) };
      const exp = options.tokenExp ? { exp: Math.floor(ends / 1000) } : {};
      const content = `${HEADER}.${encode({ ...claims, ...exp })}`;
      return `${content}.${sign(content).toString('base64url')}`;
    },
    judge(token: string): TokenVerdict {
      const end = token.lastIndexOf('.');
      const signature = Buffer.from(token.slice(end + 1), 'base64url');
      const expected = sign(token.slice(0, Math.max(0, end)));
      if (signature.length !== expected.length || !timingSafeEqual(signature, expected)) return 'invalid';
      const claims = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as {
        jti: string;
      };
      const ends = endsAtMs.get(claims.jti);
      return ends !== undefined && Date.now() < ends ? 'valid' : 'expired';
    },
    revoke(): void {
      endsAtMs.clear();
    },
  };
}

export type Tokens = ReturnType<typeof createTokens>;

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
