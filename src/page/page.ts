// The operator's page: its addresses, who may ask for them, and what every answer has in common.
import { readFileSync } from 'node:fs';
import { codeOf, messageOf, SlotsyncError, UsageError } from '../errors.js';
import { html } from '../html.js';
import {
  HttpError,
  type Handler,
  type HttpAnswer,
  type HttpRequest,
  type Routes,
} from '../http/http-server.js';
import type { Logger } from '../logger.js';
import type { SettingText } from '../setting-text.js';
import type { SyncDeps } from '../sync/sync-deps.js';
import { explainRecord } from '../sync/explain-record.js';
import { visible } from '../visible-text.js';
import { isFromOwnPage, isLocal, isSecure } from './access.js';
import { ACTIONS, type Action, type ActionDeps, type ActionRequest } from './actions.js';
import { bookingsPage } from './bookings.js';
import { driftPage } from './drift.js';
import { failuresPage } from './failures.js';
import { renderPage } from './frame.js';
import { createLive } from './live.js';
import { nowPage } from './now.js';
import { formToken, pathOf } from './parts.js';
import { recordPage, searchPage, type Shown } from './records.js';
import { reportPage } from './report.js';
import { runPage, runsPage } from './runs.js';
import { COOKIE_SECONDS, createSessions, isEqual, type Session } from './sessions.js';
import { createSources, type SourceDeps } from './sources.js';
import { PageNotFound, type Page, type PageRequest, type Rendered, type View } from './view.js';

export interface PageDeps extends ActionDeps, SourceDeps {
  /** HTTP_HOST: where the server listens. */
  host: string;
  /** HTTP_TOKEN; without it nobody acts. */
  token: SettingText | undefined;
  /** Where the server listens; cookies do not tell the ports of a host apart. */
  port: number;
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
  '/report': [reportPage, false],
};

const ASSETS = {
  '/page.css': { file: 'page.css', contentType: 'text/css; charset=utf-8' },
  '/page.js': { file: 'browser.js', contentType: 'text/javascript; charset=utf-8' },
  '/page.svg': { file: 'icon.svg', contentType: 'image/svg+xml' },
};

/** A handler of somebody who may read. */
type ReaderHandler = (request: HttpRequest, session: Session | undefined) => HttpAnswer | Promise<HttpAnswer>;

