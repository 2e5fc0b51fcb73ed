// Times on the page on the days when clocks change: each has the name of its zone at that time.
import { describe, expect, it } from 'vitest';
import { textToHtml } from '../../src/render/html.js';
import { text, type Part } from '../../src/documents/document.js';

const toHtml = (part: Part) => String(textToHtml(text`${part}`, { timeZone: 'Europe/Stockholm' }));
const shown = (at: string) => toHtml(new Date(at));

describe('page: times', () => {
  it('page: the two hours after 02:00 on 2026-10-25 are shown differently', () => {
    expect(shown('2026-10-25T00:30:00Z')).toBe(
      '<time datetime="2026-10-25T00:30:00.000Z">2026-10-25 02:30:00 CEST</time>',
    );
    expect(shown('2026-10-25T01:30:00Z')).toBe(
      '<time datetime="2026-10-25T01:30:00.000Z">2026-10-25 02:30:00 CET</time>',
    );
    const both = ['2026-10-25T00:30:00Z', '2026-10-25T01:30:00Z'].map((at) =>
      toHtml({ minute: new Date(at) }),
    );
    expect(both).toEqual([expect.stringContaining('02:30 CEST<'), expect.stringContaining('02:30 CET<')]);
  });

  it('page: the hour after 02:00 on 2027-03-28 is not shown, because it is not there', () => {
    expect(shown('2027-03-28T00:59:59Z')).toContain('>2027-03-28 01:59:59 CET<');
    expect(shown('2027-03-28T01:00:00Z')).toContain('>2027-03-28 03:00:00 CEST<');
  });
});
