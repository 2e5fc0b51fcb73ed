// The operator's page: its addresses, who may ask for them, and what every answer has in common.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { deleteCookie, getCookie, setCookie } from 'hono/cookie';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import { parseNetworks } from '../connections/networks.js';
import { codeOf, messageOf, SlotsyncError, UsageError } from '../errors/errors.js';
import { keyOfPart } from '../documents/document.js';
import { html } from '../text/html.js';
import { HttpError, readForm, type Handler, type HttpContext, type Routes } from '../http/http-server.js';
import type { Logger } from '../process/logger.js';
import type { SettingText } from '../config/setting-text.js';
import type { Mirror } from '../mirror/mirror.js';
import { LONGEST_REASON, requireReason } from '../state/actions.js';
import { readClock } from '../state/database.js';
import type { SyncDeps } from '../sync/run/sync-deps.js';
import { CARDS } from '../render/html.js';
import { clientOf, isFromOwnPage, isLocal, isSecure, userOf } from './access.js';
import { ACTIONS, type Action, type ActionDeps } from './actions.js';
import { renderPage } from './frame.js';
import {
  actionsPage,
  bookingPage,
  bookingsPage,
  driftPage,
  failuresPage,
  nowPage,
  recordPage,
  reportPage,
  runPage,
  runsPage,
  searchPage,
} from './pages.js';
import { formToken } from './render-document.js';
import { COOKIE_SECONDS, createSessions, isEqual, type Session } from './sessions.js';
import { SIDES, type Shown } from './sides.js';
import { createSources, type SourceDeps } from './sources.js';
import { PageNotFound, type Page, type PageRequest, type Rendered, type View } from './view.js';

export interface PageDeps extends ActionDeps, SourceDeps {
  /** HTTP_HOST: where the server listens. */
  host: string;
  /** HTTP_TOKEN; without it nobody acts. */
  token: SettingText | undefined;
  /** HTTP_SIGN_IN: whether somebody on this machine reads without signing in. */
  signIn?: 'elsewhere' | 'always';
  /** HTTP_TRUSTED_PROXIES. */
  trustedProxies?: string | undefined;
  /** HTTP_USER_HEADER: where these proxies name the person. */
  userHeader?: string | undefined;
  /** The port that the server listens on; cookies do not tell the ports of a host apart. */
  port: number;
  openMirror: () => Promise<Mirror>;
  destination: () => Promise<SyncDeps['destination']>;
  log: Logger;
}

/** Pages by their paths; those with `true` are brought up to date while they are open. */
const PAGES: Readonly<Record<string, readonly [page: Page, isLive: boolean]>> = {
  '/': [nowPage, true],
  '/runs': [runsPage, true],
  '/runs/:run': [runPage, true],
  '/failures': [failuresPage, true],
  '/records': [searchPage, false],
  '/records/:stream/:key': [recordPage, false],
  '/drift': [driftPage, true],
  '/bookings': [bookingsPage, true],
  '/bookings/:key': [bookingPage, false],
  '/report': [reportPage, false],
  '/actions': [actionsPage, true],
};

const ASSETS = {
  '/page.css': { file: 'page.css', contentType: 'text/css; charset=utf-8' },
  '/page.js': { file: 'browser.js', contentType: 'text/javascript; charset=utf-8' },
  '/page.svg': { file: 'icon.svg', contentType: 'image/svg+xml' },
};

/** A handler of somebody who may read. */
type ReaderHandler = (context: HttpContext, session: Session | undefined) => Response | Promise<Response>;