/** The routes of the page. To be closed before the server. */
export function createPage(deps: PageDeps) {
  const { host, token, port, log, timeZone } = deps;
  const sources = createSources(deps);
  const sessions = token === undefined ? undefined : createSessions(token);
  const live = createLive({ log });
  const cookieName = () => `slotsync_${port}`;
  const secretOf = ({ cookies }: HttpRequest) => cookies.get(cookieName());

  const viewFor = async (session: Session | undefined): Promise<View> => ({
    now: new Date(),
    timeZone: await timeZone(),
    session,
    canSignIn: sessions !== undefined,
  });

  /** Lets those read who may, and makes a page of every failure. */
  const reading =
    (handle: ReaderHandler): Handler =>
    async (request) => {
      const session = sessions?.find(secretOf(request));
      try {
        if (session || isLocal(request, host)) return await handle(request, session);
        if (sessions) return redirect(`/sign-in?next=${encodeURIComponent(request.address)}`);
        return plain(403, NOT_SERVED);
      } catch (error) {
        return await answerFailure(request, session, error);
      }
    };

  /** The same for a form: of somebody who signed in, from a page of this session. */
  const acting = (
    handle: (request: HttpRequest, form: URLSearchParams, session: Session) => Promise<HttpAnswer>,
  ) =>
    reading(async (request, session) => {
      if (!sessions)
        return plain(403, 'Nobody acts here without HTTP_TOKEN; docs/page.md says how to set it.');
      if (!session) return redirect('/sign-in');
      if (!isFromOwnPage(request)) return plain(403, 'The form was not sent by a page of this address.');
      const form = await request.form();
      if (!isEqual(form.get('form_token') ?? '', session.formToken))
        return plain(403, 'The form is of another session: go back, reload, and send it again.');
      return handle(request, form, session);
    });

  async function answerFailure(
    request: HttpRequest,
    session: Session | undefined,
    error: unknown,
  ): Promise<HttpAnswer> {
    if (error instanceof HttpError) return plain(error.status, error.message);
    const isMissing = error instanceof PageNotFound;
    const isUsage = error instanceof UsageError;
    if (!isMissing && !isUsage) log.warn({ code: codeOf(error) }, 'page could not be shown');
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
    return page(status, renderPage(rendered, view, { path: request.path, address: request.address }));
  }

  const showPage = (shown: Page, isLive: boolean) =>
    reading(async (request, session) => {
      const address = request.address;
      const render = await shown(sources, { params: request.params, query: request.query, address });
      const view = await viewFor(session);
      const notices = session?.notices.splice(0) ?? [];
      return page(200, renderPage(render(view), view, { path: request.path, address, notices, isLive }));
    });

  /** Events of one live page: `of` is its address. */
  const events = reading(async (request, session) => {
    const address = request.query.get('of') ?? '';
    const found = findLivePage(address);
    if (!found) return plain(404, 'no such page');
    if (live.isFull()) return { ...plain(503, 'too many open pages'), headers: { 'retry-after': '60' } };
    const render = async () => (await found.page(sources, found.request))(await viewFor(session));
    return {
      status: 200,
      contentType: 'text/event-stream',
      body: 'retry: 2000\n\n',
      events: (client) => live.add(client, render),
    };
  });

  const showSignIn: Handler = (request) => {
    if (!sessions) return plain(404, NOT_SERVED);
    return page(200, renderSignIn(nextOf(request.query.get('next')), ''));
  };

  const signIn: Handler = async (request) => {
    if (!sessions) return plain(404, NOT_SERVED);
    if (!isFromOwnPage(request)) return plain(403, 'The form was not sent by a page of this address.');
    const form = await request.form();
    const next = nextOf(form.get('next'));
    const result = sessions.signIn(form.get('token') ?? '', request.remote);
    if (typeof result === 'string') {
      log.warn({ remote: request.remote, result }, 'sign-in refused');
      return result === 'wrong'
        ? page(403, renderSignIn(next, 'This is not the token.'))
        : {
            ...page(429, renderSignIn(next, 'Too many wrong tokens. Wait ten minutes.')),
            headers: { 'retry-after': '600' },
          };
    }
    log.info('operator signed in');
    sessions.end(secretOf(request));
    return redirect(next, cookie(result.secret, COOKIE_SECONDS, request));
  };

  const signOut = acting(async (request) => {
    sessions?.end(secretOf(request));
    return redirect('/', cookie('', 0, request));
  });

  const cookie = (secret: string, seconds: number, request: HttpRequest) =>
    `${cookieName()}=${secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${seconds}${isSecure(request) ? '; Secure' : ''}`;

  const ask = (action: Action) =>
    reading(async (request, session) => {
      if (!session) return redirect(sessions ? `/sign-in?next=${encodeURIComponent(request.address)}` : '/');
      if (!action.ask) return redirect(action.back(asked(request)));
      const question = await action.ask(deps, asked(request));
      const view = await viewFor(session);
      const { title, body, button, count } = question;
      const lead = html`${body}<form method="post" action="${request.address}">${formToken(view)}${count === undefined ? '' : html`<input type="hidden" name="shown" value="${count}">`}<div class="actions"><button class="main">${button}</button><a class="button" href="${action.back(asked(request))}">Back</a></div></form>`;
      return page(
        200,
        renderPage({ title, lead, sections: [] }, view, { path: request.path, address: request.address }),
      );
    });

  const act = (name: string, action: Action) =>
    acting(async (request, form, session) => {
      const shown = form.get('shown');
      const wanted = { ...asked(request), shown: shown === null ? undefined : Number(shown) };
      try {
        const done = await action.act(deps, wanted);
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
      return redirect(action.back(wanted));
    });

  /** Reads row and object of a record, for the next page of this session. */
  const readSides = acting(async ({ params }, _form, session) => {
    const { stream = '', key = '' } = params;
    const declared = (await deps.configuration()).streams.find(({ name }) => name === stream);
    const path = pathOf('records', stream, key);
    if (!declared) throw new UsageError(`no stream '${stream}' is in the configuration`);
    const sides = {
      mirror: await deps.mirror(),
      destination: await deps.destination(),
      state: await deps.state(),
    };
    const explained = await explainRecord(sides, declared, key);
    session.shown.clear();
    session.shown.set(path, { explained, at: new Date() } satisfies Shown);
    log.info({ stream }, 'record read for an operator');
    return redirect(path);
  });

  const pages = Object.fromEntries(
    Object.entries(PAGES).map(([path, [shown, isLive]]) => [path, { GET: showPage(shown, isLive) }]),
  );
  const actions = Object.fromEntries(
    Object.entries(ACTIONS).map(([path, action]) => [path, { GET: ask(action), POST: act(path, action) }]),
  );
  const assets = Object.fromEntries(
    Object.entries(ASSETS).map(([path, { file, contentType }]) => {
      const body = readFileSync(new URL(`./${file}`, import.meta.url), 'utf8');
      return [path, () => ({ status: 200, contentType, body })];
    }),
  );
  const routes: Routes = {
    ...pages,
    ...actions,
    ...assets,
    '/records/:stream/:key': { GET: showPage(recordPage, false), POST: readSides },
    '/events': events,
    '/sign-in': { GET: showSignIn, POST: signIn },
    '/sign-out': { POST: signOut },
  };

  return {
    routes,
    notFound: reading(() => {
      throw new PageNotFound('There is no such page.');
    }),
    close: live.close,
  };
}

const NOT_SERVED =
  'The page is read on this machine only, by its loopback address, because HTTP_TOKEN is not set; docs/page.md says how to reach it from elsewhere.';

const asked = ({ params, query }: HttpRequest): ActionRequest => ({ params, query, shown: undefined });

/** The page of an address, if it is one that is brought up to date. */
function findLivePage(address: string): { page: Page; request: PageRequest } | undefined {
  const [path = '', search = ''] = address.split('?', 2);
  const run = /^\/runs\/(\d{1,15})$/.exec(path)?.[1];
  const [page, isLive] = PAGES[run === undefined ? path : '/runs/:run'] ?? [];
  if (!page || !isLive) return undefined;
  return {
    page,
    request: { params: run === undefined ? {} : { run }, query: new URLSearchParams(search), address },
  };
}

/**
 * Only an address of this server: another one would lead away. Browsers leave out tabs and line breaks, so `/`, a tab and
 * `/host` is one too; and no header takes what is not ASCII.
 */
const nextOf = (next: string | null): string =>
  next !== null && /^\/(?![/\\])[\x21-\x7e]*$/.test(next) ? next : '/';

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

const page = (status: number, body: string): HttpAnswer => ({
  status,
  contentType: 'text/html; charset=utf-8',
  body: visible(body),
});
const plain = (status: number, sentence: string): HttpAnswer => ({
  status,
  contentType: 'text/plain; charset=utf-8',
  body: `${sentence}\n`,
});
const redirect = (location: string, setCookie?: string): HttpAnswer => ({
  ...plain(303, `See ${location}`),
  headers: { location, ...(setCookie === undefined ? {} : { 'set-cookie': setCookie }) },
});
