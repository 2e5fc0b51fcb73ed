// The frame of every page: navigation, search, messages, and its sections.
import { html, type Html } from '../text/html.js';
import { formToken } from './render-document.js';
import type { Rendered, Section, View } from './view.js';

const PAGES = [
  ['/', 'Now'],
  ['/runs', 'Runs'],
  ['/failures', 'Failures'],
  ['/drift', 'Drift'],
  ['/bookings', 'Bookings'],
  ['/report', 'Report'],
  ['/actions', 'Actions'],
] as const;

const renderSection = ({ id, title, body, isUrgent, isEmpty }: Section): Html =>
  html`<section id="${id}" class="${isUrgent ? 'urgent' : 'calm'}" aria-labelledby="${id}-title"${isEmpty ? html` hidden` : ''}>
<h2 id="${id}-title">${title}</h2>
${body}
</section>
`;

/** `path`: of the page. `isLive`: the browser brings it up to date. */
export function renderPage(
  rendered: Rendered,
  view: View,
  {
    path,
    notices = [],
    isLive = false,
  }: { path: string; notices?: readonly string[] | undefined; isLive?: boolean },
): string {
  const { title, lead, sections } = rendered;
  return String(html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title} · slotsync</title>
<link rel="stylesheet" href="/page.css">
<link rel="icon" href="/page.svg">
<script src="/page.js" defer></script>
</head>
<body${isLive ? html` data-live` : ''}>
<a class="skip" href="#main">Skip to the content</a>
<header id="header">
<nav aria-label="Pages"><strong>slotsync</strong><ul>${PAGES.map(([href, name]) => html`<li><a href="${href}"${isCurrent(href, path) ? html` aria-current="page"` : ''}>${name}</a></li>`)}</ul></nav>
<form class="search" role="search" action="/records"><label for="key">Record</label><input id="key" name="key" required autocomplete="off" spellcheck="false" placeholder="key or external id"><button>Find</button></form>
${renderAccount(view)}
</header>
<main id="main" tabindex="-1">
<h1>${title}</h1>
${notices.map((notice) => html`<p class="notice" role="status">${notice}</p>`)}
<div id="lead">${lead}</div>
<div class="sections">${sections.map(renderSection)}</div>
</main>
<footer><p>Times in ${view.timeZone}. <span id="live" role="status">${isLive ? '' : 'Reload to read again.'}</span>${isLive ? html`<noscript>This page is brought up to date by JavaScript; without it, reload.</noscript>` : ''}</p></footer>
</body>
</html>
`);
}

const isCurrent = (href: string, path: string) =>
  href === '/' ? path === '/' : path === href || path.startsWith(`${href}/`);

function renderAccount(view: View): Html {
  if (view.session)
    return html`<form class="account" method="post" action="/sign-out">${formToken(view)}<button>Sign out</button></form>`;
  if (view.canSignIn) return html`<p class="account"><a href="/sign-in">Sign in to act</a></p>`;
  return html`<p class="account">Read-only</p>`;
}
