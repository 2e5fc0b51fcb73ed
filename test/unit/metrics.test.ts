// Metrics of a scrape. Frequent scrapes, and scrapes during a failure, cost nothing.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { cacheReading } from '../../src/http/cached-reading.js';
import { type CountedFacts, type GaugeFacts, createMetrics } from '../../src/http/metrics.js';
import { createLater } from '../support/later.js';
import { GATE, LOAD, NOW, PROCESS, QUIET, QUIET_GAUGES, RUN, STREAM } from '../support/situations.js';

const SLOTS = { rate: 20, allowed: 18, held: 3, cooling: 5, free: 10 };
const USAGE = { ...SLOTS, lanes: { incremental: 1, sync: 2 }, pausedMs: 1500 };
const ago = (seconds: number) => new Date(NOW.getTime() - seconds * 1000);
const STOPPED = { stoppedSince: ago(33), errorCode: 'service_failed', errorMessage: '' };
const STATE: GaugeFacts = {
  now: NOW,
  binding: QUIET.binding && { ...QUIET.binding, answeredAt: ago(2), succeededAt: null },
  configured: ['rooms', 'courses'],
  processes: [
    { ...PROCESS, host: 'a', pid: 7 },
    { ...PROCESS, host: 'b', pid: 8, ...STOPPED },
    { ...PROCESS, host: 'c', pid: 9, isAlive: false },
  ],
  unfinished: [
    { ...RUN, requestedAt: ago(90), pausedAt: ago(1) },
    { ...RUN, requestedAt: ago(30), pausedAt: ago(2) },
  ],
  drift: [{ stream: 'rooms', kind: 'changed', count: 4 }],
  verifications: [{ stream: 'rooms', verifiedAt: ago(7200), objects: 1, runId: 1 }],
  loads: [LOAD, { ...LOAD, stream: 'courses', problem: 'unreadable' }],
  backlog: [{ lane: 'sync', jobs: 7, oldestSeconds: 12.5 }],
  inboxAge: { changes: 3, oldestSeconds: 4.5 },
  durations: [{ kind: 'sync', status: 'partial', seconds: 61 }],
  streamStates: [{ ...STREAM, syncedAt: ago(3600) }],
};
const COUNTS: CountedFacts = {
  records: [
    { stream: 'rooms', status: 'synced', count: 40 },
    { stream: 'rooms', status: 'dead', count: 2 },
  ],
  runs: {
    gates: [
      { ...GATE, count: 11 },
      { ...GATE, reason: 'stale', count: 3 },
      { ...GATE, reason: 'restored', count: 5, rejectedAt: ago(60) },
    ],
    successes: [
      { kind: 'sync', ageSeconds: 60 },
      { kind: 'verify', ageSeconds: null },
    ],
  },
  bookings: [
    { verdict: 'agrees', count: 9, problems: 0 },
    { verdict: 'differs', count: 4, problems: 1 },
  ],
  connections: [{ duty: 'state', count: 2 }],
};
const CONCERNS = [
  { kind: 'drift', severity: 'action', count: 1 },
  { kind: 'due', severity: 'notice', count: 0 },
] as const;

type Sources = Parameters<typeof createMetrics>[0];

const play = (changes: Partial<Sources> = {}) =>
  createMetrics({
    quota: async () => USAGE,
    state: async () => STATE,
    counts: async () => COUNTS,
    concerns: async () => [...CONCERNS],
    ...changes,
  });

