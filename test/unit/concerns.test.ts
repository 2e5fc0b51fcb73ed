// Guarantee 11
// Concerns derived from the situation: one row for each kind, with what each surface shows.
import { describe, expect, it } from 'vitest';
import { chooseAlerts, describeAfterwards } from '../../src/alerts/evaluate-alerts.js';
import { glanceToText, statusToText } from '../../src/commands/status.js';
import type { Severity } from '../../src/documents/concerns/concern.js';
import {
  concerns,
  countConcerns,
  describeWhoseTurn,
  needsPerson,
  type ConcernKind,
} from '../../src/documents/concerns/concerns.js';
import type { Document } from '../../src/documents/document.js';
import { reportDocument } from '../../src/documents/report.js';
import { situationDocument } from '../../src/documents/situation.js';
import { documentToHtml } from '../../src/render/html.js';
import { commandsBeside, documentToText } from '../../src/render/text.js';
import type { ReportFacts } from '../../src/situation/report.js';
import type { QuotaFacts, Situation } from '../../src/situation/situation.js';
import type { StreamProblem } from '../../src/state/schema.js';
import { configSchema } from '../../src/streams/config-schema.js';
import {
  AWKWARD,
  CAUSE,
  GATE,
  LOAD,
  NOW,
  OBEYED,
  PROCESS,
  QUIET,
  renamed,
  RUN,
  SCHEDULE,
  STREAM,
} from '../support/situations.js';

type Changes = Partial<Situation & Pick<ReportFacts, 'bookings'> & { quota: QuotaFacts }>;
interface Row {
  changes: Changes;
  /** By default the kind. */
  id?: string;
  /** By default `action`. */
  severity?: Severity;
  /** Text that every surface shows. */
  says: string;
  /** Condition of the alert. By default `needs_person`, and no alert for a notice. */
  alert?: string;
}

const ago = (minutes: number) => new Date(NOW.getTime() - minutes * 60_000);
const STOPPED = { ...PROCESS, stoppedSince: ago(20), errorCode: 'unauthorized', errorMessage: 'a secret' };
const GONE = { ...PROCESS, isAlive: false, seenAt: ago(90) };
const PAUSED = { ...RUN, pausedAt: ago(90) };
const OF_RUN = { runId: 12, runKind: 'sync', isWhole: true, failed: 0, dead: 0 } as const;
const PROBLEM = {
  ...OF_RUN,
  status: 'failed',
  code: 'key_null',
  message: null,
  since: ago(90).toISOString(),
} as const;
const troubled = (problem: Partial<StreamProblem>) => ({
  streamStates: [{ ...STREAM, problem: { ...PROBLEM, ...problem } }],
});
const WAITING = { stream: 'rooms', waiting: 2, later: 0, inFlight: 0, oldestSeconds: 7200 };
const PRESENT = { configuration: 'present', fingerprints: { rooms: 'a' }, configurationLoadedAt: ago(90) };
const CONFIGURED = { ...PROCESS, ...PRESENT };
const FREEZE = {
  id: 3,
  streams: ['rooms'],
  exceptStreams: [],
  beginsAt: ago(90),
  endsAt: new Date('2026-03-07T12:00:00Z'),
  reason: 'exam weeks',
  frozenBy: 'ada',
  isDeclared: false,
  isInForce: true,
};
const FROZEN = {
  ...GATE,
  operation: '*',
  reason: 'frozen',
  facts: { accepted: 0, message: 'exam weeks' },
} as const;
const inbox = (stream: string, changes: object = {}) => ({
  inbox: { ...QUIET.inbox, streams: [{ ...WAITING, stream, ...changes }] },
});

