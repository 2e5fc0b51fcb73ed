// The short-lived token that every call but one carries: fetched once for all who wait, kept until shortly
// before it ends, renewed when the service stops taking it.

export interface TokenSource {
  /** The current token, or the one being fetched. Throws what `authenticate` throws. */
  get(): Promise<string>;
  /** The service refused this token; the next `get` fetches another, unless someone already did. */
  refuse(token: string): void;
}

/** How long before its end a token is no longer used: a tenth of its life, at most a minute. */
const longestMarginMs = 60_000;

export function createTokenSource(options: {
  authenticate: () => Promise<string>;
  /** Life of a token that does not say when it ends, in seconds. */
  defaultSeconds: number;
  now?: () => number;
}): TokenSource {
  const now = options.now ?? Date.now;
  let current: { token: string; until: number } | undefined;
  let pending: Promise<string> | undefined;

  async function fetch(): Promise<string> {
    const token = await options.authenticate();
    const fetchedAt = now();
    const said = readExpiry(token);
    // A new token that is over already means that the clocks differ; the service will say when it is over.
    const end = said !== undefined && said > fetchedAt ? said : fetchedAt + options.defaultSeconds * 1000;
    current = { token, until: end - Math.min((end - fetchedAt) / 10, longestMarginMs) };
    return token;
  }

  return {
    get() {
      if (current && now() < current.until) return Promise.resolve(current.token);
      pending ??= fetch().finally(() => (pending = undefined));
      return pending;
    },
    refuse(token) {
      if (current?.token === token) current = undefined;
    },
  };
}

/** `exp` of a JWT in milliseconds, unverified: it only decides when to ask for a new one. */
export function readExpiry(token: string): number | undefined {
  try {
    const payload: unknown = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString('utf8'));
    if (typeof payload !== 'object' || payload === null || !('exp' in payload)) return undefined;
    return typeof payload.exp === 'number' ? payload.exp * 1000 : undefined;
  } catch {
    return undefined;
  }
}
