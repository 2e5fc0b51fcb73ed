// The pictures of the page: graphs, the timeline of a run, and the week of bookings, as SVG without a style or a script.
import { describe, expect, it } from 'vitest';
import type { Graph, Week } from '../../src/documents/document.js';
import { runDocument } from '../../src/documents/runs.js';
import { graphToHtml, weekToHtml } from '../../src/render/drawings.js';
import { answerToText, plain } from '../../src/render/text.js';
import type { RunFacts } from '../../src/situation/run-facts.js';
import { GATE, NOW, RUN } from '../support/situations.js';

const ZONE = 'Europe/Stockholm';
const draw = (graph: Partial<Graph>) =>
  String(
    graphToHtml(
      {
        title: 'Requests',
        says: '<3 requests',
        unit: 'requests a second',
        ends: ['02:00', 'now'],
        points: [4, 0, 12].map((value) => ({ label: `${value} & more`, value })),
        ...graph,
      },
      (text) => plain(text, ZONE),
    ),
  );
const numbersIn = (svg: string) =>
  [...svg.matchAll(/<text [^>]*text-anchor="end">([^<]*)</g)].map(([, text]) => text);

describe('a graph', () => {
  it('has an axis with round numbers, its unit, its ends, and a text alternative', () => {
    const svg = draw({ isBars: true });
    expect(numbersIn(svg)).toEqual(['0', '10', '20', 'now']);
    expect(svg).toContain('role="img" aria-label="Requests. &lt;3 requests"');
    expect(svg).toContain('>requests a second</text>');
    expect(svg.match(/<rect class="bar"/g)).toHaveLength(3);
    expect(svg).toContain('<title>12 &amp; more</title>');
    expect(svg).not.toMatch(/style|script/);
  });

  it('reaches up to its limit, or to a value above its limit', () => {
    const limit = { value: 20, name: 'quota 20' };
    expect(numbersIn(draw({ limit })).join(' ')).toBe('0 10 20 quota 20 now');
    expect(numbersIn(draw({ peaks: [0, 0, 35], limit })).join(' ')).toBe('0 20 40 quota 20 now');
    expect(numbersIn(draw({ points: [{ label: '', value: 5600 }] }))).toEqual(['0', '3 k', '6 k', 'now']);
  });
});

describe('the timeline of a run', () => {
  const facts = (planned: number) =>
    ({
      run: { ...RUN, finishedAt: NOW, status: 'held' },
      progress: { total: planned, done: 30, batchesLeft: 1 },
      gates: [GATE],
      actions: [],
      causes: [],
      unsettled: 0,
      renamed: [],
      timeline: {
        from: RUN.requestedAt,
        seconds: 60,
        steps: 2,
        points: [0, 30].map((done) => ({ planned, done })),
      },
    }) as unknown as RunFacts;
  const timelineOf = (planned: number) =>
    runDocument(facts(planned), NOW).sections.find(({ id }) => id === 'timeline');

  it('shows planned, settled, waiting and held records', () => {
    const { graphs: [graph] = [], paragraphs } = timelineOf(100) ?? {};
    expect(paragraphs).toEqual(['30 of 100 planned records sent or settled, 70 waiting, 40 held.']);
    expect(graph).toMatchObject({ peaks: [100, 100], limit: { value: 140, name: '40 held' } });
    expect(graph?.points.map(({ value }) => value)).toEqual([0, 30]);
    // A terminal has the sentence once, and no picture.
    const said = answerToText(runDocument(facts(100), NOW), { timeZone: ZONE });
    expect(said.match(/30 of 100 planned records/g)).toHaveLength(1);
  });

  it('is left out when no batch is known any more', () => {
    expect(timelineOf(0)).toEqual({ id: 'timeline', title: 'Timeline' });
  });
});

describe('the week of bookings', () => {
  const period = (begin: string, end: string) => ({ begin: new Date(begin), end: new Date(end) });
  const booking = (key: string, ...periods: Week['bookings'][number]['periods']) => ({
    key,
    href: `/bookings/${key}`,
    status: 'differs',
    label: `booking ${key}: moved`,
    periods,
  });
  const days = Array.from({ length: 7 }, (_, at) => `2026-11-${23 + at}`);
  const week = (...bookings: Week['bookings'][number][]) => String(weekToHtml({ days, bookings }, ZONE));
  const boxesOf = (svg: string) =>
    [...svg.matchAll(/<rect class="([^"]*)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"/g)].map(
      ([, ...box]) => box,
    );

  it('draws a booking at its time in the zone, and the time of the service as an outline', () => {
    const periods = [
      period('2026-11-24T08:00Z', '2026-11-24T09:30Z'),
      period('2026-11-25T12:00Z', '2026-11-25T13:00Z'),
    ];
    const svg = week(booking('7', ...periods));
    const [here, there] = boxesOf(svg);
    expect(here?.[0]).toBe('waiting');
    expect(there?.[0]).toBe('waiting there');
    expect(Number(here?.[2])).toBe(16 + 18); // 09:00 is the second hour
    expect(Number(there?.[1])).toBeGreaterThan(Number(here?.[1]));
    expect(svg).toContain('<a href="/bookings/7" aria-label="booking 7: moved">');
  });

  it('puts overlapping bookings side by side, and extends to their hours', () => {
    const at = period('2026-11-24T04:00Z', '2026-11-24T05:00Z');
    const [one, two] = boxesOf(week(booking('1', at), booking('2', at)));
    expect(one?.[1]).not.toBe(two?.[1]);
    expect(one?.[2]).toBe('16.0');
    expect(boxesOf(week(booking('3', period('2026-12-24T04:00Z', '2026-12-24T05:00Z'))))).toEqual([]);
  });
});