const TABLE: Record<ConcernKind, Row> = {
  state_restored: {
    changes: { known: { ...QUIET.known, restored: { since: ago(9), why: 'is on another server' } } },
    severity: 'critical',
    says: 'The state was restored',
    alert: 'state_restored',
  },
  state_read_only: {
    changes: { whyReadOnly: 'standby' },
    severity: 'critical',
    says: 'The state database is read-only: nothing is sent until it can be written',
  },
  quota_unavailable: {
    changes: { quota: { unknown: 'ECONNREFUSED' } },
    severity: 'critical',
    says: 'nothing is sent until it does',
  },
  sending_stopped: {
    changes: { processes: [STOPPED] },
    id: 'sending_stopped unauthorized',
    severity: 'critical',
    says: 'Nothing has been sent since 2026-03-02 05:40 UTC: unauthorized',
    alert: 'sending_stopped',
  },
  no_process: {
    changes: { unfinished: [RUN], processes: [GONE] },
    severity: 'critical',
    says: 'Run 12 is unfinished, but no process works on it',
  },
  no_worker: {
    changes: { nightly: SCHEDULE, processes: [] },
    says: 'No worker is running to start the nightly sync',
  },
  source_stale: {
    changes: { loads: [LOAD, { ...LOAD, stream: 'courses' }, { ...LOAD, stream: 'removed' }] },
    id: 'source_stale too_old',
    says: 'The load of the mirror is 3 d 5 h old, more than 26 h: rooms, courses',
    alert: 'source_stale',
  },
  no_success: {
    changes: { nightly: { ...SCHEDULE, successDueAt: ago(30) }, succeededAt: null, begunAt: ago(60) },
    id: 'no_success sync',
    severity: 'critical',
    says: 'No successful sync for 1 h 0 min',
    alert: 'no_success',
  },
  run_failed: {
    changes: troubled({}),
    id: 'run_failed sync key_null',
    says: 'Run 12 (sync) failed: key_null',
    alert: 'run_failed',
  },
  gate: {
    changes: { gates: [GATE] },
    id: 'gate rooms retire limit',
    says: 'Run 12 holds 40 deactivations of rooms',
    alert: 'run_held',
  },
  frozen: {
    changes: {
      ...inbox('rooms'),
      freezes: [FREEZE, { ...FREEZE, id: 4, streams: ['courses'], isInForce: false }],
      gates: [FROZEN],
    },
    id: 'frozen 3',
    severity: 'notice',
    says: 'rooms: frozen until 2026-03-07 12:00 UTC, nothing is written',
  },
  run_paused: {
    changes: { unfinished: [PAUSED] },
    id: 'run_paused 12',
    says: 'Run 12 (sync) has been paused since 2026-03-02 04:30 UTC',
  },
  run_waiting: {
    changes: {
      unfinished: [{ ...RUN, configuration: 'former', fingerprints: { rooms: 'b' } }],
      processes: [{ ...CONFIGURED, configurationLoadedAt: ago(30) }],
    },
    id: 'run_waiting 12',
    says: 'Run 12 (rooms) waits, because no running process has its configuration',
  },
  configuration_former: {
    changes: { processes: [{ ...CONFIGURED, configurationChangedAt: ago(70) }] },
    id: 'configuration_former worker',
    says: '1 process (worker) has an old configuration',
  },
  records: {
    changes: { causes: [CAUSE], unsettled: 1, records: [{ stream: 'rooms', status: 'dead', count: 1 }] },
    id: 'records rooms dead refused_400',
    says: 'given up (refused_400)',
  },
  drift: {
    changes: { drift: [{ stream: 'rooms', kind: 'changed', count: 3 }] },
    id: 'drift rooms',
    says: '3 objects of rooms drift at the service',
    alert: 'drift',
  },
  bookings: {
    changes: {
      discrepancies: [{ verdict: 'differs', count: 4, problems: 0 }],
      bookings: [{ verdict: 'differs', count: 4, problems: 0 }],
    },
    says: '4 bookings do not agree',
  },
  inbox: {
    changes: inbox('rooms'),
    id: 'inbox rooms',
    says: 'A change of rooms has waited for 2 h 0 min',
    alert: 'inbox',
  },
  inbox_unknown: {
    changes: inbox('halls'),
    id: 'inbox (not configured)',
    says: 'Changes wait for streams that are not in the configuration',
    alert: 'inbox',
  },
  run_partial: {
    changes: troubled({ status: 'partial', code: null, dead: 3 }),
    id: 'run_partial sync rooms',
    severity: 'notice',
    says: 'Run 12 (sync) is partial: 3 records of rooms not accepted',
    alert: 'run_partial',
  },
  process_silent: {
    changes: { processes: [PROCESS, { ...GONE, id: 'b' }] },
    severity: 'notice',
    says: '1 process was killed, is suspended, or cannot reach the state',
  },
  triggers_gone: {
    changes: { lostTriggers: ['rooms'] },
    says: 'The triggers of rooms are missing or disabled, so only the next sync finds changes',
  },
  claims_orphaned: {
    changes: { orphanedClaims: { records: 3, until: NOW } },
    severity: 'notice',
    says: '3 records wait because a dead process had locked them',
  },
  due: {
    changes: { known: { ...QUIET.known, due: [{ stream: 'rooms', since: ago(60), reason: 'frozen' }] } },
    id: 'due frozen',
    severity: 'notice',
    says: 'rooms is due for a whole sync since 2026-03-02 05:00 UTC: its freeze has ended',
  },
  in_doubt: {
    changes: { inDoubt: { count: 2, latest: NOW } },
    severity: 'notice',
    says: '2 objects will be checked again',
  },
  former_objects: {
    changes: { formerObjects: 2 },
    severity: 'notice',
    says: '2 former objects of records whose external id changed are not deactivated',
  },
};

