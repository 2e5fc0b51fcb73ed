// Renders a page as HTML: the frame, and the sections of a document with links, and buttons for operators who may act.
import { filledSections, type Action, type Document, type Section } from '../documents/document.js';
import { contentToHtml, textToHtml, type Surface } from '../render/html.js';
import { toneOf } from '../render/drawings.js';
import { html, type Html } from '../text/html.js';
import type { Sources } from './sources.js';

/** Reads the facts of a page, and returns its content. Throws PageNotFound. */
export type Page = (sources: Sources, request: PageRequest, view: View) => Promise<PageContent>;

export interface PageContent extends Document {
  /** HTML for the page only, placed between the lead and the sections. */
  more?: Html | undefined;
}

export interface PageRequest {
  params: Readonly<Record<string, string>>;
  query: URLSearchParams;
  /** Path and query of the page. Cached facts are stored under this address. */
  address: string;
}

/** Thrown if the page, the run or the record of an address does not exist. */
export class PageNotFound extends Error {}

/** Session of an operator who signed in. */
export interface Session {
  /** Part of every form of the session's pages. A form of another site does not have this token. */
  formToken: string;
  expiresAt: number;
  /** Messages about performed actions. The next page that the operator opens shows them. */
  notices: string[];
  /** Row and object that the operator read last, with the time and the address of the page. */
  shown: { address: string; explained: unknown; at: Date } | undefined;
}

/** Facts about the user that a page is rendered for. */
export interface View {
  timeZone: string;
  /** Session of a signed-in operator, who may act. Undefined for other users. */
  session: Session | undefined;
  /** True if HTTP_TOKEN is set, so that users can sign in. */
  canSignIn: boolean;
}

export const surfaceOf = (view: View): Surface => ({
  timeZone: view.timeZone,
  isReadOnly: !view.session && !view.canSignIn,
  action: (offered) => actionToHtml(view, offered),
});

/** Link to the confirmation page, or a button that acts at once. Users who have not signed in see no such button. */
function actionToHtml(view: View, { href, label, about, isImmediate }: Action): Html {
  const words = html`${label}<span class="unseen"> ${about}</span>`;
  if (!isImmediate) return html`<a class="button" href="${href}">${words}</a>`;
  if (!view.session) return html``;
  return html`<form method="post" action="${href}">${formToken(view)}<button>${words}</button></form>`;
}

/** Hidden field that proves that a form was sent from a page of this session. */
export const formToken = ({ session }: Pick<View, 'session'>): Html =>
  html`<input type="hidden" name="form_token" value="${session?.formToken ?? ''}">`;

const NAVIGATION = [
  ['/', 'Now'],
  ['/runs', 'Runs'],
  ['/failures', 'Failures'],
  ['/drift', 'Drift'],
  ['/bookings', 'Bookings'],
  ['/report', 'Report'],
  ['/actions', 'Actions'],
] as const;

const isCurrent = (href: string, path: string) =>
  href === '/' ? path === '/' : path === href || path.startsWith(`${href}/`);

const renderHead = (title: string): Html => html`<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title} · slotsync</title>
<link rel="stylesheet" href="/page.css">
<link rel="icon" href="/page.svg">
<script src="/page.js" defer></script>
</head>`;

/** Renders the state in one line, which is shown in place of the title. */
function renderHeadline({ status, text, href }: NonNullable<Document['headline']>, surface: Surface): Html {
  const said = textToHtml(text, surface);
  return html`<p class="state ${toneOf(status)}">${href === undefined ? said : html`<a href="${href}">${said}</a>`}</p>`;
}

const renderSection = (section: Section, surface: Surface): Html => {
  const { id, title, isUrgent, isFolded } = section;
  const heading = html`<h2 id="${id}-title">${title}</h2>`;
  const body = contentToHtml(section, surface);
  return html`<section id="${id}" class="${isUrgent ? 'urgent' : 'calm'}" aria-labelledby="${id}-title">
${isFolded ? html`<details><summary>${heading}</summary>${body}</details>` : html`${heading}\n${body}`}
</section>
`;
};

/** Renders the whole HTML page. `isLive`: the browser keeps the open page up to date. */
export function renderPage(
  { title, headline, lead = [], more, sections }: PageContent,
  view: View,
  {
    path,
    notices = [],
    isLive = false,
  }: { path: string; notices?: readonly string[] | undefined; isLive?: boolean },
): string {
  const surface = surfaceOf(view);
  return String(html`<!doctype html>
<html lang="en">
${renderHead(title)}
<body${isLive && html` data-live="${view.timeZone}"`}>
<a class="skip" href="#main">Skip to the content</a>
<header id="header">
<nav aria-label="Pages"><strong>slotsync</strong><ul>${NAVIGATION.map(([href, name]) => html`<li><a href="${href}"${isCurrent(href, path) ? html` aria-current="page"` : ''}>${name}</a></li>`)}</ul></nav>
<form class="search" role="search" action="/records"><label for="key">Record</label><input id="key" name="key" required autocomplete="off" spellcheck="false" placeholder="key or external id"><button>Find</button></form>
${renderAccount(view)}
</header>
<main id="main" tabindex="-1">
<h1${headline && html` class="unseen"`}>${title}</h1>
${notices.map((notice) => html`<p class="notice" role="status">${notice}</p>`)}
<div id="content">${headline && renderHeadline(headline, surface)}<div class="lead">${lead.map((paragraph) => html`<p>${textToHtml(paragraph, surface)}</p>`)}${more}</div>
<div class="sections">${filledSections(sections).map((section) => renderSection(section, surface))}</div></div>
</main>
<footer><p>Times in ${view.timeZone}. <span id="live" role="status">${isLive ? '' : 'Reload to read again.'}</span>${isLive ? html`<noscript>This page is brought up to date by JavaScript; without it, reload.</noscript>` : ''}</p></footer>
</body>
</html>
`);
}

function renderAccount(view: View): Html {
  if (view.session)
    return html`<form class="account" method="post" action="/sign-out">${formToken(view)}<button>Sign out</button></form>`;
  if (view.canSignIn) return html`<p class="account"><a href="/sign-in">Sign in to act</a></p>`;
  return html`<p class="account">Read-only</p>`;
}

/** `next` is the address that the user is redirected to after signing in. */
export function renderSignIn(next: string, problem: string): string {
  return String(html`<!doctype html>
<html lang="en">
${renderHead('Sign in')}
<body><main id="main"><h1>Sign in</h1>
${problem === '' ? '' : html`<p class="notice bad" role="alert">${problem}</p>`}
<form method="post" action="/sign-in" class="sign-in"><input type="hidden" name="next" value="${next}">
<label for="token">Token</label><input id="token" name="token" type="password" required autocomplete="current-password" autofocus>
<button class="main">Sign in</button></form>
<p>Enter the value of the setting HTTP_TOKEN of this process.</p></main></body></html>`);
}
