// The frame of every page: navigation, search, messages, and its sections.
import { createHash } from 'node:crypto';
import { html, type Html } from '../text/html.js';
import { formToken } from './parts.js';
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

const versionOf = (content: string) => createHash('sha256').update(content).digest('base64url').slice(0, 12);

function renderSection({ id, title, body, isUrgent, isEmpty }: Section): Html {
  const version = versionOf(`${title} ${isUrgent} ${isEmpty} ${String(body)}`);
  return html`<section id="${id}" class="${isUrgent ? 'urgent' : 'calm'}" aria-labelledby="${id}-title" data-version="${version}"${isEmpty ? html` hidden` : ''}>
<h2 id="${id}-title">${title}</h2>
${body}
</section>
`;
}

const renderLead = ({ lead }: Rendered): Html =>
  html`<div id="lead" data-version="${versionOf(String(lead ?? ''))}">${lead}</div>`;

/** The parts of a page that are brought up to date one by one, by their ids. */
export function renderParts(rendered: Rendered): [id: string, text: string][] {
  const sections = rendered.sections.map((section): [string, Html] => [section.id, renderSection(section)]);
  const parts: [string, Html][] = [['lead', renderLead(rendered)], ...sections];
  return parts.map(([id, part]) => [id, String(part)]);
}

/** `path`: of the page. `isLive`: its sections are brought up to date. */
export function renderPage(
  rendered: Rendered,
  view: View,
  {
    path,
    address,
    notices = [],
    isLive = false,
  }: { path: string; address: string; notices?: readonly string[]; isLive?: boolean },
): string {
  const { title } = rendered;
  const live = isLive ? html` data-live="/events?of=${encodeURIComponent(address)}"` : '';
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
<body${live}>
<a class="skip" href="#main">Skip to the content</a>
<header>
<nav aria-label="Pages"><strong>slotsync</strong><ul>${PAGES.map(([href, name]) => html`<li><a href="${href}"${isCurrent(href, path) ? html` aria-current="page"` : ''}>${name}</a></li>`)}</ul></nav>
<form class="search" role="search" action="/records"><label for="key">Record</label><input id="key" name="key" required autocomplete="off" spellcheck="false" placeholder="key or external id"><button>Find</button></form>
${renderAccount(view)}
</header>
<main id="main" tabindex="-1">
<h1>${title}</h1>
${notices.map((notice) => html`<p class="notice" role="status">${notice}</p>`)}
${renderLead(rendered)}
<div class="sections">${rendered.sections.map(renderSection)}</div>
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
