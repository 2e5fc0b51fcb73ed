// The situation at a glance: its first line, the card of each stream, and as many lines as a small terminal has.
import { describe, expect, it } from 'vitest';
import { glanceToText } from '../../src/commands/status.js';
import { findPart, situationDocument, type SituationFacts } from '../../src/documents/situation.js';
import { layOut } from '../../src/render/print.js';
import { answerToText, plain } from '../../src/render/text.js';
import type { History } from '../../src/situation/history.js';
import { CAUSE, GATE, NOW, QUIET, RUN, SCHEDULE, STREAM } from '../support/situations.js';

const DAYS = Array.from({ length: 30 }, (_, at) =>
  new Date(Date.parse('2026-02-01') + at * 86_400_000).toISOString().slice(0, 10),
);
const STEP = { at: new Date('2026-03-02T05:00:00Z'), requests: 600, throttled: 1, fastest: 18 };
const HISTORY: History = {
  days: DAYS,
  nights: [
    { stream: 'rooms', day: '2026-02-28', runId: 7, status: 'held', sent: 4 },
    { stream: 'rooms', day: '2026-03-01', runId: 8, status: 'failed', sent: 0 },
    { stream: 'rooms', day: '2026-03-02', runId: 9, status: 'succeeded', sent: 12 },
    { stream: 'courses', day: '2026-03-02', runId: 9, status: 'succeeded', sent: 30 },
  ],
  hour: { ...STEP, from: STEP.at, seconds: 60, steps: [STEP], fastestAt: STEP.at },
  lastNight: undefined,
};
const RECORDS = [
  { stream: 'rooms', status: 'synced' as const, count: 100 },
  { stream: 'rooms', status: 'retired' as const, count: 5 },
  { stream: 'courses', status: 'synced' as const, count: 1000 },
];
const situationOf = (changes: Partial<SituationFacts> = {}): SituationFacts => ({
  ...QUIET,
  records: RECORDS,
  streamStates: [STREAM],
  quota: null,
  requestsPerSecond: 20,
  history: HISTORY,
  ...changes,
});
const FREEZE = {
  id: 1,
  streams: null,
  exceptStreams: [],
  isDeclared: false,
  isInForce: true,
  beginsAt: NOW,
  endsAt: new Date('2026-03-07T12:00:00Z'),
  reason: 'move',
  frozenBy: null,
} as unknown as SituationFacts['freezes'][number];
const DEAD = { causes: [CAUSE], unsettled: 1 };
const UNDER_WAY = { run: RUN, progress: { total: 200, done: 88, batchesLeft: 3 } };
const known = (changes: Partial<SituationFacts['known']>) => ({ known: { ...QUIET.known, ...changes } });

describe('the headline of the situation', () => {
  const IN_SYNC = '1 100 records in sync, last sync 05:00';
  const answer = { binding: { ...QUIET.binding, succeededAt: new Date(0) } as typeof QUIET.binding };
  const empty = { records: [], ...known({ hasRecords: false }) };
  it.each<[string, Partial<SituationFacts>, string]>([
    ['succeeded', {}, `All well: ${IN_SYNC}`],
    ['succeeded', { succeededAt: null }, 'All well: 1 100 records in sync, no sync of all streams yet'],
    ['neutral', answer, `No action needed: ${IN_SYNC}`],
    ['held', { ...DEAD, gates: [GATE] }, '2 things need you: 1 hold, 1 record to correct'],
    ['failed', { whyReadOnly: 'standby' }, '1 thing needs you now: state is read-only'],
    [
      'running',
      { runs: { latest: [], underWay: [UNDER_WAY] }, secondsLeft: new Map([[12, 600]]) },
      'Run 12 (sync) under way, 44 %, done about 06:10',
    ],
    ['paused', { freezes: [FREEZE] }, 'Frozen until 2026-03-07 12:00 UTC: nothing is written'],
    ['neutral', empty, 'Nothing is synced yet. To begin: slotsync sync'],
    [
      'neutral',
      { ...empty, nightly: SCHEDULE },
      'Nothing is synced yet: the first nightly sync is due 2026-03-03 01:00 UTC',
    ],
    ['neutral', { unsettled: 3 }, `No action needed: ${IN_SYNC}`],
    ['neutral', known({ drifting: 1 }), `No action needed: ${IN_SYNC}`],
    [
      'neutral',
      known({ due: [{ stream: 'rooms', since: NOW, reason: 'new' }] }),
      `No action needed: ${IN_SYNC}`,
    ],
  ])('has the status %s', (status, changes, line) => {
    const { headline } = situationDocument(situationOf(changes));
    expect(headline).toMatchObject({ status });
    expect(plain(headline?.text ?? '', 'UTC')).toBe(line);
    // The terminal says the same first.
    expect(glanceToText(situationOf(changes), 'UTC').split('\n')[0]).toBe(line);
  });
});

