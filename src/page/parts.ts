// The parts that every page uses: commands, links and buttons.
import { html, type Html, type HtmlValue } from '../text/html.js';
import type { View } from './view.js';

/** The command that an operator types instead. */
export const command = (text: string): Html => html`<code>${text}</code>`;

export const link = (href: string, text: HtmlValue): Html => html`<a href="${href}">${text}</a>`;

/**
 * The action of an operator: a link to the page that asks once more, or the command where nobody may act here.
 */
export function action(
  view: View,
  { href, label, typed, about }: { href: string; label: string; typed: string; about: string },
): Html {
  if (!view.session && !view.canSignIn) return html`<span class="typed">To act: ${command(typed)}</span>`;
  return html`<a class="button" href="${href}">${label}<span class="unseen"> ${about}</span></a>`;
}

/** A button that acts at once. */
export function actNow(
  view: View,
  { href, label, typed, about }: { href: string; label: string; typed: string; about: string },
): Html {
  if (!view.session) return view.canSignIn ? html`` : html`<span class="typed">${command(typed)}</span>`;
  return html`<form method="post" action="${href}">${formToken(view)}<button>${label}<span class="unseen"> ${about}</span></button></form>`;
}

/** Shows that a form is of a page of this session. */
export const formToken = ({ session }: Pick<View, 'session'>): Html =>
  html`<input type="hidden" name="form_token" value="${session?.formToken ?? ''}">`;
