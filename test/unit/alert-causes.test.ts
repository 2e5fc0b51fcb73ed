// Alerts: from what the state says to alerts, once each.
import { describe, expect, it } from 'vitest';
import { chooseAlerts } from '../../src/alerts/tell.js';
import { concerns } from '../../src/documents/concerns/concerns.js';
import type { Situation } from '../../src/situation/situation.js';
import type { StreamProblem } from '../../src/state/schema.js';
import { configSchema } from '../../src/streams/config-schema.js';
import { CAUSE, GATE, NOW, PROCESS, QUIET, SCHEDULE, STREAM } from '../support/situations.js';

const ago = (minutes: number) => new Date(NOW.getTime() - minutes * 60_000);

const PARTIAL: StreamProblem = {
  status: 'partial',
  code: null,
  message: 'secret-key',
  since: ago(90).toISOString(),
  runId: 12,
  runKind: 'sync',
  isWhole: true,
  failed: 0,
  dead: 0,
};
/** A problem for each stream. */
const troubled = (problems: Readonly<Record<string, Partial<StreamProblem>>>) => ({
  streamStates: Object.entries(problems).map(([stream, problem]) => ({
    ...STREAM,
    stream,
    problem: { ...PARTIAL, ...problem },
  })),
});
const HELD = {
  ...GATE,
  facts: { accepted: 100, mirrorChange: 'secret-key' },
  samples: [{ key: 'secret-key', externalId: 'secret', changes: [] }],
};
const INBOX = { stream: 'rooms', waiting: 2, later: 0, inFlight: 0, oldestSeconds: 7200 };

interface Changes extends Partial<Situation> {
  /** The latest nightly sync that was due long enough ago to have ended; null: none was. Undefined: there is no schedule. */
  dueAt?: Date | null;
}

/** The alerts, with rules that differ from the defaults. */
function causes({ dueAt, ...changes }: Changes, rules: object = {}) {
  const parsed = configSchema.shape.alerts.parse(rules);
  const nightly = dueAt === undefined ? null : { ...SCHEDULE, successDueAt: dueAt };
  const situation = { ...QUIET, processes: [PROCESS], nightly, ...changes };
  return chooseAlerts(concerns(situation, parsed), parsed, { timeZone: 'Europe/Stockholm', now: NOW });
}
const names = (...given: Parameters<typeof causes>) => causes(...given).map(({ cause }) => cause);
const inbox = (...streams: Situation['inbox']['streams']) => ({ inbox: { ...QUIET.inbox, streams } });
const restoredSince = (restored: Situation['known']['restored']) => ({ known: { ...QUIET.known, restored } });

