// A hold on the page that asks for the operator's answer: why it is held, and its first records.
import { html, type Html } from '../text/html.js';
import { describeKeys, describeSamples } from '../documents/holds.js';
import type { RunHold } from '../state/runs/holds.js';
import { describeReason } from '../sync/limits/hold-reason.js';

/** Why it is held, without the command, which the buttons replace. */
export function reasonOf(hold: RunHold): string {
  return hold.approvable ? `${describeReason(hold)}.` : describeReason(hold);
}

/** The first of what is held, where all of it is listed, and some of it field by field. */
export function renderSamples(hold: RunHold): Html {
  const samples = describeSamples(hold);
  const keys = html`<p>${describeKeys(hold)}</p>`;
  return samples.length === 0
    ? keys
    : html`${keys}<pre tabindex="0" role="region" aria-label="Samples">${samples.map((line) => html`${line}\n`)}</pre>`;
}
