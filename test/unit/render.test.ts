import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  addressOfBooking,
  addressOfRecord,
  keyOfPart,
  linkToRun,
  text,
  type Document,
} from '../../src/documents/document.js';
import { contentToHtml, documentToHtml, textToHtml } from '../../src/render/html.js';
import { documentToText } from '../../src/render/text.js';
import { quote } from '../../src/situation/commands.js';
import { html } from '../../src/text/html.js';
import { visibleInLine } from '../../src/text/visible-text.js';
import { DOCUMENTS } from '../support/documents.js';
import { AWKWARD, OBEYED } from '../support/situations.js';

const ZONE = 'Europe/Stockholm';
const command = 'slotsync approve 5 --stream rooms --operation retire';
const document: Document = {
  title: 'Report',
  lead: [text`Since ${{ minute: new Date('2026-11-22T01:00:00Z') }}.`],
  sections: [
    {
      id: 'needs',
      title: 'Needs a person',
      paragraphs: [text`To see more: ${{ command: 'slotsync runs' }}`],
      facts: [['Last answer', new Date('2026-11-22T01:00:07Z').toISOString()]],
      points: [
        {
          status: 'held',
          text: text`Held in ${linkToRun(5)}: <12> deactivations of rooms`,
          details: ['more than *10 %* of the stream'],
          samples: ["'a' → room_a"],
          commands: [{ command, href: '/runs/5/approve', label: 'Approve …', about: 'rooms' }],
        },
      ],
      table: { headings: ['stream', 'objects', 'drift'], rows: [['rooms', 12_000, '–']] },
    },
  ],
};

test('a document as text has at most 80 columns, and commands in one piece', () => {
  expect(documentToText(document, { timeZone: ZONE })).toBe(`Report
Since 2026-11-22 02:00 CET.

Needs a person
--------------
To see more: slotsync runs
Last answer: 2026-11-22T01:00:07.000Z
- Held in run 5: <12> deactivations of rooms
    more than *10 %* of the stream
    'a' → room_a
    → ${command}
stream  objects  drift
rooms    12 000  –`);
});

/** Removes the spans that keep options and numbers on one line. */
const withoutSpans = (page: unknown) => String(page).replaceAll(/<span class="whole">(.*?)<\/span>/g, '$1');

test('a document as standalone HTML has no link and no button', () => {
  const page = withoutSpans(documentToHtml(document, ZONE));
  expect(page).toContain('Held in run 5: &lt;12&gt; deactivations of rooms');
  expect(page).toContain(`→ <code>${command}</code>`); // a mail has no button
  expect(page).toContain('>12 000</td>');
  expect(page).not.toContain('href');
});

test('a document as HTML names the heading of each cell, for cards on a narrow screen', () => {
  const page = documentToHtml(document, ZONE);
  expect(page).toContain('<th scope="row" data-label="stream">rooms</th>');
  expect(page).toContain('<td data-label="objects" class="number">12 000</td>');
  expect(page).toContain('<td data-label="drift">–</td>');
  expect(page).toContain('content: attr(data-label)');
});

test('a document as text aligns numbers that are links', () => {
  const linked = (count: number) => ({ parts: [{ text: count, href: '/failures' }] });
  const table = {
    headings: ['stream', 'dead'],
    rows: [
      ['rooms', linked(1200)],
      ['staff', 0],
    ],
  };
  const given = { title: 'x', sections: [{ id: 'x', title: 'x', table }] };
  expect(documentToText(given, { timeZone: ZONE })).toContain('rooms   1 200\nstaff       0');
});

test('a document on the page has links to runs, and buttons in place of commands', () => {
  const surface = { timeZone: ZONE, action: () => html`<button>Approve …</button>` };
  const [section] = document.sections;
  const content = String(section && contentToHtml(section, surface));
  expect(content).toContain('<a href="/runs/5">run 5</a>');
  expect(content).toContain('<button>Approve …</button>');
  expect(content).not.toContain(command);
});

test('a document as HTML shows backticks in advice as code, and keeps backticks in values', () => {
  const points = [{ text: 'the value `x`', next: 'Correct `key < 2`, then: slotsync check' }];
  const content = String(contentToHtml({ title: 'x', points }, { timeZone: ZONE }));
  expect(content).toContain('<b>the value `x`</b>');
  expect(content).toContain('<p>Correct <code>key &lt; 2</code>, then: slotsync check</p>');
});

test('the time of a line on the page is not broken at its spaces', () => {
  const since = { near: new Date('2026-02-27T01:00:00Z'), now: new Date('2026-03-02T06:00:00Z') };
  const section = { title: 'x', isOneLine: true, points: [{ text: 'rooms', since }] };
  expect(String(contentToHtml(section, { timeZone: ZONE }))).toContain(
    '<span class="soft">, <span class="whole">since 27 Feb</span></span>',
  );
});

test('a cell that says what a verdict means has a row of its own on a phone', () => {
  const rows = [['differs', 'on both sides, with different content']];
  const section = { title: 'x', table: { headings: ['verdict', 'meaning'], rows } };
  expect(String(contentToHtml(section, { timeZone: ZONE }))).toContain('class="long">on both sides');
});

test('a document leaves out a table without rows', () => {
  const runs = { id: 'runs', title: 'Runs', paragraphs: ['None.'], table: { headings: ['kind'], rows: [] } };
  const empty: Document = { title: 'Report', sections: [runs] };
  expect(documentToText(empty, { timeZone: ZONE })).toBe('Report\n\nRuns\n----\nNone.');
  expect(documentToHtml(empty, ZONE)).not.toContain('<table>');
});

