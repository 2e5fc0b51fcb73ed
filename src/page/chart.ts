// Requests of the last hour as a line. What it shows is said in words beside it.
import { formatNumber } from '../text/format.js';
import { html, type Html } from '../text/html.js';

const WIDTH = 600;
const HEIGHT = 96;

interface Minute {
  minute: Date;
  requests: number;
  throttled: number;
}

/** A point for each minute, the oldest first. `label`: its meaning in words; `allowed`: requests that the quota allows in a minute. */
export function requestLine(
  minutes: readonly Minute[],
  { label, allowed }: { label: string; allowed: number },
): Html {
  const most = minutes.reduce((more, { requests }) => Math.max(more, requests), 0);
  const scale = Math.max(1, most);
  const last = Math.max(1, minutes.length - 1);
  const x = (at: number) => ((at / last) * WIDTH).toFixed(1);
  const y = (requests: number) => (HEIGHT - (requests / scale) * (HEIGHT - 4) - 2).toFixed(1);
  const points = minutes.map(({ requests }, at) => `${x(at)},${y(requests)}`).join(' ');
  const refused = minutes.flatMap(({ throttled, requests }, at) =>
    throttled > 0
      ? [
          html`<line x1="${x(at)}" x2="${x(at)}" y1="${y(requests)}" y2="${HEIGHT}" class="refused" vector-effect="non-scaling-stroke"/>`,
        ]
      : [],
  );
  return html`<svg class="line" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${label}" preserveAspectRatio="none">
<polygon class="area" points="0,${HEIGHT} ${points} ${WIDTH},${HEIGHT}"/>
<polyline points="${points}" vector-effect="non-scaling-stroke"/>${refused}
</svg><p class="axis" aria-hidden="true"><span>an hour ago</span><span>at most ${formatNumber(most)} of ${formatNumber(allowed)} a minute</span><span>now</span></p>`;
}