const situationOf = (changes: Changes) => ({ quota: null, ...QUIET, ...changes });
/** Returns the alerts under rules that differ from the defaults. */
function alertsOf(changes: Changes, given: object = {}) {
  const rules = configSchema.shape.alerts.parse(given);
  return chooseAlerts(concerns(situationOf(changes), rules), rules, { timeZone: 'UTC', now: NOW });
}

function reportOf(changes: Changes, more: object = {}): Document {
  const facts = {
    bookings: [],
    ...situationOf(changes),
    period: { from: ago(60), to: NOW, because: 'since' as const },
    run: null,
    listed: [],
    runCounts: [],
    streams: [],
    driftChanges: { found: 0, mended: 0 },
    verdictChanges: 0,
    actions: [],
    requests: { requests: 0, throttled: 0, fastest: 0, fastestAt: null, perSecond: 20, allowed: 1 },
    ...more,
  };
  return reportDocument(facts);
}
const toText = (document: Document) => documentToText(document, { timeZone: 'UTC', columns: Infinity });

it('the report says that numbers which several runs have counted are sums', () => {
  const rooms = {
    stream: 'rooms',
    planned: { create: 0, update: 0, retire: 0, repair: 0 },
    accepted: { create: 0, update: 0, retire: 0 },
    outcomes: { synced: 0, unchanged: 0, deferred: 145, failed: 0, dead: 0 },
  };
  const said = (runs: number) =>
    toText(reportOf({}, { streams: [rooms], runCounts: [{ kind: 'sync', status: 'partial', runs }] }));
  expect(said(1)).not.toContain('sums over');
  expect(said(4)).toContain(
    'The numbers are sums over 4 runs: a record counts once in each run that included it.',
  );
});

it('a concern omits a command that its sentence already names, with or without the stream', () => {
  const beside = (next: string) =>
    commandsBeside({ text: '', next, commands: ['slotsync sync labs'] }, 'UTC');
  expect(beside('Correct one of the rows, then: slotsync sync')).toEqual([]);
  expect(beside('To do it now: slotsync sync labs')).toEqual([]);
  expect(beside('To do it now: slotsync sync rooms')).toEqual(['slotsync sync labs']);
});

