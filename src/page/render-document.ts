// Documents on the page: with links, and with buttons for whoever may act.
import { isEmptySection, type Action, type Document } from '../documents/document.js';
import { contentToHtml, textToHtml, typedCommand, type Surface } from '../render/html.js';
import { html, type Html, type HtmlValue } from '../text/html.js';
import type { Rendered, View } from './view.js';

/** `more`: what only the page has above the sections. */
export function renderDocument({ title, lead = [], sections }: Document, view: View, more?: Html): Rendered {
  const surface: Surface = {
    timeZone: view.timeZone,
    action: (offered) => (offered.isImmediate ? actNow : action)(view, offered),
  };
  return {
    title,
    lead: html`${lead.map((paragraph) => html`<p>${textToHtml(paragraph, surface)}</p>`)}${more}`,
    sections: sections.map((section) => ({
      id: section.id,
      title: section.title,
      body: contentToHtml(section, surface),
      isUrgent: section.isUrgent,
      isEmpty: isEmptySection(section),
    })),
  };
}

/** The command that an operator types instead. */
export const command = (text: string): Html => html`<code>${text}</code>`;

export const link = (href: string, text: HtmlValue): Html => html`<a href="${href}">${text}</a>`;

/** The action of an operator: a link to the page that asks once more, or the command where nobody may act here. */
function action(view: View, offered: Action): Html {
  const { href, label, about } = offered;
  if (!view.session && !view.canSignIn) return typedCommand(offered);
  return html`<a class="button" href="${href}">${label}<span class="unseen"> ${about}</span></a>`;
}

/** A button that acts at once. */
function actNow(view: View, offered: Action): Html {
  const { href, label, about } = offered;
  if (!view.session) return view.canSignIn ? html`` : typedCommand(offered);
  return html`<form method="post" action="${href}">${formToken(view)}<button>${label}<span class="unseen"> ${about}</span></button></form>`;
}

/** Shows that a form is of a page of this session. */
export const formToken = ({ session }: Pick<View, 'session'>): Html =>
  html`<input type="hidden" name="form_token" value="${session?.formToken ?? ''}">`;