/** Returns the samples of a metric, as `labels value`. */
function samples(text: string, name: string): string[] {
  return text
    .split('\n')
    .filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `))
    .map((line) => line.slice(name.length).trim());
}

describe('the metrics', () => {
  it('count the requests, waits and outcomes that the work reports', async () => {
    const { meter, text } = play();
    meter.requested('objects', 200, 0.2);
    meter.requested('objects', 200, 0.3);
    meter.requested('objects', 429, 0.1);
    meter.requested('findObjects', 'interrupted', 4);
    meter.waited('sync', 0.7);
    meter.settled('rooms', { synced: 19, unchanged: 0, deferred: 0, failed: 0, dead: 1 });
    const shown = await text();
    expect(samples(shown, 'slotsync_requests_total')).toEqual([
      '{endpoint="objects",status="200"} 2',
      '{endpoint="objects",status="429"} 1',
      '{endpoint="findObjects",status="interrupted"} 1',
    ]);
    expect(samples(shown, 'slotsync_request_seconds_count')).toEqual(['{endpoint="objects"} 3']);
    expect(samples(shown, 'slotsync_quota_wait_seconds_bucket')).toContain('{le="1",lane="sync"} 1');
    expect(samples(shown, 'slotsync_records_total')).toEqual([
      '{stream="rooms",outcome="synced"} 19',
      '{stream="rooms",outcome="dead"} 1',
    ]);
  });

  it.each(
    Object.entries({
      quota_slots: ['{state="held"} 3', '{state="cooling"} 5', '{state="free"} 10'],
      quota_held: ['{lane="incremental"} 1', '{lane="sync"} 2'],
      quota_rate: ['20'],
      quota_allowed: ['18'],
      quota_paused_seconds: ['1.5'],
      queue_jobs: ['{lane="incremental"} 0', '{lane="sync"} 7', '{lane="backfill"} 0', '{lane="verify"} 0'],
      queue_oldest_seconds: [
        '{lane="incremental"} 0',
        '{lane="sync"} 12.5',
        '{lane="backfill"} 0',
        '{lane="verify"} 0',
      ],
      inbox_changes: ['3'],
      inbox_oldest_seconds: ['4.5'],
      run_duration_seconds: ['{kind="sync",status="partial"} 61'],
      unfinished_runs: ['{kind="sync",status="paused"} 2'],
      unfinished_run_oldest_seconds: ['{kind="sync",status="paused"} 90'],
      last_success_seconds: ['{stream="rooms"} 3600', '{stream="courses"} +Inf'],
      verified_age_seconds: ['{stream="rooms"} 7200', '{stream="courses"} +Inf'],
      processes: ['{command="worker",state="alive"} 2', '{command="worker",state="silent"} 1'],
      sending_stopped: ['{command="worker",host="a",pid="7"} 0', '{command="worker",host="b",pid="8"} 1'],
      sending_stopped_seconds: ['{command="worker",host="b",pid="8",code="service_failed"} 33'],
      service_last_answer_seconds: ['2'],
      service_last_success_seconds: ['+Inf'],
      load_age_seconds: ['{stream="rooms"} 277200', '{stream="courses"} +Inf'],
      source_stale: ['{stream="rooms"} 1', '{stream="courses"} 1'],
      state_records: [
        '{stream="rooms",status="failed"} 0',
        '{stream="rooms",status="dead"} 2',
        '{stream="rooms",status="synced"} 40',
      ],
      held_records: [
        '{stream="rooms",operation="retire",answer="none"} 14',
        '{stream="rooms",operation="retire",answer="rejected"} 5',
      ],
      run_last_success_seconds: ['{kind="sync"} 60', '{kind="verify"} +Inf'],
      bookings: ['{verdict="agrees"} 9', '{verdict="differs"} 4'],
      booking_problems: ['1'],
      state_connections: ['{duty="state"} 2'],
      concerns: ['{kind="drift",severity="action"} 1', '{kind="due",severity="notice"} 0'],
    }),
  )('show the values of their sources: slotsync_%s', async (name, expected) => {
    expect(samples(await play().text(), `slotsync_${name}`)).toEqual(expected);
  });

  it('have a number for every kind of drift of a configured stream', async () => {
    const shown = samples(await play().text(), 'slotsync_drift_objects');
    expect(shown).toContain('{stream="rooms",kind="changed"} 4');
    expect(shown).toContain('{stream="courses",kind="missing"} 0');
  });

  it('show which of two processes with the same host and process id sends nothing', async () => {
    const stopped = { ...PROCESS, ...STOPPED };
    for (const processes of [
      [stopped, PROCESS],
      [PROCESS, stopped],
    ]) {
      const shown = await play({ state: async () => ({ ...STATE, processes }) }).text();
      expect(samples(shown, 'slotsync_sending_stopped')).toEqual([
        '{command="worker",host="north",pid="1"} 1',
      ]);
    }
  });

  it('leave out only values that could not be counted in time', async () => {
    const shown = await play({ counts: async () => ({ ...COUNTS, records: null }) }).text();
    expect(shown).not.toContain('slotsync_state_records');
    expect(samples(shown, 'slotsync_held_records')).toHaveLength(2);
    expect(samples(shown, 'slotsync_source_up').filter((sample) => sample.endsWith(' 0'))).toEqual([
      '{source="records"} 0',
    ]);
  });

  it('are exactly the rows of docs/alerts.md, with their types and labels', async () => {
    const { meter, text } = play();
    meter.requested('objects', 200, 0.2);
    meter.waited('sync', 0.7);
    meter.connected(2);
    meter.settled('rooms', { synced: 1, unchanged: 0, deferred: 0, failed: 0, dead: 0 });
    const shown = await text();
    const exposed = [...shown.matchAll(/^# TYPE (slotsync_\w+) (\w+)$/gm)].map(([, name = '', type]) => {
      const [, labels = ''] = new RegExp(`^${name}(?:_count)?\\{(.*)\\} `, 'm').exec(shown) ?? [];
      const names = [...labels.matchAll(/(\w+)="/g)].map(([, label]) => label);
      return [name, type, names.join(', ')].join(' | ');
    });
    const page = readFileSync(new URL('../../docs/alerts.md', import.meta.url), 'utf8');
    const rows = [...page.matchAll(/^\| `(slotsync_\w+)` +\| (\w+) +\| ([^|]*?) *\|/gm)];
    const documented = rows.map(([, name, type, labels = '']) =>
      [name, type, labels.replaceAll('`', '')].join(' | '),
    );
    expect(documented.toSorted()).toEqual(exposed.toSorted());
  });

  it('leave out values of a source that cannot be read, instead of repeating them', async () => {
    let isDown = false;
    const metrics = play({ state: async () => (isDown ? Promise.reject(new Error('gone')) : STATE) });
    await metrics.text();
    isDown = true;
    const shown = await metrics.text();
    expect(shown).not.toContain('slotsync_queue_jobs');
    expect(samples(shown, 'slotsync_source_up').filter((sample) => sample.endsWith(' 0'))).toEqual([
      '{source="state"} 0',
    ]);
    expect(samples(shown, 'slotsync_quota_rate')).toEqual(['20']);
  });

  it('drop a lane or a run that no longer exists', async () => {
    let state = STATE;
    const metrics = play({ state: async () => state });
    await metrics.text();
    state = { ...STATE, ...QUIET_GAUGES, drift: [], unfinished: [] };
    const shown = await metrics.text();
    expect(samples(shown, 'slotsync_queue_jobs')).toContain('{lane="sync"} 0');
    for (const metric of ['slotsync_run_duration_seconds', 'slotsync_unfinished_runs'])
      expect(samples(shown, metric)).toEqual([]);
  });
});

