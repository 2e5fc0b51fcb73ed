// Draws graphs over time as SVG without inline styles and scripts: requests a second, and objects sent each night.
import type { Graph, Text } from '../documents/document.js';
import { formatNumber, mostOf } from '../text/format.js';
import { html, type Html } from '../text/html.js';

/** Size of the drawing in SVG units. The width is that of a phone. */
const WIDTH = 360;
const HEIGHT = 124;
const LEFT = 34;
const TOP = 14;
const BOTTOM = 18;
const [ACROSS, DOWN] = [WIDTH - LEFT - 2, HEIGHT - TOP - BOTTOM];

const fixed = (value: number) => Number(value.toFixed(1));

/** Returns the smallest of 1, 2, 4, 6, 8, 10, 20, … that is at least `most`. */
function roundUp(most: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, most)));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= most) ?? most;
}

/** `toPlain` converts a text with parts into plain characters. */
export function graphToHtml(graph: Graph, toPlain: (text: Text) => string): Html {
  const { title, says, unit, points, peaks = [], limit, ends, isBars } = graph;
  const highest = mostOf([limit?.value ?? 0, ...peaks, ...points.map(({ value }) => value)], 1);
  const most = limit && highest <= limit.value ? limit.value : roundUp(highest);
  const y = (value: number) => fixed(TOP + DOWN * (1 - value / most));
  const width = ACROSS / Math.max(1, points.length);
  const x = (at: number) => fixed(LEFT + at * width);
  const floor = y(0);
  // Draws a stepped line: each value lasts until the next step begins.
  const stepsOf = (values: readonly number[]) =>
    values.map((value, at) => `${x(at)},${y(value)} ${x(at + 1)},${y(value)}`).join(' ');
  const bars = points.map(
    ({ label, value }, at) =>
      html`<rect class="bar" x="${fixed(x(at) + 1)}" y="${y(value)}" width="${fixed(width - 2)}" height="${fixed(floor - y(value))}"><title>${toPlain(label)}</title></rect>`,
  );
  const values = points.map(({ value }) => value);
  const lines = html`<polygon class="area" points="${LEFT},${floor} ${stepsOf(values)} ${WIDTH - 2},${floor}"/>${peaks.length > 0 && html`<polyline class="peaks" points="${stepsOf(peaks)}"/>`}`;
  return html`<figure><figcaption>${title}</figcaption><svg class="graph" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${title}. ${toPlain(says)}">
${[0, most / 2, most].map(
  (value) =>
    html`<line class="grid" x1="${LEFT}" x2="${WIDTH - 2}" y1="${y(value)}" y2="${y(value)}"/><text x="${LEFT - 4}" y="${fixed(y(value) + 3.5)}" text-anchor="end">${shortNumber(value)}</text>`,
)}${isBars ? bars : lines}${
    limit &&
    html`<line class="limit" x1="${LEFT}" x2="${WIDTH - 2}" y1="${y(limit.value)}" y2="${y(limit.value)}"/><text class="limit" x="${WIDTH - 4}" y="${fixed(y(limit.value) - 3)}" text-anchor="end">${limit.name}</text>`
  }<text x="${LEFT}" y="${HEIGHT - 4}">${toPlain(ends[0])}</text><text x="${WIDTH - 2}" y="${HEIGHT - 4}" text-anchor="end">${toPlain(ends[1])}</text><text x="${fixed(LEFT + ACROSS / 2)}" y="${HEIGHT - 4}" text-anchor="middle">${unit}</text>
</svg></figure>
`;
}

/** Returns text such as `1.5 k`, because an axis has little room. */
const shortNumber = (value: number) =>
  value >= 1000 ? `${fixed(value / 1000)} k` : formatNumber(value >= 10 ? Math.round(value) : fixed(value));
