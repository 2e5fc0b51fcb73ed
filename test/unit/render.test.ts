import { expect, test } from 'vitest';
import { linkToRun, text, type Document } from '../../src/documents/document.js';
import { contentToHtml, documentToHtml } from '../../src/render/html.js';
import { documentToMarkdown } from '../../src/render/markdown.js';
import { documentToText } from '../../src/render/text.js';
import { html } from '../../src/text/html.js';

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
      tables: [{ headings: ['stream', 'objects', 'drift'], rows: [['rooms', 12_000, '–']] }],
    },
  ],
};

test('document: as text it has at most 80 columns, and commands in one piece', () => {
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

test('document: in Markdown, text of a row is text, and a command is code', () => {
  const markdown = documentToMarkdown(document, ZONE);
  expect(markdown).toContain('- Held in run 5: \\<12\\> deactivations of rooms\n');
  expect(markdown).toContain('  - more than \\*10 %\\* of the stream\n');
  expect(markdown).toContain(`  - \`${command}\``);
  expect(markdown).toContain('| rooms | 12 000 | – |');
});

test('document: as HTML that stands alone, it has no link and no button', () => {
  const page = documentToHtml(document, ZONE);
  expect(page).toContain('Held in run 5: &lt;12&gt; deactivations of rooms');
  expect(page).toContain(`<code>${command}</code>`);
  expect(page).toContain('<td class="number">12 000</td>');
  expect(page).not.toContain('href');
});

test('document: on the page, runs are links and commands are what may be done there', () => {
  const surface = { timeZone: ZONE, action: () => html`<button>Approve …</button>` };
  const [section] = document.sections;
  const content = String(section && contentToHtml(section, surface));
  expect(content).toContain('<a href="/runs/5">run 5</a>');
  expect(content).toContain('<button>Approve …</button>');
  expect(content).not.toContain(command);
});

test('document: a table without rows is not shown, on any surface', () => {
  const section = {
    id: 'runs',
    title: 'Runs',
    paragraphs: ['None.'],
    tables: [{ headings: ['kind'], rows: [] }],
  };
  const empty: Document = { title: 'Report', sections: [section] };
  expect(documentToText(empty, { timeZone: ZONE })).toBe('Report\n\nRuns\n----\nNone.');
  expect(documentToMarkdown(empty, ZONE)).toBe('# Report\n\n## Runs\n\nNone.');
  expect(documentToHtml(empty, ZONE)).not.toContain('<table>');
});