describe('concerns', () => {
  it('are empty when all is well, and status says so in its first line', () => {
    expect(concerns(QUIET)).toEqual([]);
    expect(alertsOf({})).toEqual([]);
    expect(countConcerns([]).every(({ count }) => count === 0)).toBe(true);
    expect(statusToText(situationOf({}), 'UTC')).toMatch(/^All well: 0 records in sync, last sync 05:00\n/);
  });

  it.each(Object.entries(TABLE))(
    'include %s, shown on every surface and in its alert',
    (kind, { changes, id = kind, severity = 'action', says, ...row }) => {
      const alert = row.alert ?? (severity === 'notice' ? undefined : 'needs_person');
      const situation = situationOf(changes);
      const found = concerns(situation);
      expect(found.find((one) => one.kind === kind)).toMatchObject({ id, severity });
      expect(new Set(found.map((one) => one.id)).size).toBe(found.length);

      const page = documentToHtml(situationDocument(situation), 'UTC');
      for (const surface of [statusToText(situation, 'UTC'), toText(reportOf(changes))])
        expect(surface).toContain(says);
      expect(page.replaceAll(/<[^>]+>/g, '')).toContain(says);
      expect(page).not.toContain('>Run: <code>'); // every command says what it does
      const sent = alertsOf(changes).find(({ cause }) => cause === id);
      expect(sent?.condition).toBe(alert);
      if (sent) expect(sent.message.commands).not.toEqual([]);
      if (sent) expect(JSON.stringify(sent)).not.toMatch(/R\d|north|a secret/);
      const counts = countConcerns(found);
      expect(counts).toContainEqual({ kind, severity, count: expect.any(Number) });
      expect(counts.reduce((sum, { count }) => sum + count, 0)).toBe(found.length);
      // Every surface shows what needs a person, first of all in the first line.
      const turn = describeWhoseTurn(found);
      expect(turn !== undefined).toBe(found.some(needsPerson));
      for (const toLines of [statusToText, glanceToText]) {
        const [first] = toLines(situation, 'UTC').split('\n');
        expect(first?.startsWith('All well')).toBe(found.length === 0);
        if (turn !== undefined) expect(first).toBe(turn);
      }
      if (severity !== 'notice') expect(sent).toBeDefined();
    },
  );

  const WORDS = ['rooms', 'a secret', 'north', 'R7', 'R1', 'refused_400', 'is on another', 'ECONNREFUSED'];
  const named = (changes: Changes, name: string) =>
    WORDS.reduce((facts, word) => renamed(facts, word, name), changes);
  it.each(Object.entries(TABLE))('keep each name and message within its line: %s', (_, { changes }) => {
    const awkward = named(changes, AWKWARD);
    const plain = named(changes, 'x');
    const surfaces = [
      (given: Changes) => statusToText(situationOf(given), 'UTC'),
      (given: Changes) => toText(reportOf(given)),
      (given: Changes) => documentToHtml(situationDocument(situationOf(given)), 'UTC'),
      (given: Changes) =>
        alertsOf(given)
          .flatMap(({ message: { title, details, commands } }) => [title, ...details, ...commands])
          .join('\n'),
    ];
    for (const render of surfaces) {
      expect(render(awkward)).not.toMatch(OBEYED);
      expect(render(awkward).split('\n')).toHaveLength(render(plain).split('\n').length);
    }
  });

  it('name the streams that a stale load holds when other streams are not held', () => {
    const loads = [LOAD, { ...LOAD, stream: 'courses', holds: false }];
    expect(statusToText(situationOf({ loads }), 'UTC').replaceAll(/\s+/g, ' ')).toContain(
      'Changes of rooms are held, other changes are sent, and runs do not count as succeeded.',
    );
  });

  it('fit into the first line of status, even when every kind occurs', () => {
    const changes = Object.values(TABLE).map((row) => row.changes);
    const line = describeWhoseTurn(changes.flatMap((each) => concerns(situationOf(each))));
    expect(line?.length).toBeLessThanOrEqual(80);
    expect(line).toMatch(/^\d+ things need you now: state restored, .*, \d+ more$/);
  });

  it('are shortened in status to the first causes and the number of the rest', () => {
    const causes = ['R1', 'R2', 'R3', 'R4', 'R5'].map((key) => ({
      ...CAUSE,
      code: `refused_${key}`,
      keys: [key],
    }));
    const lines = statusToText(situationOf({ causes, unsettled: 5 }), 'UTC').split('\n');
    expect(lines).toContain('5 records are not in sync: slotsync failures');
    expect(lines.filter((line) => line.startsWith('- ')).at(-1)).toBe('- … and 2 more');
    expect(lines[0]).toBe('5 things need you: 5 records to correct');
    // Instead of a line that counts only one more, the fourth is shown.
    expect(statusToText(situationOf({ causes: causes.slice(1), unsettled: 4 }), 'UTC')).toMatch(
      /^- .*refused_R5/m,
    );
  });

  it('stand in status beside the processes that are at work', () => {
    const said = statusToText(situationOf({ processes: [PROCESS] }), 'UTC');
    expect(said).toMatch(/^worker +north +1 +working /m);
    expect(said).toContain('To see which alerts were sent: slotsync alerts');
  });

  it('leave out a record that is queued or will be sent again', () => {
    const causes = [
      { ...CAUSE, status: 'pending' as const, code: null, records: 3 },
      { ...CAUSE, status: 'failed' as const, records: 2, inInbox: 2 },
    ];
    const situation = situationOf({ causes, unsettled: 5, records: [] });
    expect(concerns(situation)).toEqual([]);
    const said = statusToText(situation, 'UTC');
    expect(said).toContain('5 records are queued or under way.');
    expect(said).not.toContain('not in sync');
  });

  it('say that keys wait because no running worker has their stream', () => {
    const waiting = (stream: string) => inbox(stream, { oldestSeconds: 5 });
    const silent = situationOf({ ...waiting('rooms'), processes: [GONE] });
    expect(concerns(silent).map(({ kind }) => kind)).not.toContain('inbox_unknown');
    expect(statusToText(silent, 'UTC')).toContain('No worker is running, so nothing processes these keys.');
    const of = (stream: string) => situationOf({ ...waiting(stream), processes: [CONFIGURED] });
    expect(concerns(of('rooms'))).toEqual([]);
    expect(concerns(of('courses'))).toMatchObject([
      { id: 'inbox (no worker has it)', severity: 'action', facts: { streams: ['courses'], count: 1 } },
    ]);
    const said = statusToText(of('courses'), 'UTC');
    expect(said).toContain('Changes wait for streams that no running worker has');
    expect(said).toContain('Restart the worker');
  });

  it('group the digits of the numbers of records that were not accepted', () => {
    const partial = troubled({ status: 'partial', code: null, failed: 1000, dead: 2000 });
    const said = statusToText(situationOf(partial), 'UTC');
    expect(said).toContain('rooms: 1 000 failed, 2 000 given up.');
  });

  it('show a watermark that is a time in the configured zone, and other watermarks unchanged', () => {
    const of = (cursor: string) => {
      const watermarks = [{ stream: 'rooms', cursor, localKey: 'R1', movedAt: NOW }];
      const situation = situationOf({ inbox: { ...QUIET.inbox, watermarks } });
      return statusToText(situation, 'Europe/Stockholm').replaceAll(/\s+/g, ' ');
    };
    const moved = 'the watermark last moved at 2026-03-02 07:00:00 CET.';
    for (const cursor of ['2026-03-02 05:30:07.123456+00', '2026-03-02 11:00:07+05:30'])
      expect(of(cursor)).toContain(`Polled: rooms up to 2026-03-02 06:30:07 CET; ${moved}`);
    for (const cursor of ['2026-03-02 05:30:07', '4711', 'infinity'])
      expect(of(cursor)).toContain(`Polled: rooms up to ${cursor}; ${moved}`);
  });

  it('leave out an object that belongs to no record, which status and report only count', () => {
    const changes = { drift: [{ stream: 'rooms', kind: 'extra', count: 1 }] } satisfies Changes;
    expect(concerns(situationOf(changes))).toEqual([]);
    for (const said of [statusToText(situationOf(changes), 'UTC'), toText(reportOf(changes))]) {
      expect(said).toContain('1 object belongs to no record, and is left as it is');
      expect(said).not.toContain('drifts');
    }
  });

  const expiresAt = new Date('2026-03-03T06:00:00Z');
  const APPROVAL = { allowed: 40, digest: null, at: ago(5), by: 'ada', runId: 13, expiresAt };
  it.each([
    ['approved', { approval: APPROVAL }, 'Approved until 2026-03-03 06:00 UTC, for run 13.'],
    [
      'approved but waits for writes',
      { approval: APPROVAL, facts: { accepted: 100, waitsForWrites: true as const } },
      'Correct or approve the creates and updates that are not sent.',
    ],
    ['rejected', { rejectedAt: ago(5), rejectedBy: 'ada' }, 'No action needed until its records change.'],
  ])('include a gate that is %s as a notice, without commands or an alert', (_, answer, says) => {
    const changes = { gates: [{ ...GATE, ...answer }] };
    expect(concerns(situationOf(changes))).toMatchObject([{ severity: 'notice', commands: [] }]);
    expect(alertsOf(changes)).toEqual([]);
    expect(statusToText(situationOf(changes), 'UTC').replaceAll(/\s+/g, ' ')).toContain(says);
  });

  const RETIRE = '--operation retire';
  const FORMER = { accepted: 100, formerStreams: { halls: 40 } };
  it.each<[changes: Partial<typeof GATE>, commands: string[]]>([
    [{ operation: '*', reason: 'forbidden' }, ['sync rooms', 'reject 12 --stream rooms --gate forbidden']],
    [{ reason: 'empty_source' }, ['sync rooms', `reject 12 --stream rooms ${RETIRE}`]],
    [
      { operation: '*', reason: 'refused' },
      ['approve 12 --stream rooms --gate refused', 'reject 12 --stream rooms --gate refused'],
    ],
    [
      { operation: 'overwrite', reason: 'owned_by_former_stream', facts: FORMER },
      [
        'rename-stream halls rooms',
        'approve 12 --stream rooms --operation overwrite',
        'reject 12 --stream rooms --operation overwrite',
      ],
    ],
    [{ stream: 'halls' }, ['rename-stream halls <new>']],
  ])('name the commands that help with a closed gate: %o', (changes, commands) => {
    expect(concerns(situationOf({ gates: [{ ...GATE, ...changes }] }))).toMatchObject([
      { severity: 'action', commands: commands.map((command) => `slotsync ${command}`) },
    ]);
  });

  it('do not call a due stream in sync, and say that no worker starts its cancelled sync', () => {
    const due = [{ stream: 'rooms', since: ago(60), reason: 'cancelled' as const }];
    const said = statusToText(situationOf({ known: { ...QUIET.known, due } }), 'UTC');
    expect(said).not.toContain('is in sync as of the last plan');
    expect(said).toContain('an operator cancelled its sync');
    expect(said).toContain('The schedule or the command starts the sync; no worker does.');
  });

  it('call no record in sync while a gate keeps a record back', () => {
    const said = statusToText(situationOf({ known: { ...QUIET.known, held: 2 } }), 'UTC');
    expect(said).not.toContain('is in sync as of the last plan');
    expect(said).toContain('2 records are held: slotsync failures --status held');
  });

  it('leave out a partial run of part of a stream once no record is failed or given up', () => {
    const partial = troubled({ status: 'partial', code: null, dead: 3, isWhole: false });
    expect(concerns(situationOf(partial))).toEqual([]);
    expect(concerns(situationOf({ ...partial, causes: [CAUSE] })).map(({ kind }) => kind)).toContain(
      'run_partial',
    );
  });
});

