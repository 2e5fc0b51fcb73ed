// Situations for tests: one in which nothing concerns anybody, and what may be in others.
import type { Cause } from '../../src/situation/causes.js';
import type { GaugeFacts } from '../../src/http/metrics.js';
import type { ScheduleFacts, Situation } from '../../src/situation/situation.js';
import type { Gate } from '../../src/state/gates/gates.js';
import type { Process } from '../../src/state/processes.js';
import type { Run } from '../../src/state/runs/read-runs.js';
import type { StreamFacts } from '../../src/state/streams.js';

/** A value that begins a line that looks like one of ours, and holds what a terminal, HTML or a chat would obey. */
export const AWKWARD =
  'a|b\nNothing needs a person.\r\v\f\u0085\u2028\u2029\x1b]0;x\x07\x9b31m\u202e\u2066 <b>`c` [d](http://e) *f* $g$ | h';

/** Characters that a terminal or a reader obeys instead of showing them; a line feed ends a line of ours. */
export const OBEYED = /(?!\n)[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u;

/** The facts with another name in place of a word, wherever it stands. */
export function renamed<Facts>(facts: Facts, word: string, name: string): Facts {
  if (typeof facts === 'string') return facts.replaceAll(word, name) as Facts;
  if (Array.isArray(facts)) return facts.map((each: unknown) => renamed(each, word, name)) as Facts;
  if (facts === null || typeof facts !== 'object' || facts instanceof Date) return facts;
  const fields = Object.entries(facts).map(([field, value]) => [
    renamed(field, word, name),
    renamed<unknown>(value, word, name),
  ]);
  return Object.fromEntries(fields) as Facts;
}

export const NOW = new Date('2026-03-02T06:00:00Z');
const LONG_AGO = new Date('2025-10-15T00:00:00Z');

/** A worker that works. */
export const PROCESS: Process = {
  id: 'a',
  command: 'worker',
  host: 'north',
  pid: 1,
  startedAt: LONG_AGO,
  seenAt: NOW,
  isAlive: true,
  stoppedSince: null,
  errorCode: null,
  errorMessage: null,
  configuration: null,
  fingerprints: null,
  configurationLoadedAt: null,
  configurationChangedAt: null,
  requestsPerSecond: null,
};

export const SCHEDULE: ScheduleFacts = {
  name: 'nightly',
  pattern: '0 2 * * *',
  timezone: 'Europe/Stockholm',
  registeredAt: new Date('2025-12-20T00:00:00Z'),
  lastDue: new Date('2026-03-02T01:00:00Z'),
  lastReconciled: null,
  nextDue: new Date('2026-03-03T01:00:00Z'),
  successDueAt: null,
  streams: ['rooms', 'courses'],
  waitMinutes: 0,
  waitsUntil: null,
  succeededAt: null,
};

/** The load of the mirror was three days old at the last night. */
export const LOAD: Situation['loads'][number] = {
  stream: 'rooms',
  loadedAt: new Date('2026-02-27T01:00:00Z'),
  olderThan: null,
  problem: 'too_old',
  message: null,
  holds: true,
  maxHours: 26,
  readAt: new Date('2026-03-02T01:00:00Z'),
  syncedLoadAt: null,
};

/** Facts that only metrics show, while nothing waits and no run has ended. */
export const QUIET_GAUGES = {
  backlog: [],
  inboxAge: { changes: 0, oldestSeconds: 0 },
  durations: [],
} satisfies Partial<GaugeFacts>;

/** A worker works, the last sync succeeded, and everything is in sync. */
export const QUIET: Situation = {
  now: NOW,
  whyReadOnly: null,
  configured: ['rooms', 'courses'],
  binding: {
    id: 1,
    stateId: 'state',
    baseUrl: 'https://service.example',
    organizationId: 'demo',
    region: 'EU_EES',
    boundAt: LONG_AGO,
    answeredAt: NOW,
    answer: '200',
    succeededAt: NOW,
  } as unknown as NonNullable<Situation['binding']>,
  nightly: null,
  schedules: [],
  hasOwnTimes: false,
  loads: [],
  succeededAt: new Date('2026-03-02T05:00:00Z'),
  begunAt: LONG_AGO,
  processes: [PROCESS],
  unfinished: [],
  runs: { underWay: [], latest: [] },
  streamStates: [],
  gates: [],
  freezes: [],
  exceptions: [],
  inbox: { streams: [], others: null, watermarks: [], reservations: null },
  drift: [],
  verifications: [],
  known: { hasRecords: true, isPlanned: true, underWay: [], held: 0, drifting: 0, due: [], restored: null },
  recordedStreams: ['rooms'],
  records: [],
  unsettled: 0,
  causes: [],
  badReadings: [],
  lostTriggers: [],
  inDoubt: { count: 0, latest: null },
  formerObjects: 0,
  orphanedClaims: { records: 0, until: null },
  discrepancies: [],
};

export const RUN: Run = {
  id: 12,
  kind: 'sync',
  lane: 'sync',
  streams: ['rooms'],
  status: 'running',
  startedBy: 'command',
  range: null,
  plan: {},
  counts: {},
  accepted: {},
  holds: {},
  requestedAt: new Date('2026-03-02T05:00:00Z'),
  startedAt: new Date('2026-03-02T05:00:01Z'),
  finishedAt: null,
  pausedAt: null,
  errorCode: null,
  errorMessage: null,
  configuration: null,
  fingerprints: null,
  planner: null,
} as unknown as Run;

/** A closed gate that nobody has answered. */
export const GATE: Gate = {
  runId: 12,
  stream: 'rooms',
  operation: 'retire',
  reason: 'limit',
  since: new Date('2026-03-01T01:00:00Z'),
  count: 40,
  digest: '40 1 1',
  facts: { accepted: 100 },
  samples: [],
  approval: null,
  rejectedAt: null,
  rejectedBy: null,
  firstKeys: ['R1'],
};

/** A stream that was synced whole an hour ago. */
export const STREAM: StreamFacts = {
  stream: 'rooms',
  fingerprint: 'a',
  plannedAt: new Date('2026-03-02T04:59:00Z'),
  syncedAt: new Date('2026-03-02T05:00:00Z'),
  dueSince: null,
  dueReason: null,
  attemptedAt: null,
  problem: null,
  cursor: null,
  cursorKey: null,
  cursorColumn: null,
  cursorType: null,
  cursorMovedAt: null,
  mirrorPassedAt: null,
  answered: 0,
  refused: 0,
  refusedCode: null,
  refusedMessage: null,
  refusalsAllowed: 0,
};

/** A record that was given up. */
export const CAUSE: Cause = {
  stream: 'rooms',
  status: 'dead',
  code: 'refused_400',
  message: 'the name is too long',
  messages: 1,
  records: 1,
  keys: ['R7'],
  inInbox: 0,
  isConfigured: true,
  waitingByStream: {},
  waiting: 0,
  depth: 0,
  matching: 1,
  since: new Date('2026-03-02T04:00:00Z'),
  attempts: 1,
  gate: null,
};
