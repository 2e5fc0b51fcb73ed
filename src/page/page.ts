// The operator's page: its addresses, the readers who may ask for them, and what every answer has in common.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { parseNetworks } from '../connections/addresses.js';
import { codeOf, messageOf, SlotsyncError, UsageError } from '../errors/errors.js';
import { keyOfPart } from '../documents/document.js';
import { html } from '../text/html.js';
import {
  HttpError,
  plain,
  readForm,
  type Handler,
  type HttpContext,
  type Routes,
} from '../http/http-server.js';
import type { Logger } from '../process/logger.js';
import type { SettingText } from '../config/setting-text.js';
import { LONGEST_REASON, requireReason } from '../state/actions.js';
import { CARDS } from '../render/html.js';
import { ACTIONS, requireShown, type Action, type ActionDeps } from './actions.js';
import { formToken, PageNotFound, renderPage, type Page, type PageRequest, type View } from './html-page.js';
import { readSides, RECORD_PAGES, type SidesDeps } from './one-record.js';
import { PAGES } from './pages.js';
import { isFromOwnPage, isLocal, userOf } from './request-origin.js';
import { isEqual, type Session } from './sessions.js';
import { createSignIn, OF_ELSEWHERE } from './sign-in.js';
import { createSources, type SourceDeps } from './sources.js';

export interface PageDeps extends ActionDeps, SourceDeps, SidesDeps {
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
  /** The port that the server listens on. */
  port: number;
  log: Logger;
}

const ASSETS = {
  '/page.css': { file: 'page.css', contentType: 'text/css; charset=utf-8' },
  '/page.js': { file: 'browser.js', contentType: 'text/javascript; charset=utf-8' },
  '/page.svg': { file: 'icon.svg', contentType: 'image/svg+xml' },
};

const NOT_SERVED =
  'The page is read on this machine only, by its loopback address, because HTTP_TOKEN is not set; docs/page.md says how to reach it from elsewhere.';

/** The routes of the page. */
export function createPage(deps: PageDeps) {
  const proxies = parseNetworks(deps.trustedProxies ?? '');
  const { signIn, viewFor, reading, acting } = createAccess(deps);
  const sources = createSources(deps);

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
      return context.html(text);
    });

  const ask = (action: Action) =>
    reading(async (context, session) => {
      if (!session) return signIn ? toSignIn(context) : context.redirect('/', 303);
      const request = requestOf(context);
      const back = action.back(request);
      if (!action.ask) return context.redirect(back, 303);
      const count = await action.count?.(deps, request);
      const { title, body, button } = await action.ask(deps, request, count ?? 0);
      const view = await viewFor(session);
      const lead = html`${body}<form method="post" action="${request.address}">${formToken(view)}${count === undefined ? '' : html`<input type="hidden" name="shown" value="${count}">`}<p><label for="reason">Reason, if you want to leave one</label> <input id="reason" name="reason" maxlength="${LONGEST_REASON}" autocomplete="off"></p><div class="actions"><button class="main">${button}</button><a class="button" href="${back}">Back</a></div></form>`;
      return context.html(renderPage({ title, lead, sections: [] }, view, { path: context.req.path }));
    });

  const act = (name: string, action: Action) =>
    acting(async (context, session, form) => {
      const request = requestOf(context);
      const shown = Number(form.get('shown') ?? 0);
      try {
        const reason = requireReason(form.get('reason') ?? undefined);
        const by = userOf(context.env.incoming, proxies, deps.userHeader);
        const actor = { by, via: 'page', reason } as const;
        if (action.count) requireShown(shown, await action.count(deps, request));
        session.notices.push(await action.act(deps, { ...request, actor, shown }));
        const { run } = request.params;
        const stream = request.query.get('stream') ?? undefined;
        deps.log.info(
          { action: name.split('/').at(-1), runId: run && Number(run), stream },
          'operator acted',
        );
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
        session.notices.push([messageOf(error), ...error.faults, error.remedy].filter(Boolean).join(' '));
      }
      sources.renew();
      return context.redirect(action.back(request), 303);
    });

  const read = ({ sidesOf }: (typeof RECORD_PAGES)[string]) =>
    acting(async (context, session) => {
      const { params, address } = requestOf(context);
      const { stream, explain } = sidesOf(await deps.configuration(), params);
      await readSides(deps, explain, { address, session }, context.req.raw.signal);
      deps.log.info({ stream }, 'mirror and service read for an operator');
      return context.redirect(address, 303);
    });

  const notServed = () => plain(404, NOT_SERVED);
  const routes: Routes = {
    ...mapValues(PAGES, ({ page, isLive }) => ({ GET: showPage(page, isLive) })),
    ...mapValues(RECORD_PAGES, (record) => ({ GET: showPage(record.page, false), POST: read(record) })),
    ...mapValues(ACTIONS, (action, path) => ({ GET: ask(action), POST: act(path, action) })),
    ...mapValues(ASSETS, serveAsset),
    '/sign-in': signIn?.route ?? { GET: notServed, POST: notServed },
    '/sign-out': {
      POST: acting((context) => {
        signIn?.end(context);
        return context.redirect('/', 303);
      }),
    },
  };

  return {
    routes,
    notFound: reading(() => {
      throw new PageNotFound('There is no such page.');
    }),
  };
}

