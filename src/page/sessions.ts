// Sessions of operators who signed in with HTTP_TOKEN. They are in memory: a process that starts again asks for the token
// again. A token that is replaced ends the sessions that it began.
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { currentText, type SettingText } from '../config/setting-text.js';

const MINUTE = 60 * 1000;
const SESSION_MS = 12 * 60 * MINUTE;
const MOST_SESSIONS = 100;
/** Wrong tokens that one address may send before it is slowed down, and how long they count. */
const MOST_WRONG = 10;
const WRONG_MS = 10 * MINUTE;
const SLOW_MS = 2000;
/** Addresses with wrong tokens that are remembered. */
const MOST_ADDRESSES = 1000;

export interface Session {
  /** In every form of its pages: another site's form does not have it. */
  formToken: string;
  expiresAt: number;
  /** The result of an action, to be shown by the next page. */
  notices: string[];
  /** The last reading of both sides of a record or booking. `address`: of its page. */
  shown: { address: string; explained: unknown; at: Date } | undefined;
}

interface Kept {
  session: Session;
  tokenHash: Buffer;
}

/** `now`: a monotonic clock in milliseconds. */
export function createSessions(token: SettingText, now = () => performance.now()) {
  /** By the hash of the secret in the cookie. */
  const sessions = new Map<string, Kept>();
  const wrong = new Map<string, { attempts: number; until: number }>();
  const tokenHash = () => hash(currentText(token));

  /** The oldest first, as they were added. */
  function prune(): void {
    const time = now();
    for (const [id, { session }] of sessions)
      if (session.expiresAt <= time || sessions.size > MOST_SESSIONS) sessions.delete(id);
    for (const [address, { until }] of wrong)
      if (until <= time || wrong.size > MOST_ADDRESSES) wrong.delete(address);
  }

  return {
    /**
     * The secret of a new session, undefined if the token is wrong. The answer waits so long, right or wrong, that an address
     * which sends many wrong tokens cannot try them fast.
     */
    signIn(given: string, address: string): { secret: string | undefined; waitMs: number } {
      prune();
      const known = wrong.get(address);
      const waitMs = (known?.attempts ?? 0) >= MOST_WRONG ? SLOW_MS : 0;
      const expected = tokenHash();
      if (!timingSafeEqual(hash(given), expected)) {
        wrong.set(address, { attempts: (known?.attempts ?? 0) + 1, until: known?.until ?? now() + WRONG_MS });
        return { secret: undefined, waitMs };
      }
      wrong.delete(address);
      const secret = newSecret();
      const formToken = newSecret();
      const session = { formToken, expiresAt: now() + SESSION_MS, notices: [], shown: undefined };
      sessions.set(idOf(secret), { session, tokenHash: expected });
      return { secret, waitMs };
    },

    find(secret: string | undefined): Session | undefined {
      if (secret === undefined) return undefined;
      const kept = sessions.get(idOf(secret));
      if (!kept || kept.session.expiresAt <= now()) return undefined;
      return timingSafeEqual(kept.tokenHash, tokenHash()) ? kept.session : undefined;
    },

    end(secret: string | undefined): void {
      if (secret !== undefined) sessions.delete(idOf(secret));
    },
  };
}

/** Seconds that a browser keeps the cookie. */
export const COOKIE_SECONDS = SESSION_MS / 1000;

const newSecret = () => randomBytes(32).toString('base64url');
const hash = (text: string) => createHash('sha256').update(text).digest();
const idOf = (secret: string) => hash(secret).toString('base64url');

/** Compares in a time that does not depend on where two texts differ. */
export const isEqual = (a: string, b: string): boolean => timingSafeEqual(hash(a), hash(b));
