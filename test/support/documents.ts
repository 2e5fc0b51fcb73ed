// Each document once, with a value wherever a text that others have written may stand in it.
import { actionsDocument } from '../../src/documents/actions.js';
import {
  bookingDocument,
  bookingsDocument,
  reconcileDocument,
  type KnownBooking,
} from '../../src/documents/bookings.js';
import type { Document } from '../../src/documents/document.js';
import { adoptDocument, driftDocument, verifyDocument } from '../../src/documents/drift.js';
import { failuresDocument } from '../../src/documents/failures.js';
import { recordDocument, unownedDocument, type KnownRecord } from '../../src/documents/record.js';
import { reportDocument } from '../../src/documents/report.js';
import { runDocument, runsDocument } from '../../src/documents/runs.js';
import { situationDocument } from '../../src/documents/situation.js';
import type { Cause } from '../../src/situation/causes.js';
import type { FailureInChain } from '../../src/situation/failures.js';
import type { ReportFacts } from '../../src/situation/report.js';
import type { RunFacts } from '../../src/situation/run-facts.js';
import type { History } from '../../src/situation/history.js';
import type { Situation } from '../../src/situation/situation.js';
import type { NotedAction } from '../../src/state/actions.js';
import type { ReservationRow } from '../../src/state/bookings/read-reservations.js';
import type { DriftRow } from '../../src/state/drift.js';
import type { Gate } from '../../src/state/gates/gates.js';
import type { Run } from '../../src/state/runs/read-runs.js';
import type { Stream } from '../../src/streams/stream.js';
import type { BookingExplained, RecordExplained } from '../../src/sync/operator/explain.js';
import { CAUSE, GATE, LOAD, NOW, PROCESS, QUIET, RUN } from './situations.js';

const WAITING = { waiting: 1, later: 0, inFlight: 0, oldestSeconds: 7200 };

const actions = (value: string): NotedAction[] => [
  { id: 1, at: NOW, by: value, via: 'page', action: 'retry', subject: value, runId: 12, reason: value },
];

const gates = (value: string): Gate[] => {
  const samples = [
    { key: value, externalId: value, changes: [{ field: value, old: [value], new: [value] }] },
  ];
  const refused = { records: 60, sent: 100, code: value, message: value };
  const all = { ...GATE, stream: value, operation: '*' } as const;
  return [
    { ...GATE, stream: value, firstKeys: [value], samples },
    { ...GATE, stream: value, rejectedAt: NOW, rejectedBy: value },
    { ...all, reason: 'refused', facts: { accepted: 100, refused } },
    { ...all, reason: 'forbidden', facts: { accepted: 100, message: value } },
    { ...all, reason: 'frozen', facts: { accepted: 100, message: value } },
  ];
};

const causes = (value: string): Cause[] => {
  const cause = { ...CAUSE, stream: value, code: value, message: value, keys: [value, value], records: 2 };
  return [
    { ...cause, waitingByStream: { [value]: 3 }, waiting: 3, depth: 1 },
    { ...cause, status: 'held', code: 'retire', gate: GATE },
    { ...cause, status: 'absent', code: null, message: null, isConfigured: false },
  ];
};

const keyOf = (value: string) => ({ stream: value, localKey: value });
const errorOf = (value: string) => ({ errorCode: value, errorMessage: value });

const chain = (value: string): FailureInChain['chain'] => ({
  via: [keyOf(value)],
  between: 1,
  end: { ...keyOf(value), status: 'dead', code: value, message: value, gate: null },
});

const failures = (value: string): FailureInChain[] => {
  const times = { runId: 12, updatedAt: NOW, since: NOW };
  const facts = {
    externalId: value,
    attempts: 2,
    waitsFor: keyOf(value),
    isInInbox: false,
    chain: chain(value),
  };
  return [{ ...keyOf(value), ...errorOf(value), ...times, ...facts, status: 'deferred' }];
};

const run = (value: string, changes: Partial<Run> = {}) =>
  ({
    ...RUN,
    streams: [value],
    plan: { [value]: { create: 3 } },
    counts: { [value]: { synced: 1, unchanged: 0, deferred: 0, failed: 1, dead: 1 } },
    range: { from: value, to: value, where: value },
    ...errorOf(value),
    ...changes,
  }) as Run;

const drift = (value: string, kind: DriftRow['kind'] = 'changed'): DriftRow => ({
  ...keyOf(value),
  externalId: value,
  kind,
  fields: { [value]: { here: [value], there: [value] } },
  seenAt: NOW,
});

const drifting = (value: string) => [drift(value), drift(value, 'extra'), drift(value, 'stored_otherwise')];