describe('a cached reading', () => {
  /** Caches the answers of `read` for a second. Moves the clock, and counts how often it is read. */
  function cache<T>(read: () => Promise<T>, options: Partial<Parameters<typeof cacheReading>[1]> = {}) {
    const seen = { now: 0, asked: 0 };
    const counted = () => {
      seen.asked++;
      return read();
    };
    const cached = cacheReading(counted, { keepMs: 1000, withinMs: 20, now: () => seen.now, ...options });
    return { seen, read: cached };
  }

  it('is kept for the configured time, and then repeated', async () => {
    const { seen, read } = cache(async () => 'up');
    expect(await Promise.all([read(), read()])).toEqual(['up', 'up']);
    for (const [now, asked] of [
      [999, 1],
      [1000, 2],
    ] as const) {
      seen.now = now;
      await read();
      expect(seen.asked).toBe(asked);
    }
  });

  it.each([
    ['its reading', 500, 0],
    ['its reading, without the time until its turn', 0, 4000],
  ])('is kept for a multiple of the duration of %s', async (_, ms, turnMs) => {
    const inTurn = (work: () => Promise<unknown>) => {
      seen.now += turnMs;
      return work();
    };
    const work = async () => void (seen.now += ms);
    const { seen, read } = cache(work, { keepTimes: 9, inTurn });
    for (const [now, asked] of [
      [0, 1],
      [4999, 1],
      [5000, 2],
    ] as const) {
      seen.now = now;
      await read();
      expect(seen.asked).toBe(asked);
    }
  });

  it('times out, and is not repeated while it is still running', async () => {
    const late = createLater<string>();
    const { seen, read } = cache(() => late.promise);
    await expect(read()).rejects.toMatchObject({ code: 'ETIMEDOUT' });
    seen.now = 5000;
    const second = read();
    late.resolve('late');
    expect(await second).toBe('late');
    expect(seen.asked).toBe(1);
  });

  it('is kept even if it ends after every caller has timed out', async () => {
    const late = createLater<string>();
    const { seen, read } = cache(() => late.promise, { keepTimes: 9 });
    await expect(read()).rejects.toMatchObject({ code: 'ETIMEDOUT' });
    seen.now = 5000;
    late.resolve('late');
    await late.promise;
    await new Promise(setImmediate);
    seen.now = 49_000;
    expect(await read()).toBe('late');
    expect(seen.asked).toBe(1);
  });

  it('passes a failure on, and is repeated after the configured time', async () => {
    let fails = true;
    const { seen, read } = cache(async () => (fails ? Promise.reject(new Error('down')) : 'up'));
    await expect(read()).rejects.toThrow('down');
    fails = false;
    await expect(read()).rejects.toThrow('down');
    seen.now = 1000;
    expect(await read()).toBe('up');
  });
});
