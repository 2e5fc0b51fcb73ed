// The operator's page: its routes, and what all answers have in common. access.ts decides who gets an answer.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { messageOf, UsageError } from '../errors/errors.js';
import { keyOfPart } from '../documents/document.js';
import { html } from '../text/html.js';
import { plain, type Handler, type HttpContext, type Routes } from '../http/http-server.js';
import { LONGEST_REASON, requireReason } from '../state/actions.js';
import { CARDS, contentToHtml } from '../render/html.js';
import { addressOf, createAccess, isUpdate, NOT_SERVED, toSignIn, type AccessDeps } from './access.js';
import { ACTIONS, parseRun, requireShown, type Action, type ActionDeps } from './actions.js';
import { formToken, PageNotFound, renderPage, surfaceOf, type Page, type PageRequest } from './html-page.js';
import { readSides, RECORD_PAGES, type SidesDeps } from './one-record.js';
import { PAGES } from './pages.js';
import { createSources, type SourceDeps } from './sources.js';

export interface PageDeps extends AccessDeps, ActionDeps, SourceDeps, SidesDeps {}

const ASSETS = {
  '/page.css': { file: 'page.css', contentType: 'text/css; charset=utf-8' },
  '/page.js': { file: 'browser.js', contentType: 'text/javascript; charset=utf-8' },
  '/page.svg': { file: 'icon.svg', contentType: 'image/svg+xml' },
};

export function createPage(given: PageDeps) {
  // Shows times in UTC while the state, which may store the time zone, does not answer.
  const deps = { ...given, timeZone: () => given.timeZone().catch(() => 'UTC') };
  const { signIn, viewFor, reading, acting, userOf } = createAccess(deps);
  const sources = createSources(deps);

  const showPage = (shown: Page, isLive: boolean) =>
    reading(async (context, session) => {
      const view = await viewFor(session);
      const content = await shown(sources, requestOf(context), view);
      const notices = isUpdate(context) ? [] : session?.notices.splice(0);
      const text = renderPage(content, view, { path: context.req.path, notices, isLive });
      // The ETag is weak, because a proxy that compresses the answer changes a strong one.
      const version = `W/"${createHash('sha256').update(text).digest('base64url')}"`;
      if (context.req.header('if-none-match') === version) return context.body(null, 304);
      context.header('etag', version);
      return context.html(text);
    });

  const requested = async ({ back }: Action, context: HttpContext) => {
    const { params, query, address } = requestOf(context);
    const run = params['run'] === undefined ? 0 : parseRun(params['run']);
    const request = { ...deps, state: await deps.state(), run, query: Object.fromEntries(query) };
    return { request, address, back: back.replace(':run', String(run)) };
  };

  const ask = (action: Action) =>
    reading(async (context, session) => {
      if (!session) return signIn ? toSignIn(context) : context.redirect('/', 303);
      const { request, back, address } = await requested(action, context);
      if (!action.ask) return context.redirect(back, 303);
      const count = await action.count?.(request);
      const { button, points, ...question } = await action.ask(request, count ?? 0);
      const view = await viewFor(session);
      const more = html`${contentToHtml({ title: '', points }, surfaceOf(view))}<form method="post" action="${address}">${formToken(view)}${count === undefined ? '' : html`<input type="hidden" name="shown" value="${count}">`}<p><label for="reason">Reason (optional)</label> <input id="reason" name="reason" maxlength="${LONGEST_REASON}" autocomplete="off"></p><div class="actions"><button class="main">${button}</button><a class="button" href="${back}">Back</a></div></form>`;
      const content = { ...question, more, sections: [] };
      return context.html(renderPage(content, view, { path: context.req.path }));
    });

  const act = (name: string, action: Action) =>
    acting(async (context, session, form) => {
      const { request, back } = await requested(action, context);
      const shown = Number(form.get('shown') ?? 0);
      try {
        const reason = requireReason(form.get('reason') ?? undefined);
        const actor = { by: userOf(context), via: 'page', reason } as const;
        if (action.count) requireShown(shown, await action.count(request));
        session.notices.push(await action.act({ ...request, actor, shown }));
        const { run, query } = request;
        const facts = { action: name.split('/').at(-1), runId: run || undefined, stream: query['stream'] };
        deps.log.info(facts, 'operator acted');
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
        session.notices.push([messageOf(error), ...error.faults, error.remedy].filter(Boolean).join(' '));
      }
      sources.renew();
      return context.redirect(back, 303);
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
      throw new PageNotFound('This page does not exist.');
    }),
  };
}

function serveAsset({ file, contentType }: (typeof ASSETS)[keyof typeof ASSETS]): Handler {
  const text = readFileSync(new URL(`./${file}`, import.meta.url), 'utf8');
  const body = file === 'page.css' ? text + String(CARDS) : text;
  return () => new Response(body, { headers: { 'content-type': contentType } });
}

const mapValues = <T, U>(values: Readonly<Record<string, T>>, map: (value: T, key: string) => U) =>
  Object.fromEntries(Object.entries(values).map(([key, value]) => [key, map(value, key)]));

function requestOf({ req }: HttpContext): PageRequest {
  const params = mapValues(req.param(), keyOfPart);
  return { params, query: new URL(req.url).searchParams, address: addressOf(req) };
}
