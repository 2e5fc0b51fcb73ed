// The report of a morning: changes, holds, concerns with their reasons, and requests.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { findChromium, openChromium } from '../support/chromium.js';
import { rehearseOnce } from '../support/rehearsals.js';

const world = rehearseOnce({ rows: 30, sandbox: { rate: 0 } });
const REFUSAL = '<script>alert(1)</script> & [a](b) *c*';

beforeAll(async () => {
  world.sandbox.refuseObject('room_R1', { status: 400, message: REFUSAL });
  await world.ends('sync', 1);
  await world.sql`DELETE FROM rooms WHERE code > 'R15'`;
  await world.run(['sync']);
  await world.sql`
    INSERT INTO slotsync.drift (stream, local_key, kind, seen_at) VALUES ('rooms', 'R10', 'changed', now())`;
  await world.sql`
    INSERT INTO slotsync.drift_events (stream, local_key, to_kind) VALUES ('rooms', 'R10', 'changed')`;
  await world.sql`
    INSERT INTO slotsync.reservations (key, verdict, seen_at) VALUES ('b1', 'missing_there', now())`;
});

const report = (...args: string[]) => world.read(['report', ...args]);

const flat = (text: string) => text.replaceAll(/\s+/g, ' ');

/** Returns the text from a heading to the next. */
const section = (text: string, title: string) => text.split(`\n${title}\n`)[1]?.split(/\n\n/)[0] ?? '';

it('the report lists what needs a person, with the commands, in 80 columns', async () => {
  const text = await report();
  const needed = section(text, 'Needs a person');
  expect(needed).toMatch(/Run 2 holds \d+ deactivations of rooms/);
  expect(needed).toContain('→ slotsync approve 2 --stream rooms --operation retire');
  expect(needed).toContain("rooms 'R1': given up (refused_400) → 1 record of courses waits for it, since");
  expect(needed).toContain(REFUSAL);
  expect(needed).toContain('slotsync retry rooms R1');
  expect(needed).toContain('→ slotsync verify rooms --repair');
  expect(needed).toContain('1 booking does not agree');
  expect(text.split('\n').filter((line) => line.length > 80)).toEqual([]);
});

it('the report has planned and accepted changes, drift, bookings and requests', async () => {
  const text = await report();
  expect(flat(text)).toContain('the last 24 hours, because no nightly sync was due yet');
  expect(section(text, 'What changed')).toMatch(/^rooms +30 +\d+ +29 /m); // to create, to retire, created
  expect(section(text, 'Runs')).toMatch(/^sync: 1 held, 1 partial\.$/m);
  expect(section(text, 'At the service')).toContain('1 found');
  expect(section(text, 'Bookings')).toMatch(/^missing_there +1$/m);
  const requests = flat(section(text, 'Requests'));
  expect(requests).toMatch(/\d+ requests of all processes: .*% of the quota of 20 a second/);
  expect(requests).toContain('0 refused with 429');
  expect(requests).toMatch(/Fastest second: \d+ requests?, at /);
  expect(requests).toContain('Last answer of the service: HTTP 200');
});

it('the report begins when the last nightly sync was due, or at --since', async () => {
  await world.sql`
    INSERT INTO slotsync.schedules (name, pattern, timezone, last_due)
    VALUES ('nightly', '0 2 * * *', 'Europe/Stockholm', now() - interval '5 hours')`;
  expect(flat(await report())).toContain('since the last nightly sync was due');
  await world.sql`DELETE FROM slotsync.schedules`;
  const { period, requests } = JSON.parse(await report('--json', '--since', '2h'));
  expect(period.because).toBe('since');
  expect(Date.parse(period.to) - Date.parse(period.from)).toBe(2 * 60 * 60 * 1000);
  expect(requests).toMatchObject({ throttled: 0, perSecond: 20, allowed: 144_000 });
  await world.sql`UPDATE slotsync.runs SET requested_at = now() - interval '9 hours', finished_at = now() - interval '8 hours' WHERE id = 1`;
  expect(section(await report('--since', '2h'), 'What changed')).not.toMatch(/^rooms +30 /m);
});

it('the report counts the same requests as status, whatever command sent them', async () => {
  await world.read('discover');
  await world.read('check');
  const { requests } = JSON.parse(await report('--json'));
  const { hour } = JSON.parse(await world.read('status --json'));
  const sent = world.sandbox.arrivals().length;
  expect([requests.requests, hour.requests]).toEqual([sent, sent]);
  const status = await world.ends('status --full', 0, `${sent} requests of all processes in the last hour`);
  expect(status).not.toMatch(/ sent, /);
});

it('the report of a run covers that run only', async () => {
  const text = await report('1');
  expect(text).toContain('Report of run 1');
  expect(section(text, 'Runs')).toContain('sync: 1 partial.');
  expect(text).not.toContain('slotsync approve');
});

it('the report as HTML escapes text of the service', async () => {
  const html = await report('--html');
  expect(html).toContain('&lt;script&gt;alert(1)&lt;/script&gt; &amp; [a](b)');
  expect(html).not.toMatch(/<script|https?:\/\/(?!127)|<link|<img| src=/i);
  expect(html.replaceAll(/<\/?span[^>]*>/g, '')).toContain(
    '<code>slotsync approve 2 --stream rooms --operation retire</code>',
  );
});

describe.skipIf(findChromium() === undefined)('the report in a browser', () => {
  it('fits one page of A4, and loads nothing but itself', async () => {
    await report('--html', '--out', 'report.html');
    const file = path.join(world.folder, 'report.html');
    expect(await readFile(file, 'utf8')).toMatch(/^<!doctype html>/);
    const browser = await openChromium();
    try {
      const page = await browser.newPage();
      const requested: string[] = [];
      page.on('request', (request) => requested.push(request.url()));
      await page.goto(`file://${file}`);
      expect(requested).toEqual([`file://${file}`]);
      expect(await page.locator('h1').innerText()).toBe('Report');
      const background = () => page.evaluate('getComputedStyle(document.body).color');
      const light = await background();
      await page.emulateMedia({ colorScheme: 'dark' });
      expect(await background()).not.toBe(light);
      await page.setViewportSize({ width: 390, height: 800 });
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390);
      // A row is a card: its cells stand below their headings.
      const label = 'getComputedStyle(document.querySelector("tbody td"), "::before").content';
      expect(await page.evaluate(label)).toBe('"to create"');
      const pdf = await page.pdf({ preferCSSPageSize: true });
      expect(pdf.toString('latin1').match(/\/Type\s*\/Page\b(?!s)/g)).toHaveLength(1);
    } finally {
      await browser.close();
    }
  });
});
