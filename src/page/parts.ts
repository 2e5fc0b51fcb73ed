// The parts that every page uses: commands, links and buttons.
import type { Action } from '../documents/document.js';
import { typedCommand } from '../render/html.js';
import { html, type Html, type HtmlValue } from '../text/html.js';
import type { View } from './view.js';

/** The command that an operator types instead. */
export const command = (text: string): Html => html`<code>${text}</code>`;

export const link = (href: string, text: HtmlValue): Html => html`<a href="${href}">${text}</a>`;

/** The action of an operator: a link to the page that asks once more, or the command where nobody may act here. */
export function action(view: View, offered: Action): Html {
  const { href, label, about } = offered;
  if (!view.session && !view.canSignIn) return typedCommand(offered);
  return html`<a class="button" href="${href}">${label}<span class="unseen"> ${about}</span></a>`;
}

/** A button that acts at once. */
export function actNow(view: View, offered: Action): Html {
  const { href, label, about } = offered;
  if (!view.session) return view.canSignIn ? html`` : typedCommand(offered);
  return html`<form method="post" action="${href}">${formToken(view)}<button>${label}<span class="unseen"> ${about}</span></button></form>`;
}

/** Shows that a form is of a page of this session. */
export const formToken = ({ session }: Pick<View, 'session'>): Html =>
  html`<input type="hidden" name="form_token" value="${session?.formToken ?? ''}">`;