describe('causes of alerts', () => {
  it('alerts: when all is well there is no cause', () => {
    expect(causes({})).toEqual([]);
  });

  it('alerts: a failed run is one cause by kind and code, whatever its streams', () => {
    const failed = { status: 'failed', code: 'unauthorized' } as const;
    const problems = troubled({ rooms: failed, courses: { ...failed, runId: 13 } });
    const [cause, ...others] = causes(problems);
    expect(others).toEqual([]);
    expect(cause).toMatchObject({
      cause: 'run_failed sync unauthorized',
      message: { title: 'Run 13 (sync) failed: unauthorized', commands: ['slotsync runs 13'] },
    });
    expect(cause?.message.details).toContain('Streams: rooms, courses.');
    expect(JSON.stringify(cause)).not.toContain('secret');
    expect(names(problems, { runs: ['held'] })).toEqual([]);
    expect(names({ ...problems, configured: ['halls'] })).toEqual([]);
  });

  it('alerts: a stream that cannot be polled is a cause without a run', () => {
    const problem = { status: 'failed', code: 'mirror_query', runId: null, runKind: null } as const;
    expect(causes(troubled({ rooms: problem }))).toMatchObject([
      {
        cause: 'run_failed stream mirror_query',
        message: { title: 'rooms cannot be read: mirror_query', commands: ['slotsync sync rooms'] },
      },
    ]);
  });

  it('alerts: a reading that failed is a cause, also without a stream', () => {
    const reading = {
      id: 9,
      kind: 'reconcile',
      status: 'failed',
      errorCode: 'timeout',
      finishedAt: NOW,
    } as const;
    const badReadings = [{ ...reading, streams: [] }];
    expect(causes({ badReadings })).toMatchObject([
      { cause: 'run_failed reconcile timeout', message: { title: 'Run 9 (reconcile) failed: timeout' } },
    ]);
  });

  it('alerts: a partial run is a cause for each stream with failures, in numbers', () => {
    const problems = troubled({ rooms: { failed: 1, dead: 2 }, courses: { dead: 1 }, staff: {} });
    expect(causes({ ...problems, configured: null })).toMatchObject([
      {
        cause: 'run_partial sync rooms',
        message: { title: 'Run 12 (sync) is partial: 3 records of rooms not accepted' },
      },
      { cause: 'run_partial sync courses' },
    ]);
    expect(names(troubled({ rooms: { dead: 900 } }))).toEqual(['run_partial sync rooms']);
    expect(names(troubled({ rooms: { code: 'outcomes_missing' } }))).toEqual([
      'run_partial sync outcomes_missing',
    ]);
  });

  it('alerts: a state that was restored is one cause, however many runs are partial for it', () => {
    const restored = restoredSince({ since: NOW, why: 'is on another server' });
    expect(causes({ ...restored, ...troubled({ rooms: { code: 'state_restored' } }) })).toMatchObject([
      { cause: 'state_restored', message: { commands: ['slotsync verify --repair'] } },
    ]);
  });

  it('alerts: what is in the inbox again is said to be on its way', () => {
    const [cause] = causes({
      ...troubled({ rooms: { dead: 2 } }),
      causes: [{ ...CAUSE, status: 'failed', records: 2, inInbox: 2 }],
    });
    expect(cause?.message.details).toEqual([
      'rooms: 2 given up.',
      '2 records of rooms are in the inbox, and sent again automatically.',
    ]);
  });

  it('alerts: what is held names the number and the commands, and no key', () => {
    const found = causes({ gates: [HELD] });
    expect(found).toMatchObject([
      {
        cause: 'gate rooms retire limit',
        condition: 'run_held',
        message: {
          title: 'Run 12 holds 40 deactivations of rooms',
          commands: [
            'slotsync approve 12 --stream rooms --operation retire',
            'slotsync reject 12 --stream rooms --operation retire',
          ],
        },
      },
    ]);
    expect(JSON.stringify(found)).not.toContain('secret');
    const forbidden = causes({
      gates: [{ ...HELD, operation: '*', reason: 'forbidden', facts: { accepted: 1, message: 'secret' } }],
    });
    expect(forbidden).toMatchObject([
      {
        message: { commands: ['slotsync sync rooms', 'slotsync reject 12 --stream rooms --gate forbidden'] },
      },
    ]);
    expect(JSON.stringify(forbidden)).not.toContain('secret');
    expect(causes({ gates: [{ ...HELD, operation: '*', reason: 'frozen' }] })).toEqual([]);
  });

  it('alerts: sending stopped counts from sendingStoppedMinutes on, once for all processes', () => {
    const stopped = (minutes: number) => ({
      ...PROCESS,
      stoppedSince: ago(minutes),
      errorCode: 'unauthorized',
      errorMessage: 'secret',
    });
    const processes = [stopped(15), stopped(20), stopped(1)];
    const [cause, ...others] = causes({ processes });
    expect(others).toEqual([]);
    expect(cause?.message.title).toBe('Nothing has been sent since 2026-03-02 06:40 CET: unauthorized');
    expect(cause?.message.details[0]).toMatch(/^3 processes: /);
    expect(JSON.stringify(cause)).not.toContain('secret');
    expect(names({ processes: [stopped(14)] })).toEqual([]);
    expect(names({ processes: [stopped(6)] }, { sendingStoppedMinutes: 5 })).toHaveLength(1);
    expect(names({ processes }, { sendingStoppedMinutes: false })).toEqual([]);
  });

  it('alerts: no successful sync counts when one was due by the schedule, or after the hours that are asked for', () => {
    const HOUR = 60;
    const dueAt = ago(4 * HOUR);
    expect(names({ succeededAt: ago(3 * HOUR), dueAt })).toEqual([]);
    expect(causes({ succeededAt: ago(30 * HOUR), dueAt })).toMatchObject([
      { cause: 'no_success sync', message: { title: 'No successful sync for 30 h 0 min' } },
    ]);
    expect(names({ succeededAt: null, begunAt: null, dueAt })).toEqual(['no_success sync']);
    // Nothing was due at the weekend.
    expect(names({ succeededAt: ago(60 * HOUR), dueAt: ago(61 * HOUR) })).toEqual([]);
    expect(names({ succeededAt: ago(30 * HOUR) })).toEqual([]);
    expect(names({ succeededAt: ago(3 * HOUR) }, { noSuccessHours: 2 })).toHaveLength(1);
    expect(names({ succeededAt: ago(99 * HOUR), dueAt }, { noSuccessHours: false })).toEqual([]);
  });

  it('alerts: before the first success, without a schedule, the hours count from the binding or the first run', () => {
    const never = (hours: number) => ({ succeededAt: null, begunAt: ago(hours * 60) });
    expect(names(never(5), { noSuccessHours: 6 })).toEqual([]);
    expect(causes(never(7), { noSuccessHours: 6 })).toMatchObject([
      { message: { title: 'No successful sync for 7 h 0 min', details: ['None has succeeded yet.'] } },
    ]);
    expect(names({ ...never(7), begunAt: null }, { noSuccessHours: 6 })).toEqual([]);
    expect(names(never(700))).toEqual([]);
  });

  it('alerts: drift counts by stream, from driftObjects on', () => {
    const drift = [
      { stream: 'rooms', kind: 'changed', count: 3 },
      { stream: 'rooms', kind: 'missing', count: 1 },
      { stream: 'courses', kind: 'missing', count: 1 },
      { stream: 'halls', kind: 'extra', count: 100 },
      { stream: 'halls', kind: 'stored_otherwise', count: 100 },
    ] as const;
    expect(causes({ drift: [...drift] })).toMatchObject([
      { cause: 'drift rooms', message: { details: ['Not as last accepted: 3 changed, 1 missing.'] } },
      { cause: 'drift courses' },
    ]);
    expect(names({ drift: [...drift] }, { driftObjects: 4 })).toEqual(['drift rooms']);
    expect(names({ drift: [...drift] }, { driftObjects: false })).toEqual([]);
  });

  it('alerts: an old inbox counts by configured stream; names that others made up are one cause, and not shown', () => {
    const waiting = inbox(INBOX, { ...INBOX, stream: 'courses', oldestSeconds: 60 });
    expect(names(waiting)).toEqual(['inbox rooms']);
    expect(names(waiting, { inboxMinutes: 1 })).toEqual(['inbox rooms', 'inbox courses']);
    expect(names(waiting, { inboxMinutes: false })).toEqual([]);
    const unknown = causes(inbox({ ...INBOX, stream: 'Ada Lovelace' }, { ...INBOX, stream: 'x' }));
    expect(unknown).toHaveLength(1);
    expect(JSON.stringify(unknown)).not.toContain('Ada');
  });
});