/** The routes of the page. */
export function createPage(deps: PageDeps) {
  const { host, token, port, log, timeZone } = deps;
  const isOpenHere = deps.signIn !== 'always';
  const proxies = parseNetworks(deps.trustedProxies ?? '');
  const sources = createSources(deps);
  const sessions = token === undefined ? undefined : createSessions(token);
  const cookieName = `slotsync_${port}`;
  const secretOf = (context: HttpContext) => getCookie(context, cookieName);

  const viewFor = async (session: Session | undefined): Promise<View> => ({
    now: await deps.state().then(({ db }) => readClock(db)),
    timeZone: await timeZone(),
    session,
    canSignIn: sessions !== undefined,
  });

  /** Lets those read who may, at each request, and makes a page of every failure. */
  const reading =
    (handle: ReaderHandler): Handler =>
    async (context) => {
      const session = sessions?.find(secretOf(context));
      try {
        if (session || (isOpenHere && isLocal(context.env.incoming, host))) {
          // No text of PostgreSQL has the character 0, so nothing has such an address.
          if (context.req.url.includes('%00')) throw new PageNotFound('There is no such page.');
          return await handle(context, session);
        }
        return sessions ? toSignIn(context) : plain(context, 403, NOT_SERVED);
      } catch (error) {
        return await answerFailure(context, session, error);
      }
    };

  /** The same for a form: of somebody who signed in, from a page of this session. */
  const acting = (
    handle: (context: HttpContext, session: Session, form: URLSearchParams) => Response | Promise<Response>,
  ) =>
    reading(async (context, session) => {
      if (!sessions)
        return plain(context, 403, 'Nobody acts here without HTTP_TOKEN; docs/page.md says how to set it.');
      if (!session) return context.redirect('/sign-in', 303);
      if (!isFromOwnPage(context.env.incoming)) return plain(context, 403, OF_ELSEWHERE);
      const form = await readForm(context);
      if (!isEqual(form.get('form_token') ?? '', session.formToken))
        return plain(context, 403, 'The form is of another session: go back, reload, and send it again.');
      return handle(context, session, form);
    });

  async function answerFailure(
    context: HttpContext,
    session: Session | undefined,
    error: unknown,
  ): Promise<Response> {
    if (error instanceof HttpError) return plain(context, error.status, error.message);
    const isMissing = error instanceof PageNotFound;
    const isUsage = error instanceof UsageError;
    if (!isMissing && !isUsage)
      log[isUpdate(context) ? 'debug' : 'warn']({ code: codeOf(error) }, 'page could not be shown');
    const remedy = error instanceof SlotsyncError ? error.remedy : '';
    const said = error instanceof SlotsyncError || isMissing ? messageOf(error) : codeOf(error);
    const faults = error instanceof UsageError ? error.faults : [];
    const rendered: Rendered = {
      title: isMissing ? 'Not found' : isUsage ? 'Not done' : 'No answer',
      lead: html`<p>${said}</p>${faults.map((fault) => html`<p>${fault}</p>`)}${remedy === '' ? '' : html`<p>${remedy}</p>`}`,
      sections: [],
    };
    // The state may be what does not answer.
    const view = await viewFor(session).catch(() => ({
      now: new Date(),
      timeZone: 'UTC',
      session,
      canSignIn: !!sessions,
    }));
    const status = isMissing ? 404 : isUsage ? 409 : 503;
    return page(context, status, renderPage(rendered, view, { path: context.req.path }));
  }

  const showPage = (shown: Page, isLive: boolean) =>
    reading(async (context, session) => {
      const render = await shown(sources, requestOf(context));
      const view = await viewFor(session);
      const notices = isUpdate(context) ? [] : session?.notices.splice(0);
      const text = renderPage(render(view), view, { path: context.req.path, notices, isLive });
      // Weak: a proxy that compresses changes any other.
      const version = `W/"${createHash('sha256').update(text).digest('base64url')}"`;
      if (context.req.header('if-none-match') === version) return context.body(null, 304);
      context.header('etag', version);
      return page(context, 200, text);
    });

  const showSignIn: Handler = (context) => {
    if (!sessions) return plain(context, 404, NOT_SERVED);
    return page(context, 200, renderSignIn(nextOf(context.req.query('next')), ''));
  };

  const signIn: Handler = async (context) => {
    if (!sessions) return plain(context, 404, NOT_SERVED);
    const { incoming } = context.env;
    if (!isFromOwnPage(incoming)) return plain(context, 403, OF_ELSEWHERE);
    const form = await readForm(context);
    const next = nextOf(form.get('next'));
    const remote = clientOf(incoming, proxies);
    const { secret, waitMs } = sessions.signIn(form.get('token') ?? '', remote);
    await sleep(waitMs, undefined, { ref: false });
    if (secret === undefined) {
      log.warn({ remote, waitMs }, 'sign-in refused');
      return page(context, 403, renderSignIn(next, 'This is not the token.'));
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
  };

  const signOut = acting((context) => {
    sessions?.end(secretOf(context));
    deleteCookie(context, cookieName);
    return context.redirect('/', 303);
  });

  const ask = (action: Action) =>
    reading(async (context, session) => {
      if (!session) return sessions ? toSignIn(context) : context.redirect('/', 303);
      const request = requestOf(context);
      const back = action.back(request);
      if (!action.ask) return context.redirect(back, 303);
      const question = await action.ask(deps, request);
      const view = await viewFor(session);
      const { title, body, button, count } = question;
      const lead = html`${body}<form method="post" action="${request.address}">${formToken(view)}${count === undefined ? '' : html`<input type="hidden" name="shown" value="${count}">`}<p><label for="reason">Reason, if you want to leave one</label> <input id="reason" name="reason" maxlength="${LONGEST_REASON}" autocomplete="off"></p><div class="actions"><button class="main">${button}</button><a class="button" href="${back}">Back</a></div></form>`;
      return page(context, 200, renderPage({ title, lead, sections: [] }, view, { path: context.req.path }));
    });

  const act = (name: string, action: Action) =>
    acting(async (context, session, form) => {
      const request = requestOf(context);
      const shown = Number(form.get('shown') ?? 0);
      try {
        const reason = requireReason(form.get('reason') ?? undefined);
        const by = userOf(context.env.incoming, proxies, deps.userHeader);
        const actor = { by, via: 'page', reason } as const;
        const done = await action.act(deps, { ...request, actor, shown });
        session.notices.push(done);
        const { run } = request.params;
        log.info(
          {
            action: name.split('/').at(-1),
            runId: run && Number(run),
            stream: request.query.get('stream') ?? undefined,
          },
          'operator acted',
        );
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
        session.notices.push([messageOf(error), ...error.faults, error.remedy].filter(Boolean).join(' '));
      }
      sources.renew();
      return context.redirect(action.back(request), 303);
    });

  /** Reads the sides of a record or a booking, for the next page of this session. */
  const readSides = (sidesOf: (typeof SIDES)[string]) =>
    acting(async (context, session) => {
      const { path, stream, explain } = sidesOf(await deps.configuration(), requestOf(context).params);
      // A mirror of its own: what it reads ends when the reader has gone, and so does a request.
      const mirror = await deps.openMirror();
      const { signal } = context.req.raw;
      signal.addEventListener('abort', () => void mirror.close());
      try {
        const destination = await deps.destination();
        const sides = { mirror, destination, state: await deps.state(), signal };
        const explained = await explain(sides);
        session.shown.clear();
        session.shown.set(path, { explained, at: new Date() } satisfies Shown<unknown>);
      } finally {
        await mirror.close();
      }
      log.info({ stream }, 'mirror and service read for an operator');
      return context.redirect(path, 303);
    });

  const pages = Object.fromEntries(
    Object.entries(PAGES).map(([path, [shown, isLive]]) => [path, { GET: showPage(shown, isLive) }]),
  );
  const actions = Object.fromEntries(
    Object.entries(ACTIONS).map(([path, action]) => [path, { GET: ask(action), POST: act(path, action) }]),
  );
  const assets = Object.fromEntries(
    Object.entries(ASSETS).map(([path, { file, contentType }]) => {
      const text = readFileSync(new URL(`./${file}`, import.meta.url), 'utf8');
      const body = file === 'page.css' ? text + String(CARDS) : text;
      return [path, () => new Response(body, { headers: { 'content-type': contentType } })];
    }),
  );
  const routes: Routes = {
    ...pages,
    ...actions,
    ...assets,
    ...Object.fromEntries(
      Object.entries(SIDES).map(([path, sidesOf]) => [path, { ...pages[path], POST: readSides(sidesOf) }]),
    ),
    '/sign-in': { GET: showSignIn, POST: signIn },
    '/sign-out': { POST: signOut },
  };

  return {
    routes,
    notFound: reading(() => {
      throw new PageNotFound('There is no such page.');
    }),
  };
}

const NOT_SERVED =
  'The page is read on this machine only, by its loopback address, because HTTP_TOKEN is not set; docs/page.md says how to reach it from elsewhere.';

const OF_ELSEWHERE = 'The form was not sent by a page of this address.';

function requestOf({ req }: HttpContext): PageRequest {
  const { pathname, search, searchParams } = new URL(req.url);
  const params = Object.fromEntries(
    Object.entries(req.param()).map(([name, part]) => [name, keyOfPart(part)]),
  );
  return { params, query: searchParams, address: pathname + search };
}

/** Whether an open page asks whether it is up to date. What an action did is said by the next page that an operator opens. */
const isUpdate = ({ req }: HttpContext) => req.header('if-none-match') !== undefined;

/**
 * Only an address of this server: another one would lead away. Browsers leave out tabs and line breaks, so `/`, a tab and
 * `/host` is one too; and no header takes what is not ASCII.
 */
const nextOf = (next: string | null | undefined): string =>
  typeof next === 'string' && /^\/(?![/\\])[\x21-\x7e]*$/.test(next) ? next : '/';

function renderSignIn(next: string, problem: string): string {
  return String(html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>Sign in · slotsync</title><link rel="stylesheet" href="/page.css"><link rel="icon" href="/page.svg"></head>
<body><main id="main"><h1>Sign in</h1>
${problem === '' ? '' : html`<p class="notice bad" role="alert">${problem}</p>`}
<form method="post" action="/sign-in" class="sign-in"><input type="hidden" name="next" value="${next}">
<label for="token">Token</label><input id="token" name="token" type="password" required autocomplete="current-password" autofocus>
<button class="main">Sign in</button></form>
<p>The token is the setting HTTP_TOKEN of this process.</p></main></body></html>`);
}

const page = ({ html: answer }: HttpContext, status: ContentfulStatusCode, text: string) =>
  answer(text, status);
const plain = ({ text }: HttpContext, status: ContentfulStatusCode, sentence: string) =>
  text(`${sentence}\n`, status);
const toSignIn = (context: HttpContext) =>
  context.redirect(`/sign-in?next=${encodeURIComponent(requestOf(context).address)}`, 303);
