// Documents on the page: with links, and with buttons for whoever may act.
import { isEmptySection, type Action, type Document } from '../documents/document.js';
import { contentToHtml, textToHtml, type Surface } from '../render/html.js';
import { html, type Html } from '../text/html.js';
import { action, actNow } from './parts.js';
import type { Rendered, View } from './view.js';

/** `more`: what only the page has above the sections. */
export function renderDocument({ title, lead = [], sections }: Document, view: View, more?: Html): Rendered {
  const surface = surfaceOf(view);
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

export const surfaceOf = (view: View): Surface => ({
  timeZone: view.timeZone,
  action: (offered: Action) => (offered.isImmediate ? actNow : action)(view, offered),
});