describe('an awkward value in a document', () => {
  const of = (value: string): Document => ({
    title: value,
    lead: [value, text`of ${value}, ${{ text: value, href: '/x' }}`],
    sections: [
      {
        id: 'all',
        title: value,
        paragraphs: [value, text`in ${{ command: value }}`, text`${{ status: value }}: ${NOON}`],
        facts: [[value, text`${value}${{ minute: NOON }}`]],
        points: [
          {
            status: value,
            text: value,
            details: [value],
            samples: [value, value],
            next: value,
            commands: [`${value} again`, { command: `${value}!`, href: '/x', label: value, about: value }],
          },
        ],
        table: {
          headings: [value, 'n'],
          rows: [
            [value, 1],
            [text`${{ status: value }}`, 2],
          ],
        },
      },
    ],
  });
  const NOON = new Date('2026-11-22T12:00:00Z');
  const shape = (shown: string) => shown.replaceAll(/(?<=-)-+/g, '').split('\n').length;

  const PAGE: Parameters<typeof contentToHtml>[1] = { timeZone: ZONE, action: ({ label }) => html`${label}` };
  const RENDERERS: readonly [surface: string, render: (given: Document) => string][] = [
    ['text', (given) => documentToText(given, { timeZone: ZONE, columns: Infinity })],
    ['HTML', (given) => documentToHtml(given, ZONE)],
    ['the page', ({ sections }) => sections.map((section) => String(contentToHtml(section, PAGE))).join('')],
  ];
  function expectLines(make: (value: string) => Document, render: (given: Document) => string): void {
    const shown = render(make(AWKWARD));
    expect(shown).not.toMatch(OBEYED);
    expect(shown).not.toMatch(/^Nothing/m);
    expect(shape(shown)).toBe(shape(render(make('x'))));
    expect(shown).toContain('Nothing needs a person.');
  }

  test.each(RENDERERS)('stays within its line as %s', (_, render) => expectLines(of, render));

  test.each(Object.entries(DOCUMENTS))('stays within its line in %s', (_, make) => {
    for (const [, render] of RENDERERS) expectLines(make, render);
  });

  test('is tested in every document of src/documents', () => {
    const folder = new URL('../../src/documents/', import.meta.url);
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' });
    const sources = files
      .filter((file) => file.endsWith('.ts'))
      .map((file) => readFileSync(new URL(file, folder), 'utf8'));
    const made = sources.join('\n').matchAll(/^export function (\w+Document)\(/gm);
    expect(new Set(Object.keys(DOCUMENTS))).toEqual(new Set([...made].map(([, name]) => name)));
  });

  test('is broken only at spaces when the text is narrow', () => {
    const narrow = documentToText(of(AWKWARD), { timeZone: ZONE, columns: 40 });
    expect(narrow).not.toMatch(OBEYED);
    expect(narrow.replaceAll(/\s/g, '')).toContain(visibleInLine(AWKWARD).replaceAll(' ', ''));
    expect(narrow).not.toMatch(/^\s*Nothing needs/m);
  });
});

test('a printed command with a line feed in its key is read back by a shell', () => {
  for (const key of ["a\nb'c\\d\te", '\x1b[2J', 'a b', "O'Neil", 'R-1']) {
    const { stdout } = spawnSync('bash', ['-c', `printf %s ${quote(key)}`], { encoding: 'utf8' });
    expect(stdout).toBe(key);
    expect(quote(key)).toBe(visibleInLine(quote(key)));
  }
});

test.each(['..', '.', '', '~', '~..', '~~.', '%2e%2E', 'a/b', '../..', 'R1'])(
  'the address of the key %j names the key, as a browser asks for it',
  (key) => {
    for (const address of [addressOfRecord('rooms', key), addressOfBooking(key)]) {
      const parts = new URL(address, 'http://127.0.0.1').pathname.split('/');
      expect(parts).toHaveLength(address.startsWith('/records') ? 4 : 3);
      expect(keyOfPart(decodeURIComponent(parts.at(-1) ?? ''))).toBe(key);
    }
  },
);

test.each([
  ['2026-10-25T00:30:00Z', '2026-10-25 02:30', 'CEST'],
  ['2026-10-25T01:30:00Z', '2026-10-25 02:30', 'CET'],
  ['2027-03-28T00:59:00Z', '2027-03-28 01:59', 'CET'],
  ['2027-03-28T01:00:00Z', '2027-03-28 03:00', 'CEST'],
])('the time %s, near a clock change, is shown as %s %s', (iso, minute, zone) => {
  const at = new Date(iso);
  expect(String(textToHtml(text`${at} ${{ minute: at }}`, { timeZone: ZONE }))).toBe(
    `<time datetime="${at.toISOString()}">${minute}:00 ${zone}</time> ` +
      `<time datetime="${at.toISOString()}">${minute} ${zone}</time>`,
  );
});

test('the html template escapes values between tags and in attributes', () => {
  const name = `<script>alert("1")</script> & 'b'`;
  expect(String(html`<td title="${name}">${name}</td>`)).toBe(
    '<td title="&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;b&#39;">' +
      '&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;b&#39;</td>',
  );
});

test.each([
  [
    'joins a list, and escapes no template again',
    ['a', '<b>'].map((key) => html`<i>${key}</i>`),
    '<i>a</i><i>&lt;b&gt;</i>',
  ],
  ['shows 0, but not null, undefined or false', html`${null}${undefined}${false}${0}`, '0'],
  ['escapes an object that looks like HTML', { toString: () => '<b>' } as unknown as string, '&lt;b&gt;'],
])('the html template %s', (_, value, expected) => {
  expect(String(html`${value}`)).toBe(expected);
});
