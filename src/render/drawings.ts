// Colors of statuses on the page, and its drawings as SVG without inline styles and scripts: graphs over time, and the
// bookings of a week.
import type { Graph, Text, Week } from '../documents/document.js';
import { formatNumber, mostOf, dayOf, formatNear, shorten } from '../text/format.js';
import { html, type Html } from '../text/html.js';

/** A color says no more than the word of the status. */
const TONES = {
  moving: ['running', 'planning'],
  good: ['succeeded', 'synced', 'retired', 'working', 'agrees'],
  bad: ['failed', 'dead', 'stopped', 'not seen', 'missing', 'absent', 'missing_there', 'unknown_here'],
  waiting: [
    'held',
    'partial',
    'deferred',
    'paused',
    'pending',
    'changed',
    'inactive',
    'differs',
    'cancelled_there',
    'cancelled_here',
  ],
};

export const toneOf = (status: string): string =>
  Object.entries(TONES).find(([, statuses]) => statuses.includes(status))?.[0] ?? 'neutral';

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

const [WEEK_LEFT, WEEK_TOP, HOUR] = [22, 16, 18];
const COLUMN = (WIDTH - WEEK_LEFT) / 7;
const LETTERS = 7;
/** Hours of the day that are always shown, even without bookings. */
const [FROM, TO] = [8, 18];

/** Draws the bookings of a week: a column for each day, and a link for each booking. */
export function weekToHtml({ days, bookings }: Week, timeZone: string): Html {
  const hourOf = (time: Date) => {
    const [hours = 0, minutes = 0] = time.toLocaleTimeString('sv-SE', { timeZone }).split(':').map(Number);
    return hours + minutes / 60;
  };
  const boxes = bookings.flatMap((booking) =>
    booking.periods.flatMap(({ begin, end }, at) => {
      const day = days.indexOf(dayOf(begin, timeZone));
      const from = hourOf(begin);
      const to = dayOf(end, timeZone) === dayOf(begin, timeZone) ? hourOf(end) : 24;
      return day < 0 ? [] : [{ booking, day, from, to: Math.max(to, from + 0.5), isThere: at > 0, lane: 0 }];
    }),
  );
  const lanes = days.map((_, day) => {
    const ends: number[] = [];
    for (const box of boxes.filter((one) => one.day === day).toSorted((a, b) => a.from - b.from)) {
      const free = ends.findIndex((end) => end <= box.from);
      box.lane = free < 0 ? ends.length : free;
      ends[box.lane] = box.to;
    }
    return Math.max(1, ends.length);
  });
  const first = Math.floor(boxes.reduce((least, { from }) => Math.min(least, from), FROM));
  const last = Math.ceil(boxes.reduce((most, { to }) => Math.max(most, to), TO));
  const y = (hour: number) => WEEK_TOP + (hour - first) * HOUR;
  const height = y(last) + 2;
  const hours = Array.from({ length: last - first + 1 }, (_, at) => first + at);
  return html`<svg class="graph week" viewBox="0 0 ${WIDTH} ${height}" role="group" aria-label="Bookings of the week">
${days.map((day, at) => html`<text x="${(WEEK_LEFT + (at + 0.5) * COLUMN).toFixed(1)}" y="11" text-anchor="middle">${formatNear(new Date(day), new Date(0), 'UTC')}</text>`)}
${hours.map((hour) => html`<line class="grid" x1="${WEEK_LEFT}" x2="${WIDTH}" y1="${y(hour)}" y2="${y(hour)}"/>${hour < last && html`<text x="${WEEK_LEFT - 3}" y="${y(hour) + 9}" text-anchor="end">${hour}</text>`}`)}
${boxes.map(({ booking, day, from, to, lane, isThere }) => {
  const width = COLUMN / (lanes[day] ?? 1);
  const [x, tall] = [WEEK_LEFT + day * COLUMN + lane * width + 1, (to - from) * HOUR - 1];
  const { href, label, status, key } = booking;
  return html`<a href="${href}" aria-label="${label}"><title>${label}</title><rect class="${toneOf(status)}${isThere && ' there'}" x="${x.toFixed(1)}" y="${y(from).toFixed(1)}" width="${(width - 2).toFixed(1)}" height="${tall.toFixed(1)}" rx="2"/><text class="key" x="${(x + 2).toFixed(1)}" y="${(y(from) + 9).toFixed(1)}">${shorten(key, Math.max(1, Math.floor((LETTERS * width) / COLUMN)))}</text></a>
`;
})}</svg>
<p class="soft">Filled: time in the mirror. Outlined: time at the service, if it differs.</p>
`;
}
