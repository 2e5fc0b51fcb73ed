// Keeps the short-lived access token. The token is obtained once for all waiting callers, used until shortly before it
// expires, and renewed when the service refuses it.

/** Maximum safety margin in milliseconds. A token is not used in the last tenth of its lifetime. */
const LONGEST_MARGIN_MS = 60_000;

export function createTokenSource(options: {
  authenticate: () => Promise<string>;
  /** Lifetime in seconds of a token without an `exp` claim. */
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
    // If a new token seems expired, the clocks differ, and `exp` is not usable. Then `defaultSeconds` applies.
    const end =
      expiry !== undefined && expiry > fetchedAt ? expiry : fetchedAt + options.defaultSeconds * 1000;
    current = { token, until: end - Math.min((end - fetchedAt) / 10, LONGEST_MARGIN_MS) };
    return token;
  }

  return {
    /** Returns the current token, or the one being obtained. Rejects with the error of `authenticate`. */
    get(): Promise<string> {
      if (current && now() < current.until) return Promise.resolve(current.token);
      pending ??= fetch().finally(() => (pending = undefined));
      return pending;
    },
    /** Discards a token that the service refused, so that the next `get` obtains a new one. */
    refuse(token: string): void {
      if (current?.token === token) current = undefined;
    },
  };
}

/** Returns the `exp` claim of a JWT in milliseconds, unverified. It only decides when the token is renewed. */
export function readExpiry(token: string): number | undefined {
  try {
    const payload: unknown = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString('utf8'));
    if (typeof payload !== 'object' || payload === null || !('exp' in payload)) return undefined;
    return typeof payload.exp === 'number' ? payload.exp * 1000 : undefined;
  } catch {
    return undefined;
  }
}