describe('the concern of a freeze', () => {
  const { changes } = TABLE.frozen;

  it('counts held records and waiting keys, and names the end and the reason of the freeze', () => {
    const shown = statusToText({ ...QUIET, ...changes, quota: null }, 'UTC');
    expect(shown).toContain('Waiting: 40 records held and 2 keys in the inbox. A freeze causes no alert.');
    expect(shown).toContain('Reason: exam weeks');
    expect(shown).toContain('slotsync unfreeze rooms');
    expect(shown).toMatch(/^No action needed: /);
    expect(shown).not.toContain('slotsync approve');
  });

  it('names no command when the configuration declares the freeze', () => {
    const of = { ...changes, freezes: [{ ...FREEZE, frozenBy: null, isDeclared: true }] };
    expect(concerns({ ...QUIET, ...of })).toMatchObject([{ kind: 'frozen', commands: [] }]);
  });

  it('names the excepted streams, and counts what waits of the frozen streams', () => {
    const of = { ...changes, freezes: [{ ...FREEZE, streams: null, exceptStreams: ['courses'] }] };
    expect(concerns({ ...QUIET, ...of })).toMatchObject([
      { kind: 'frozen', facts: { held: 40, waiting: 2 }, commands: ['slotsync unfreeze'] },
    ]);
    expect(statusToText({ ...QUIET, ...of, quota: null }, 'UTC')).toContain(
      'All streams but courses: frozen until',
    );
  });

  it('is separate for each of two overlapping freezes', () => {
    const other = { ...FREEZE, id: 4, streams: null, endsAt: new Date('2026-03-03T12:00:00Z') };
    const all = concerns({ ...QUIET, ...changes, freezes: [other, FREEZE] });
    expect(all.map(({ id }) => id)).toEqual(['frozen 4', 'frozen 3']);
  });

  it('suppresses no alert of another stream', () => {
    const other = concerns({ ...QUIET, ...changes, ...inbox('courses') });
    expect(other.map(({ kind }) => kind)).toEqual(['inbox', 'frozen']);
  });
});