/** Decides at each request who reads and who acts. */
function createAccess({ host, token, port, log, trustedProxies, ...deps }: PageDeps) {
  const isOpenHere = deps.signIn !== 'always';
  const proxies = parseNetworks(trustedProxies ?? '');
  const signIn = token === undefined ? undefined : createSignIn({ token, port, proxies, log });

  const viewFor = async (session: Session | undefined): Promise<View> => ({
    timeZone: await deps.timeZone().catch(() => 'UTC'), // the state, which may hold it, does not answer
    session,
    canSignIn: signIn !== undefined,
  });

  /** Answers only those who may read, and makes a page of every failure. */
  const reading =
    (handle: (context: HttpContext, session: Session | undefined) => Response | Promise<Response>): Handler =>
    async (context) => {
      const session = signIn?.find(context);
      try {
        if (session || (isOpenHere && isLocal(context.env.incoming, host))) {
          // No text of PostgreSQL has the character 0, so nothing has such an address.
          if (context.req.url.includes('%00')) throw new PageNotFound('There is no such page.');
          return await handle(context, session);
        }
        return signIn ? toSignIn(context) : plain(403, NOT_SERVED);
      } catch (error) {
        return await answerFailure(context, session, error);
      }
    };

  /** Carries out only a form of an operator who signed in, from a page of this session. */
  const acting = (
    handle: (context: HttpContext, session: Session, form: URLSearchParams) => Response | Promise<Response>,
  ) =>
    reading(async (context, session) => {
      if (!signIn) return plain(403, 'Nobody acts here without HTTP_TOKEN; docs/page.md says how to set it.');
      if (!session) return context.redirect('/sign-in', 303);
      if (!isFromOwnPage(context.env.incoming)) return plain(403, OF_ELSEWHERE);
      const form = await readForm(context);
      if (!isEqual(form.get('form_token') ?? '', session.formToken))
        return plain(403, 'The form is of another session: go back, reload, and send it again.');
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
    const rendered = {
      title: isMissing ? 'Not found' : isUsage ? 'Not done' : 'No answer',
      lead: html`${sentences.map((sentence) => html`<p>${sentence}</p>`)}`,
      sections: [],
    };
    const text = renderPage(rendered, await viewFor(session), { path: context.req.path });
    return context.html(text, isMissing ? 404 : isUsage ? 409 : 503);
  }

  return { signIn, viewFor, reading, acting };
}

function serveAsset({ file, contentType }: (typeof ASSETS)[keyof typeof ASSETS]): Handler {
  const text = readFileSync(new URL(`./${file}`, import.meta.url), 'utf8');
  const body = file === 'page.css' ? text + String(CARDS) : text;
  return () => new Response(body, { headers: { 'content-type': contentType } });
}

const mapValues = <T, U>(values: Readonly<Record<string, T>>, map: (value: T, key: string) => U) =>
  Object.fromEntries(Object.entries(values).map(([key, value]) => [key, map(value, key)]));

function requestOf({ req }: HttpContext): PageRequest {
  const { pathname, search, searchParams } = new URL(req.url);
  const params = mapValues(req.param(), keyOfPart);
  return { params, query: searchParams, address: pathname + search };
}

/** Whether an open page asks whether it is up to date. The next page that an operator opens says what an action did. */
const isUpdate = ({ req }: HttpContext) => req.header('if-none-match') !== undefined;

const toSignIn = (context: HttpContext) =>
  context.redirect(`/sign-in?next=${encodeURIComponent(requestOf(context).address)}`, 303);
