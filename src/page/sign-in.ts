// Sign-in and sign-out over HTTP: the form, and the cookie of the session.
import type { BlockList } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { deleteCookie, getCookie, setCookie } from 'hono/cookie';
import type { SettingText } from '../config/setting-text.js';
import { plain, readForm, type HttpContext } from '../http/http-server.js';
import type { Logger } from '../process/logger.js';
import { renderSignIn } from './html-page.js';
import { clientOf, isFromOwnPage, isSecure } from './request-origin.js';
import { COOKIE_SECONDS, createSessions, type Session } from './sessions.js';

export const OF_ELSEWHERE = 'The form was not sent by a page of this address.';

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
      return context.html(renderSignIn(next, 'This is not the token.'), 403);
    }
    log.info('operator signed in');
    sessions.end(secretOf(context));
    setCookie(context, cookieName, secret, {
      maxAge: COOKIE_SECONDS,
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
