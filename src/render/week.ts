// Draws the bookings of a week as SVG: a column for each day, and a link for each booking.
import type { Week } from '../documents/document.js';
import { dayOf, formatNear, mostOf, shorten } from '../text/format.js';
import { html, type Html } from '../text/html.js';
import { toneOf } from './tones.js';

/** Size of the drawing in SVG units. The width is that of a phone. */
const WIDTH = 360;
const LEFT = 22;
const TOP = 16;
const HOUR = 18;
const COLUMN = (WIDTH - LEFT) / 7;
const LETTERS = 7;
/** Hours of the day that are always shown, even without bookings. */
const [FROM, TO] = [8, 18];

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
  const last = Math.ceil(
    mostOf(
      boxes.map(({ to }) => to),
      TO,
    ),
  );
  const y = (hour: number) => TOP + (hour - first) * HOUR;
  const height = y(last) + 2;
  const hours = Array.from({ length: last - first + 1 }, (_, at) => first + at);
  return html`<svg class="graph week" viewBox="0 0 ${WIDTH} ${height}" role="group" aria-label="Bookings of the week">
${days.map((day, at) => html`<text x="${(LEFT + (at + 0.5) * COLUMN).toFixed(1)}" y="11" text-anchor="middle">${formatNear(new Date(day), new Date(0), 'UTC')}</text>`)}
${hours.map((hour) => html`<line class="grid" x1="${LEFT}" x2="${WIDTH}" y1="${y(hour)}" y2="${y(hour)}"/>${hour < last && html`<text x="${LEFT - 3}" y="${y(hour) + 9}" text-anchor="end">${hour}</text>`}`)}
${boxes.map(({ booking, day, from, to, lane, isThere }) => {
  const width = COLUMN / (lanes[day] ?? 1);
  const [x, tall] = [LEFT + day * COLUMN + lane * width + 1, (to - from) * HOUR - 1];
  const { href, label, status, key } = booking;
  return html`<a href="${href}" aria-label="${label}"><title>${label}</title><rect class="${toneOf(status)}${isThere && ' there'}" x="${x.toFixed(1)}" y="${y(from).toFixed(1)}" width="${(width - 2).toFixed(1)}" height="${tall.toFixed(1)}" rx="2"/><text class="key" x="${(x + 2).toFixed(1)}" y="${(y(from) + 9).toFixed(1)}">${shorten(key, Math.max(1, Math.floor((LETTERS * width) / COLUMN)))}</text></a>
`;
})}</svg>
<p class="soft">Filled: as the mirror has it. Outlined: as the service has it, where that is another time.</p>
`;
}
