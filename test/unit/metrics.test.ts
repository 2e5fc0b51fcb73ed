// What a scrape shows, and that asking often or at a bad moment costs nothing.
import { describe, expect, it } from 'vitest';
import { createMetrics, type QuotaReading } from '../../src/http/metrics.js';
import { cacheReading } from '../../src/http/cached-reading.js';
import type { StateReading } from '../../src/state/metrics-readings.js';

const USAGE: QuotaReading = {
  rate: 20,
  allowed: 18,
  held: 3,
  cooling: 5,
  free: 10,
  lanes: { incremental: 1, sync: 2 },
  pausedMs: 1500,
};
const STATE: StateReading = {
  backlog: [{ lane: 'sync', jobs: 7, oldestSeconds: 12.5 }],
  inbox: { changes: 3, oldestSeconds: 4.5 },
  runs: [{ kind: 'sync', status: 'partial', seconds: 61 }],
  successes: [
    { stream: 'rooms', ageSeconds: 3600 },
    { stream: 'courses', ageSeconds: null },
  ],
  drift: [{ stream: 'rooms', kind: 'changed', objects: 4 }],
  verified: [
    { stream: 'rooms', ageSeconds: 7200 },
    { stream: 'courses', ageSeconds: null },
  ],
};

function play(changes: { quota?: () => Promise<QuotaReading>; state?: () => Promise<StateReading> } = {}) {
  return createMetrics({
    lanes: ['incremental', 'sync'],
    quota: async () => USAGE,
    state: async () => STATE,
    ...changes,
  });
}

/** The samples of a metric, as `labels value`. */
function samples(text: string, name: string): string[] {
  return text
    .split('\n')
    .filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `))
    .map((line) => line.slice(name.length).trim());
}

describe('the metrics', () => {
  it('count what the work tells', async () => {
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

  it('show the quota and the state as they are read', async () => {
    const shown = await play().text();
    expect(samples(shown, 'slotsync_quota_slots')).toEqual([
      '{state="held"} 3',
      '{state="cooling"} 5',
      '{state="free"} 10',
    ]);
    expect(samples(shown, 'slotsync_quota_held')).toEqual(['{lane="incremental"} 1', '{lane="sync"} 2']);
    expect(samples(shown, 'slotsync_quota_allowed')).toEqual(['18']);
    expect(samples(shown, 'slotsync_quota_paused_seconds')).toEqual(['1.5']);
    expect(samples(shown, 'slotsync_queue_jobs')).toEqual(['{lane="incremental"} 0', '{lane="sync"} 7']);
    expect(samples(shown, 'slotsync_queue_oldest_seconds')).toContain('{lane="sync"} 12.5');
    expect(samples(shown, 'slotsync_run_duration_seconds')).toEqual(['{kind="sync",status="partial"} 61']);
    expect(samples(shown, 'slotsync_last_success_seconds')).toEqual([
      '{stream="rooms"} 3600',
      '{stream="courses"} +Inf',
    ]);
    expect(samples(shown, 'slotsync_drift_objects')).toContain('{stream="rooms",kind="changed"} 4');
    expect(samples(shown, 'slotsync_drift_objects')).toContain('{stream="courses",kind="missing"} 0');
    expect(samples(shown, 'slotsync_verified_age_seconds')).toEqual([
      '{stream="rooms"} 7200',
      '{stream="courses"} +Inf',
    ]);
    expect(samples(shown, 'slotsync_source_up')).toEqual(['{source="quota"} 1', '{source="state"} 1']);
    expect(samples(shown, 'process_start_time_seconds')).toHaveLength(1);
  });

  it('leave out what cannot be read, rather than repeat the last values', async () => {
    let isDown = false;
    const metrics = play({ state: async () => (isDown ? Promise.reject(new Error('gone')) : STATE) });
    await metrics.text();
    isDown = true;
    const shown = await metrics.text();
    expect(shown).not.toContain('slotsync_queue_jobs');
    expect(samples(shown, 'slotsync_source_up')).toEqual(['{source="quota"} 1', '{source="state"} 0']);
    expect(samples(shown, 'slotsync_quota_rate')).toEqual(['20']);
  });

  it('tell what waits in the inbox', async () => {
    const shown = await play().text();
    expect(samples(shown, 'slotsync_inbox_changes')).toEqual(['3']);
    expect(samples(shown, 'slotsync_inbox_oldest_seconds')).toEqual(['4.5']);
  });

  it('forget a lane or a run that is no longer there', async () => {
    let state = STATE;
    const metrics = play({ state: async () => state });
    await metrics.text();
    state = {
      backlog: [],
      inbox: { changes: 0, oldestSeconds: 0 },
      runs: [],
      successes: [],
      drift: [],
      verified: [],
    };
    const shown = await metrics.text();
    expect(samples(shown, 'slotsync_queue_jobs')).toEqual(['{lane="incremental"} 0', '{lane="sync"} 0']);
    expect(samples(shown, 'slotsync_run_duration_seconds')).toEqual([]);
  });
});

describe('a reading', () => {
  const OPTIONS = { keepMs: 1000, withinMs: 20 };

  it('is kept for a while, and then made again', async () => {
    let now = 0;
    let asked = 0;
    const read = cacheReading(async () => ++asked, { ...OPTIONS, now: () => now });
    expect(await Promise.all([read(), read()])).toEqual([1, 1]);
    now = 999;
    expect(await read()).toBe(1);
    now = 1000;
    expect(await read()).toBe(2);
  });

  it('ends in time, and is not asked again while the first question is open', async () => {
    let now = 0;
    let asked = 0;
    const late = createLater<string>();
    const slow = () => {
      asked++;
      return late.promise;
    };
    const read = cacheReading(slow, { ...OPTIONS, now: () => now });
    await expect(read()).rejects.toMatchObject({ code: 'ETIMEDOUT' });
    now = 5000;
    const second = read();
    late.resolve('late');
    expect(await second).toBe('late');
    expect(asked).toBe(1);
  });

  it('passes a failure on, and tries again after a while', async () => {
    let now = 0;
    let fails = true;
    const flaky = async () => (fails ? Promise.reject(new Error('down')) : 'up');
    const read = cacheReading(flaky, { ...OPTIONS, now: () => now });
    await expect(read()).rejects.toThrow('down');
    fails = false;
    await expect(read()).rejects.toThrow('down');
    now = 1000;
    expect(await read()).toBe('up');
  });
});

function createLater<T>() {
  let resolve: (value: T) => void = () => undefined;
  const promise = new Promise<T>((settle) => (resolve = settle));
  return { promise, resolve: (value: T) => resolve(value) };
}