const booking = (value: string, changes: Partial<ReservationRow> = {}) =>
  ({
    key: value,
    externalId: value,
    destinationId: value,
    verdict: 'differs',
    differs: {
      objects: { here: [value], there: [] },
      fields: { here: { [value]: [value] }, there: { [value]: [] } },
      status: { here: [], there: [value] },
    },
    problem: null,
    beginHere: NOW,
    endHere: NOW,
    beginThere: NOW,
    endThere: NOW,
    seenAt: NOW,
    runId: 12,
    ...changes,
  }) as ReservationRow;

const bookings = (value: string) => [
  booking(value),
  booking(value, { verdict: 'unknown_here', differs: null, beginHere: null, endHere: null }),
];

const known = (value: string) =>
  ({
    key: value,
    known: booking(value),
    events: [{ key: value, from: null, to: 'differs', differs: null, at: NOW, runId: 12 }],
  }) as unknown as KnownBooking;

const fields = (value: string) => [{ fieldId: value, values: [value] }];
const object = (value: string) => ({
  id: value,
  extId: value,
  typeId: value,
  active: true,
  fields: fields(value),
});
const PERIOD = { begin: NOW.getTime(), end: NOW.getTime() };

const booked = (value: string) =>
  ({
    ...known(value),
    here: {
      ...PERIOD,
      key: value,
      externalId: value,
      isCancelled: false,
      references: [keyOf(value)],
      fields: fields(value),
    },
    reservations: [
      {
        ...PERIOD,
        id: '7',
        extId: value,
        status: [value],
        objects: [{ typeId: value, objectId: value }],
        fields: fields(value),
      },
    ],
    cancellations: [{ ...PERIOD, id: '8', reservationId: '7' }],
    requests: [{ asked: `reservations by ${value}`, results: 1 }],
  }) as unknown as BookingExplained;

const BATCH = { runId: 12, kind: 'sync', batchId: 4, operation: 'update', state: 'failed' };
const record = (value: string) =>
  ({
    stream: value,
    key: value,
    record: {
      status: 'deferred',
      externalId: value,
      rowExternalId: value,
      destinationId: value,
      syncedAt: NOW,
      objectHash: null,
      refusedHash: null,
      attempts: 2,
      runId: 12,
      ...errorOf(value),
      waitsFor: JSON.stringify([value, value]),
      inDoubt: true,
      checkAfter: NOW,
    },
    link: { externalId: value, linkedBy: 'match', fields: [value], linkedAt: NOW, assignsId: false },
    drift: drift(value),
    former: [{ externalId: value, there: object(value), isUndecided: true }],
    chain: chain(value),
    batches: [{ ...BATCH, errorCode: value, at: NOW.toISOString() }],
    writes: [],
    waiting: [{ stream: value, records: 2, since: NOW, example: value }],
    waitingChanges: 0,
  }) as unknown as KnownRecord;

const recordSides = (value: string) =>
  ({
    ...record(value),
    row: { [value]: value },
    object: object(value),
    problem: value,
    isWaiting: false,
    externalId: value,
    there: object(value),
    changes: [{ field: value, old: [value], new: [value] }],
    kept: [],
    isAccepted: false,
  }) as unknown as RecordExplained;

const FREEZE = { id: 1, exceptStreams: [], beginsAt: NOW, endsAt: NOW, isDeclared: false, isInForce: true };
const situation = (value: string): Situation => ({
  ...QUIET,
  configured: ['rooms'],
  binding: { ...QUIET.binding, organizationId: value, baseUrl: value } as Situation['binding'],
  loads: [{ ...LOAD, stream: value, problem: 'unreadable', message: value }] as Situation['loads'],
  processes: [{ ...PROCESS, host: value, stoppedSince: NOW, errorCode: value, errorMessage: value }],
  runs: { underWay: [{ run: run(value), ...UNDER_WAY }], latest: [run(value)] },
  gates: gates(value),
  freezes: [{ ...FREEZE, streams: [value], reason: value, frozenBy: value }],
  inbox: {
    ...QUIET.inbox,
    streams: [{ ...WAITING, stream: value }],
    watermarks: [{ stream: value, cursor: value, movedAt: NOW }] as Situation['inbox']['watermarks'],
  },
  drift: [{ stream: value, kind: 'changed', count: 1 }],
  records: [{ stream: value, status: 'dead', count: 2 }] as unknown as Situation['records'],
  unsettled: 2,
  causes: causes(value),
});

const UNDER_WAY = { progress: { done: 1, total: 3, batchesLeft: 1 } };