describe('the card of a stream', () => {
  const cardOf = (changes: Partial<SituationFacts>) =>
    situationDocument(situationOf(changes)).sections.find(({ id }) => id === 'streams')?.cards?.[0];

  it('counts held records as not in sync, and held creates as missing', () => {
    expect(cardOf({})).toMatchObject({ stream: 'rooms', inSync: 100, total: 100, badges: [] });
    expect(cardOf({ gates: [GATE] })).toMatchObject({ inSync: 60, total: 100 });
    expect(cardOf({ gates: [{ ...GATE, operation: 'create' }] })).toMatchObject({ inSync: 100, total: 140 });
  });

  it('shows no record in sync after a restore', () => {
    const restored = { since: NOW, why: 'is another database' } as NonNullable<typeof QUIET.known.restored>;
    expect(cardOf(known({ restored }))).toMatchObject({ inSync: 0, total: 100 });
  });

  it('has badges for a problem, held records, a freeze, a due sync and exceptions', () => {
    const due = { due: [{ stream: 'rooms', since: NOW, reason: 'new' as const }] };
    const problem = { status: 'failed', code: null } as unknown as NonNullable<typeof STREAM.problem>;
    const badges = cardOf({
      gates: [GATE],
      freezes: [FREEZE],
      ...known(due),
      streamStates: [{ ...STREAM, problem }],
      exceptions: [
        { stream: 'rooms', count: 2 },
        { stream: 'staff', count: 5 },
      ],
    })?.badges;
    expect(badges?.map((badge) => badge.text)).toEqual(['failed', '40 held', 'frozen', 'due', '2 excepted']);
  });

  it('has a mark for each of fourteen nights, linked to its run', () => {
    const nights = cardOf({})?.nights ?? [];
    expect(nights).toHaveLength(14);
    expect(nights.at(-1)).toEqual({ status: 'succeeded', label: '2 Mar: succeeded', href: '/runs/9' });
    expect(nights[0]).toEqual({ status: 'none', label: '17 Feb: no sync', href: undefined });
    const shown = glanceToText(situationOf(), 'UTC');
    expect(shown).toMatch(/^stream {3}14 nights {7}in sync {9}last sync$/m);
    expect(shown).toMatch(/^rooms {4}···········h✗✓ {4}100 of {3}100 {2}05:00$/m);
    // Also where nothing is in sync.
    expect(glanceToText(situationOf({ records: [] }), 'UTC')).toMatch(/^rooms .* 0 of 0 /m);
  });
});