describe('the rules of alerts', () => {
  const HOUR = 60;
  const FAILED = { ...PROBLEM, code: 'unauthorized' };
  const PARTIAL = { ...PROBLEM, status: 'partial', code: null } as const;
  const problems = (of: Readonly<Record<string, StreamProblem>>) => ({
    streamStates: Object.entries(of).map(([stream, problem]) => ({ ...STREAM, stream, problem })),
  });
  const twoFailed = problems({ rooms: FAILED, courses: { ...FAILED, runId: 13 } });
  const missing = (code: string) => problems({ rooms: { ...PARTIAL, code } });
  const stopped = (...minutes: number[]) => ({
    processes: minutes.map((since) => ({ ...STOPPED, stoppedSince: ago(since) })),
  });
  const inboxOf = (...ages: number[]) => ({
    inbox: {
      ...QUIET.inbox,
      streams: ages.map((oldestSeconds, at) => ({
        ...WAITING,
        stream: ['rooms', 'courses'][at] ?? '',
        oldestSeconds,
      })),
    },
  });
  const success = (hours: number | null, dueHours?: number, changes: Changes = {}) => ({
    succeededAt: hours === null ? null : ago(hours * HOUR),
    nightly: dueHours === undefined ? null : { ...SCHEDULE, successDueAt: ago(dueHours * HOUR) },
    ...changes,
  });
  const begun = (hours: number) => success(null, undefined, { begunAt: ago(hours * HOUR) });
  const failed = { id: 9, kind: 'reconcile', status: 'failed', errorCode: 'timeout' } as const;
  const reading = { ...failed, streams: [], finishedAt: NOW };
  const drift = (['changed', 'changed', 'missing', 'extra', 'stored_otherwise'] as const).map((kind, at) => ({
    stream: ['rooms', 'courses', 'rooms', 'halls', 'halls'][at] ?? '',
    kind,
    count: at + 3,
  }));

  it.each<[what: string, changes: Changes, rules: object, causes: string[]]>([
    ['one alert for runs with the same failure', twoFailed, {}, ['run_failed sync unauthorized']],
    ['no alert for failed runs if `runs` omits them', twoFailed, { runs: ['held'] }, []],
    ['no alert for failed streams that are not configured', { ...twoFailed, configured: ['halls'] }, {}, []],
    [
      'an alert without a run for a stream that cannot be polled',
      problems({ rooms: { ...FAILED, code: 'mirror_query', runId: null, runKind: null } }),
      {},
      ['run_failed stream mirror_query'],
    ],
    ['a failed reading without a stream', { badReadings: [reading] }, {}, ['run_failed reconcile timeout']],
    [
      'one alert for each stream that a partial run left with failures',
      problems({ rooms: { ...PARTIAL, dead: 2 }, courses: { ...PARTIAL, failed: 1 }, staff: PARTIAL }),
      {},
      ['run_partial sync courses', 'run_partial sync rooms'],
    ],
    [
      'a run that is partial as a whole',
      missing('outcomes_missing'),
      {},
      ['run_partial sync outcomes_missing'],
    ],
    [
      'no alert for runs that are partial because the state was restored',
      { ...TABLE.state_restored.changes, ...missing('state_restored') },
      {},
      ['state_restored'],
    ],
    ['no alert for a gate of a freeze', { gates: [FROZEN] }, {}, []],
    ['one alert for several stopped processes', stopped(15, 20, 1), {}, ['sending_stopped unauthorized']],
    ['no alert for a process that stopped just now', stopped(14), {}, []],
    ['sendingStoppedMinutes', stopped(6), { sendingStoppedMinutes: 5 }, ['sending_stopped unauthorized']],
    ['sendingStoppedMinutes: false', { processes: [STOPPED] }, { sendingStoppedMinutes: false }, []],
    ['a success since one was due', success(3, 4), {}, []],
    ['no success since one was due', success(30, 4), {}, ['no_success sync']],
    ['never a success, and none begun', success(null, 4, { begunAt: null }), {}, ['no_success sync']],
    ['nothing was due since the last success', success(60, 61), {}, []],
    ['nothing is scheduled', success(30), {}, []],
    ['noSuccessHours', success(3), { noSuccessHours: 2 }, ['no_success sync']],
    ['noSuccessHours: false', success(99, 4), { noSuccessHours: false }, []],
    ['noSuccessHours, begun just now', begun(5), { noSuccessHours: 6 }, []],
    ['noSuccessHours, begun long ago', begun(7), { noSuccessHours: 6 }, ['no_success sync']],
    ['never begun', { ...begun(7), begunAt: null }, { noSuccessHours: 6 }, []],
    ['drift by stream', { drift }, {}, ['drift courses', 'drift rooms']],
    ['driftObjects', { drift }, { driftObjects: 5 }, ['drift rooms']],
    ['driftObjects: false', { drift }, { driftObjects: false }, []],
    ['an old inbox by stream', inboxOf(7200, 60), {}, ['inbox rooms']],
    ['inboxMinutes', inboxOf(7200, 60), { inboxMinutes: 1 }, ['inbox courses', 'inbox rooms']],
    ['inboxMinutes: false', inboxOf(7200), { inboxMinutes: false }, []],
    ['changes of streams that are not configured', inboxOf(0, 0, 7200, 7200), {}, ['inbox (not configured)']],
    ['without a rule, for less than an hour', { unfinished: [{ ...RUN, pausedAt: ago(59) }] }, {}, []],
    ['without a rule, for an hour', { unfinished: [{ ...RUN, pausedAt: ago(60) }] }, {}, ['run_paused 12']],
  ])('choose the alerts: %s', (_, changes, rules, causes) => {
    expect(
      alertsOf(changes, rules)
        .map(({ cause }) => cause)
        .toSorted(),
    ).toEqual(causes);
  });

  it('put counts, streams and commands into the message, and no key', () => {
    const [cause] = alertsOf({
      ...troubled({ status: 'partial', code: null, dead: 2, message: 'secret-key' }),
      causes: [{ ...CAUSE, status: 'failed', records: 2, inInbox: 2 }],
    });
    expect(cause?.message).toEqual({
      title: 'Run 12 (sync) is partial: 2 records of rooms not accepted',
      details: ['rooms: 2 given up.', '2 records of rooms are in the inbox, and a worker sends them again.'],
      commands: ['slotsync failures rooms', 'slotsync runs 12'],
    });
    const held = { ...GATE, facts: { accepted: 100, message: 'secret', mirrorChange: 'secret' } };
    for (const gate of [held, { ...held, operation: '*', reason: 'forbidden' } as const])
      expect(JSON.stringify(alertsOf({ gates: [gate] }))).not.toContain('secret');
    const [records] = alertsOf({
      causes: [{ ...CAUSE, records: 2, waiting: 3, waitingByStream: { courses: 3 } }],
    });
    expect(records?.message.title).toBe(
      '2 records of rooms given up (refused_400) → 3 records of courses wait for them',
    );
  });

  it('name records out of sync and killed processes in the message of an ended alert', () => {
    const after = (changes: Changes, condition: 'drift' | 'sending_stopped') =>
      describeAfterwards(situationOf(changes), condition);
    const killed = { processes: [{ ...STOPPED, isAlive: false }] };
    expect(after({}, 'sending_stopped')).toEqual([]);
    expect(after({ ...killed, unsettled: 1 }, 'sending_stopped')).toEqual([
      '1 process that sent nothing was killed, or lost the state database: slotsync status',
      '1 record is not in sync: slotsync failures',
    ]);
    expect(after(killed, 'drift')).toEqual([]);
  });
});