const report = (value: string) =>
  ({
    ...situation(value),
    period: { from: NOW, to: NOW, because: 'since' },
    run: null,
    listed: [run(value)],
    runCounts: [],
    streams: [],
    driftChanges: { found: 0, mended: 0 },
    bookings: [],
    verdictChanges: 0,
    actions: actions(value),
    requests: { requests: 0, throttled: 0, fastest: 0, fastestAt: null, perSecond: 20, allowed: 1 },
  }) as unknown as ReportFacts;

const runFacts = (value: string) =>
  ({
    ...UNDER_WAY,
    run: run(value),
    gates: gates(value),
    actions: actions(value),
    causes: causes(value),
    unsettled: 2,
    renamed: [{ stream: 'rooms', from: 'A', to: 'B' }],
    verdicts: undefined,
    drift: undefined,
    timeline: { from: NOW, seconds: 1, steps: 1, points: [{ planned: 3, done: 1 }] },
  }) as unknown as RunFacts;

const historyOf = (stream: string): History => {
  const steps = [{ at: NOW, requests: 3, throttled: 1, fastest: 2 }];
  const requests = { from: NOW, seconds: 60, steps, requests: 3, throttled: 1, fastest: 2, fastestAt: NOW };
  return {
    days: Array.from({ length: 30 }, (_, at) => `2026-02-${String((at % 28) + 1).padStart(2, '0')}`),
    nights: [{ stream, day: '2026-02-28', runId: 12, status: 'held', sent: 4 }],
    hour: requests,
    lastNight: requests,
  };
};

const RECONCILED = { problems: 0, events: 1, shifts: [], requests: 2 };
const VERIFIED = { drifting: 1, extra: 1, storedOtherwise: 1, kept: 0, notComparedAgain: 1, requests: 2 };
const TALLY = { compared: 2, waiting: 1, inDoubt: 0, changed: 1, extra: 1 };

/** By the name of the function that makes it. */
export const DOCUMENTS: Readonly<Record<string, (value: string) => Document>> = {
  actionsDocument: (value) => actionsDocument(actions(value)),
  adoptDocument: (value) =>
    adoptDocument(
      {
        runId: 12,
        streams: [{ stream: value, type: value, equal: 1, differing: 1, ambiguous: 1, unowned: 1 }],
        requests: 2,
      },
      3,
    ),
  bookingDocument: (value) => bookingDocument(known(value), 'UTC', booked(value)),
  bookingsDocument: (value) =>
    bookingsDocument([{ verdict: 'differs', count: 2 }], bookings(value), 'UTC', {
      monday: '2026-03-02',
      rows: bookings(value),
    }),
  driftDocument: (value) =>
    driftDocument(
      [{ stream: value, kind: 'changed', count: 1 }],
      [{ stream: value, verifiedAt: NOW, objects: 3, repairable: 1, extra: 1 }],
      drifting(value),
    ),
  failuresDocument: (value) =>
    failuresDocument(
      {
        stream: value,
        status: undefined,
        narrows: `--code ${value}`,
        total: 1,
        all: 2,
        known: { ...QUIET.known, held: 1, due: [{ stream: value, since: NOW, reason: 'frozen' }] },
        causes: causes(value),
        formerObjects: 1,
        renamed: [{ stream: value, from: value, to: value }],
        drift: 1,
        exceptions: [{ stream: value, count: 1 }],
      },
      { most: 10, now: NOW, records: failures(value) },
    ),
  reconcileDocument: (value) =>
    reconcileDocument(
      {
        runId: 12,
        read: 'window',
        from: PERIOD.begin,
        to: PERIOD.end,
        verdicts: { differs: 2 },
        discrepancies: bookings(value),
        ...RECONCILED,
      },
      { timeZone: 'UTC', seconds: 3, command: 'slotsync reconcile', zone: 'UTC' },
    ),
  recordDocument: (value) => recordDocument(record(value), recordSides(value)),
  reportDocument: (value) => reportDocument(report(value)),
  runDocument: (value) => runDocument(runFacts(value), NOW),
  runsDocument: (value) => runsDocument([run(value, { kind: value as Run['kind'] })]),
  situationDocument: (value) =>
    situationDocument({
      ...situation(value),
      configured: [value],
      quota: null,
      requestsPerSecond: 20,
      history: historyOf(value),
    }),
  unownedDocument: (value) =>
    unownedDocument({ name: value, objectTypes: new Set([value]) } as unknown as Stream, object(value)),
  verifyDocument: (value) =>
    verifyDocument(
      {
        runId: 12,
        streams: [{ stream: value, type: value, ...TALLY }],
        ...VERIFIED,
      },
      drifting(value),
      { seconds: 3, names: [value], extras: true },
    ),
};
