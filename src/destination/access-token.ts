// The short-lived token of every request but the one that obtains it: fetched once for all callers that wait, used until
// shortly before it expires, renewed when the service refuses it.

/** A token is not used in the last tenth of its life, at most this long. */
const LONGEST_MARGIN_MS = 60_000;

export function createTokenSource(options: {
  authenticate: () => Promise<string>;
  /** Life of a token without `exp`, in seconds. */
  defaultSeconds: number;
  now?: () => number;
}) {
  const now = options.now ?? Date.now;
  let current: { token: string; until: number } | undefined;
  let pending: Promise<string> | undefined;

  async function fetch(): Promise<string> {
    const token = await options.authenticate();
    const fetchedAt = now();
    const expiry = readExpiry(token);
    // A new token that has expired means that the clocks differ: the service will refuse it when it expires.
    const end =
      expiry !== undefined && expiry > fetchedAt ? expiry : fetchedAt + options.defaultSeconds * 1000;
    current = { token, until: end - Math.min((end - fetchedAt) / 10, LONGEST_MARGIN_MS) };
    return token;
  }

  return {
    /** The current token, or the one being fetched. Throws what `authenticate` throws. */
    get(): Promise<string> {
      if (current && now() < current.until) return Promise.resolve(current.token);
      pending ??= fetch().finally(() => (pending = undefined));
      return pending;
    },
    /** The service refused this token: the next `get` fetches another, unless that was done already. */
    refuse(token: string): void {
      if (current?.token === token) current = undefined;
    },
  };
}

/** `exp` of a JWT in milliseconds, unverified: it only decides when the token is renewed. */
export function readExpiry(token: string): number | undefined {
  try {
    const payload: unknown = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString('utf8'));
    if (typeof payload !== 'object' || payload === null || !('exp' in payload)) return undefined;
    return typeof payload.exp === 'number' ? payload.exp * 1000 : undefined;
  } catch {
    return undefined;
  }
}
