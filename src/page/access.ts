// Decides at each request who may read the operator's page, and who may act. request-origin.ts reads facts about the
// sender, and sign-in.ts handles the sign-in.
import type { SettingText } from '../config/setting-text.js';
import { parseNetworks } from '../connections/addresses.js';
import { codeOf, messageOf, SlotsyncError, UsageError } from '../errors/errors.js';
import { HttpError, plain, readForm, type Handler, type HttpContext } from '../http/http-server.js';
import type { Logger } from '../process/logger.js';
import { PageNotFound, renderPage, type Session, type View } from './html-page.js';
import { isFromOwnPage, isLocal, userOf } from './request-origin.js';
import { createSignIn, isEqual, OF_ELSEWHERE } from './sign-in.js';

export interface AccessDeps {
  /** HTTP_HOST: the address that the server listens on. */
  host: string;
  /** HTTP_TOKEN: the token to sign in with. If undefined, nobody can act on the page. */
  token: SettingText | undefined;
  /** HTTP_SIGN_IN. `elsewhere`: users on this machine read without signing in. `always`: everybody signs in. */
  signIn?: 'elsewhere' | 'always';
  /** HTTP_TRUSTED_PROXIES: networks of proxies whose headers are believed. */
  trustedProxies?: string | undefined;
  /** HTTP_USER_HEADER: the header in which a trusted proxy names the user. */
  userHeader?: string | undefined;
  port: number;
  timeZone: () => Promise<string>;
  log: Logger;
}

export const NOT_SERVED =
  'This page is available only on this machine, at its loopback address, because HTTP_TOKEN is not set. How to reach it from another machine: docs/page.md';

export function createAccess(deps: AccessDeps) {
  const { host, token, port, log, trustedProxies, userHeader, timeZone } = deps;
  const isOpenHere = deps.signIn !== 'always';
  const proxies = parseNetworks(trustedProxies ?? '');
  const signIn = token === undefined ? undefined : createSignIn({ token, port, proxies, log });

  const viewFor = async (session: Session | undefined): Promise<View> => ({
    timeZone: await timeZone(),
    session,
    canSignIn: signIn !== undefined,
  });

  /** Wraps a handler so that only users who may read get an answer. Every failure is answered with a page. */
  const reading =
    (handle: (context: HttpContext, session: Session | undefined) => Response | Promise<Response>): Handler =>
    async (context) => {
      const session = signIn?.find(context);
      try {
        if (session || (isOpenHere && isLocal(context.env.incoming, host))) {
          // Text in PostgreSQL cannot contain the character 0, so no record has an address with `%00`.
          if (context.req.url.includes('%00')) throw new PageNotFound('This page does not exist.');
          return await handle(context, session);
        }
        return signIn ? toSignIn(context) : plain(403, NOT_SERVED);
      } catch (error) {
        return await answerFailure(context, session, error);
      }
    };

  /** Wraps a handler so that it runs only for a form that a signed-in operator sent from a page of the session. */
  const acting = (
    handle: (context: HttpContext, session: Session, form: URLSearchParams) => Response | Promise<Response>,
  ) =>
    reading(async (context, session) => {
      if (!signIn) return plain(403, 'The page is read-only without HTTP_TOKEN. How to set it: docs/page.md');
      if (!session) return context.redirect('/sign-in', 303);
      if (!isFromOwnPage(context.env.incoming)) return plain(403, OF_ELSEWHERE);
      const form = await readForm(context);
      if (!isEqual(form.get('form_token') ?? '', session.formToken))
        return plain(403, 'The form belongs to another session. Reload the page and try again.');
      return handle(context, session, form);
    });

  async function answerFailure(
    context: HttpContext,
    session: Session | undefined,
    error: unknown,
  ): Promise<Response> {
    if (error instanceof HttpError) return plain(error.status, error.message);
    const isMissing = error instanceof PageNotFound;
    const isUsage = error instanceof UsageError;
    if (!isMissing && !isUsage)
      log[isUpdate(context) ? 'debug' : 'warn']({ code: codeOf(error) }, 'page could not be shown');
    const remedy = error instanceof SlotsyncError ? error.remedy : '';
    const said = error instanceof SlotsyncError || isMissing ? messageOf(error) : codeOf(error);
    const faults = isUsage ? error.faults : [];
    const sentences = [said, ...faults, remedy].filter((sentence) => sentence !== '');
    const title = isMissing ? 'Not found' : isUsage ? 'Not done' : 'No answer';
    const content = { title, lead: sentences, sections: [] };
    const text = renderPage(content, await viewFor(session), { path: context.req.path });
    return context.html(text, isMissing ? 404 : isUsage ? 409 : 503);
  }

  return {
    signIn,
    viewFor,
    reading,
    acting,
    /** Returns the name of the user that a trusted proxy sent, or null. */
    userOf: (context: HttpContext) => userOf(context.env.incoming, proxies, userHeader),
  };
}

/** Returns true if an open page polls for changes. Such a request must not consume the session's notices. */
export const isUpdate = ({ req }: HttpContext) => req.header('if-none-match') !== undefined;

export function addressOf({ url }: Pick<HttpContext['req'], 'url'>): string {
  const { pathname, search } = new URL(url);
  return pathname + search;
}

export const toSignIn = (context: HttpContext) =>
  context.redirect(`/sign-in?next=${encodeURIComponent(addressOf(context.req))}`, 303);
