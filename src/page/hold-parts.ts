// What is held for approval, and the two answers.
import { html, type Html } from '../html.js';
import { describeHeld, describeSamples, reasonWithoutCommand } from '../report/holds.js';
import type { RunHold } from '../state/runs/holds.js';
import { action, link, pathOf, status, withQuery } from './parts.js';
import type { View } from './view.js';

export function renderHold(hold: RunHold, view: View): Html {
  const { runId, stream, operation, approvable, plannedAnewBy } = hold;
  const about = `${describeHeld(hold)} of run ${runId}`;
  const typed = `${runId} --stream ${stream} --operation ${operation}`;
  const asks = (verb: string) => withQuery(pathOf('runs', runId, verb), { stream, operation });
  const decide = html`${approvable ? action(view, { href: asks('approve'), label: 'Approve …', typed: `slotsync approve ${typed}`, about }) : ''}
${action(view, { href: asks('reject'), label: 'Reject …', typed: `slotsync reject ${typed}`, about })}`;
  return html`<h3>${status('held')} ${describeHeld(hold)}, in ${link(pathOf('runs', runId), `run ${runId}`)}</h3>
<p>${reasonOf(hold)}</p>
${renderSamples(hold)}
<div class="actions">${plannedAnewBy === null ? decide : html`Planned again by ${link(pathOf('runs', plannedAnewBy), `run ${plannedAnewBy}`)}.`}</div>`;
}

/** Why it is held, without the command, which the buttons stand for. */
export function reasonOf({ reason }: Pick<RunHold, 'reason'>): string {
  const short = reasonWithoutCommand(reason);
  return short === reason ? reason : `${short}.`;
}

export function renderSamples(hold: RunHold): Html {
  const samples = describeSamples(hold);
  return samples.length === 0
    ? html``
    : html`<pre tabindex="0" role="region" aria-label="Samples">${samples.join('\n')}</pre>`;
}
