// What is held for approval, and the two answers.
import { html, type Html } from '../html.js';
import { describeHeld, describeKeys, describeSamples, reasonWithoutCommand } from '../report/holds.js';
import type { RunHold } from '../state/runs/holds.js';
import { action, link, pathOf, status, withQuery } from './parts.js';
import type { View } from './view.js';

export function renderHold(hold: RunHold, view: View): Html {
  const { runId, stream, operation, approvable, plannedAnewBy, approvedFor } = hold;
  const about = `${describeHeld(hold)} of run ${runId}`;
  const typed = `${runId} --stream ${stream} --operation ${operation}`;
  const asks = (verb: string) => withQuery(pathOf('runs', runId, verb), { stream, operation });
  const decide = html`${approvable ? action(view, { href: asks('approve'), label: 'Approve …', typed: `slotsync approve ${typed}`, about }) : ''}
${action(view, { href: asks('reject'), label: 'Reject …', typed: `slotsync reject ${typed}`, about })}`;
  const toRun = (id: number) => link(pathOf('runs', id), `run ${id}`);
  const answered =
    plannedAnewBy !== null
      ? html`Planned again by ${toRun(plannedAnewBy)}.`
      : approvedFor !== null
        ? html`Approved: ${toRun(approvedFor)} does it.`
        : undefined;
  return html`<h3>${status('held')} ${describeHeld(hold)}, in ${toRun(runId)}</h3>
<p>${reasonOf(hold)}</p>
${renderSamples(hold)}
<div class="actions">${answered ?? decide}</div>`;
}

/** Why it is held, without the command, which the buttons stand for. */
export function reasonOf({ reason }: Pick<RunHold, 'reason'>): string {
  const short = reasonWithoutCommand(reason);
  return short === reason ? reason : `${short}.`;
}

/** The first of what is held, where all of it is listed, and some of it field by field. */
export function renderSamples(hold: RunHold): Html {
  const samples = describeSamples(hold);
  const keys = html`<p>${describeKeys(hold)}</p>`;
  return samples.length === 0
    ? keys
    : html`${keys}<pre tabindex="0" role="region" aria-label="Samples">${samples.join('\n')}</pre>`;
}