describe('status at a glance', () => {
  it('fits a terminal of 80 by 24, and shows or counts every concern', () => {
    const names = Array.from({ length: 30 }, (_, at) => `a_stream_with_a_long_name_${at}`);
    const gates = names.map((stream) => ({ ...GATE, stream }));
    const text = glanceToText(
      situationOf({ configured: names, gates, ...DEAD, inDoubt: { count: 1, latest: NOW } }),
      'UTC',
      { columns: 80, rows: 24 },
    );
    const lines = text.split('\n');
    expect(lines.length).toBeLessThanOrEqual(23);
    expect(lines.filter((line) => line.length > 80)).toEqual([]);
    expect(lines[0]).toBe('31 things need you: 30 holds, 1 record to correct');
    expect(text).toMatch(/^ 1 Run 12 holds 40 deactivations of a_stream_.*, since 1 Mar$/m);
    expect(text).toMatch(/^ {3}… and 27 more$/m);
    expect(text).toMatch(/^31 .*given up/m);
    expect(text).toContain('1 notice: slotsync status notices');
    expect(text).toMatch(/^ {3}… and \d+ more streams$/m);
  });

  it('shows each schedule and the lack of a worker in one line of 80 columns', () => {
    const lines = glanceToText(situationOf({ nightly: SCHEDULE, processes: [] }), 'UTC').split('\n');
    expect(lines).toContain(' 1 No worker is running to start the nightly sync, since 20 Dec');
    expect(lines).toContain('Next nightly sync: 2026-03-03 01:00 UTC; previous: 2026-03-02 01:00 UTC.');
  });

  it('shows a part by its number, its kind or its name', () => {
    const facts = situationOf({ ...DEAD, gates: [GATE] });
    const textOf = (name: string) => answerToText({ sections: findPart(facts, name) }, { timeZone: 'UTC' });
    expect(textOf('1')).toContain('slotsync approve 12 --stream rooms --operation retire');
    expect(textOf('gate')).toBe(textOf('1'));
    expect(textOf('gate rooms')).toBe(textOf('1'));
    expect(textOf('2')).toContain('the name is too long');
    expect(textOf('inbox')).toBe('Inbox of changes: nothing now.');
    expect(textOf('records')).toContain('the name is too long');
    expect(textOf('records')).toContain('1 record is not in sync');
    expect(findPart(facts, 'nothing')).toEqual([]);
  });

  it('colours the state and each night on a terminal', () => {
    const stream = { isTTY: true, columns: 80, rows: 24, getColorDepth: () => 4, write: () => undefined };
    const [well, calm, critical, rooms = ''] = layOut(stream, [
      'All well: 1 record',
      '2 things need you: 2 holds',
      '1 thing needs you now: state is read-only',
      'rooms  ···········h✗✓  1',
    ]).split('\n');
    expect(calm).toBe('\u001b[33m2 things need you\u001b[39m: 2 holds');
    expect(critical).toBe('\u001b[31m1 thing needs you now\u001b[39m: state is read-only');
    expect(well).toBe('\u001b[32mAll well\u001b[39m: 1 record');
    expect(rooms).toContain('\u001b[33mh\u001b[39m\u001b[31m✗\u001b[39m\u001b[32m✓\u001b[39m');
  });
});

describe('the graphs of the situation', () => {
  it('describe in words the requests against the quota, and the objects of each night', () => {
    const graphs = situationDocument(situationOf()).sections.find(({ id }) => id === 'graphs')?.graphs ?? [];
    const [hour, objects] = graphs;
    expect(hour).toMatchObject({
      limit: { value: 20, name: 'quota 20' },
      peaks: [18],
      points: [{ value: 10 }],
    });
    expect(plain(hour?.says ?? '', 'UTC')).toBe(
      '600 requests of all processes, at most 18 in one second of 20 allowed; 1 refused with 429.',
    );
    expect(objects?.points.slice(-3)).toEqual([
      { label: '28 Feb: 4 objects', value: 4 },
      { label: '1 Mar: 0 objects', value: 0 },
      { label: '2 Mar: 42 objects', value: 42 },
    ]);
    expect(objects?.says).toBe('46 objects sent by the whole syncs of 30 days, at most 42 in one night.');
  });
});
