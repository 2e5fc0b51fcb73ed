// Sign-in and sign-out over HTTP: the form, the cookie, and the sessions of operators who signed in with HTTP_TOKEN.
// Sessions are kept in memory, so they end when the process restarts. They also end when the token is replaced.
import type { BlockList } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { deleteCookie, getCookie, setCookie } from 'hono/cookie';
import { type SettingText, currentText } from '../config/setting-text.js';
import { plain, readForm, type HttpContext } from '../http/http-server.js';
import type { Logger } from '../process/logger.js';
import { renderSignIn, type Session } from './html-page.js';
import { clientOf, isFromOwnPage, isSecure } from './request-origin.js';
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';

export const OF_ELSEWHERE =
  'The form was sent from another address. Open the page at this address, and send the form from there.';

interface SignInDeps {
  token: SettingText;
  /** Port of the server. It is part of the cookie's name, because all ports of a host share their cookies. */
  port: number;
  /** HTTP_TRUSTED_PROXIES. */
  proxies: BlockList;
  log: Logger;
}

export function createSignIn({ token, port, proxies, log }: SignInDeps) {
  const sessions = createSessions(token);
  const cookieName = `slotsync_${port}`;
  const secretOf = (context: HttpContext) => getCookie(context, cookieName);

  async function signIn(context: HttpContext): Promise<Response> {
    const { incoming } = context.env;
    if (!isFromOwnPage(incoming)) return plain(403, OF_ELSEWHERE);
    const form = await readForm(context);
    const next = nextOf(form.get('next'));
    const remote = clientOf(incoming, proxies);
    const { secret, waitMs } = sessions.signIn(form.get('token') ?? '', remote);
    await sleep(waitMs, undefined, { ref: false });
    if (secret === undefined) {
      log.warn({ remote, waitMs }, 'sign-in refused');
      return context.html(renderSignIn(next, 'The token is wrong.'), 403);
    }
    log.info('operator signed in');
    sessions.end(secretOf(context));
    setCookie(context, cookieName, secret, {
      maxAge: SESSION_MS / 1000,
      httpOnly: true,
      sameSite: 'Strict',
      secure: isSecure(incoming),
    });
    return context.redirect(next, 303);
  }

  return {
    route: {
      GET: (context: HttpContext) => context.html(renderSignIn(nextOf(context.req.query('next')), '')),
      POST: signIn,
    },
    find: (context: HttpContext): Session | undefined => sessions.find(secretOf(context)),
    end(context: HttpContext): void {
      sessions.end(secretOf(context));
      deleteCookie(context, cookieName);
    },
  };
}

/**
 * Accepts only a path on this server. Any other address could lead to a foreign site. Browsers drop tabs and line
 * breaks, so `/`, a tab and `/host` would also lead there. A header must be ASCII.
 */
const nextOf = (next: string | null | undefined): string =>
  typeof next === 'string' && /^\/(?![/\\])[\x21-\x7e]*$/.test(next) ? next : '/';

const MINUTE = 60 * 1000;
export const SESSION_MS = 12 * 60 * MINUTE;
const MOST_SESSIONS = 100;
/** Number of wrong tokens from one address after which answers are delayed, and time for which wrong tokens count. */
const MOST_WRONG = 10;
const WRONG_MS = 10 * MINUTE;
const SLOW_MS = 2000;
/** Maximum number of addresses for which wrong tokens are counted. */
const MOST_ADDRESSES = 1000;

/** `now` is a monotonic clock in milliseconds. */
export function createSessions(token: SettingText, now = () => performance.now()) {
  const sessions = new Map<string, { session: Session; tokenHash: Buffer }>();
  const wrong = new Map<string, { attempts: number; until: number }>();
  const tokenHash = () => hash(currentText(token));

  /**
   * Deletes expired sessions and wrong tokens. Above the limits, deletes the oldest entries, which come first in a Map.
   */
  function prune(): void {
    const time = now();
    for (const [id, { session }] of sessions)
      if (session.expiresAt <= time || sessions.size > MOST_SESSIONS) sessions.delete(id);
    for (const [address, { until }] of wrong)
      if (until <= time || wrong.size > MOST_ADDRESSES) wrong.delete(address);
  }

  return {
    /**
     * Returns the secret of a new session, or undefined if the token is wrong. The caller delays its answer by
     * `waitMs`, even to a right token, so that an address with many wrong tokens cannot try more of them quickly.
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

const newSecret = () => randomBytes(32).toString('base64url');
const hash = (text: string) => createHash('sha256').update(text).digest();
const idOf = (secret: string) => hash(secret).toString('base64url');

/** Compares in constant time, so that an attacker learns nothing from the duration. */
export const isEqual = (a: string, b: string): boolean => timingSafeEqual(hash(a), hash(b));
