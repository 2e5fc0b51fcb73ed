// The state, in the organization's own database: schema `slotsync`. Documented in
// docs/architecture.md and part of the interface; other programs may read it.
import { sql } from 'drizzle-orm';
import {
  bigint,
  boolean,
  check,
  customType,
  index,
  integer,
  jsonb,
  pgSchema,
  primaryKey,
  smallint,
  text,
  timestamp,
  uuid,
} from 'drizzle-orm/pg-core';

export const slotsync = pgSchema('slotsync');

/** Keys sort by their bytes, as the mirror's reading does: the merge of a plan depends on it. */
const keyText = customType<{ data: string }>({ dataType: () => 'text COLLATE "C"' });
const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const big = (name: string) => bigint(name, { mode: 'number' });
/** 64 bits of hash: never a number in JavaScript. */
const hash = (name: string) => bigint(name, { mode: 'bigint' });

export const RUN_KINDS = ['incremental', 'sync', 'backfill', 'reconcile', 'verify'] as const;
export type RunKind = (typeof RUN_KINDS)[number];
export const RUN_STATUSES = [
  'planning',
  'running',
  'held',
  'succeeded',
  'partial',
  'failed',
  'cancelled',
] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];
export const BATCH_STATES = ['planned', 'queued', 'held', 'done', 'failed', 'cancelled'] as const;
export type BatchState = (typeof BATCH_STATES)[number];
export const RECORD_STATUSES = ['pending', 'synced', 'retired', 'deferred', 'failed', 'dead'] as const;
export type RecordStatus = (typeof RECORD_STATUSES)[number];

/** What a limit is set for; each may be held on its own. */
export const LIMITED_OPERATIONS = ['create', 'update', 'retire'] as const;
export type LimitedOperation = (typeof LIMITED_OPERATIONS)[number];

/** What a reading says of one booking; sync/compare.ts gives it. */
export const VERDICTS = [
  'agrees',
  'differs',
  'missing_there',
  'cancelled_there',
  'cancelled_here',
  'agrees_cancelled',
  'unknown_here',
  'restored_there',
  'not_compared',
] as const;
export type Verdict = (typeof VERDICTS)[number];

/** What two sides of a booking say differently. */
export type Differences = Partial<
  Record<'begin' | 'end' | 'objects' | 'fields' | 'status', { here: unknown; there: unknown }>
>;

const oneOf = (column: string, values: readonly string[]) =>
  sql.raw(`${column} IN (${values.map((value) => `'${value}'`).join(', ')})`);

/** What a plan found in one stream. */
export interface PlanCounts {
  create: number;
  update: number;
  retire: number;
  unchanged: number;
  /** Records that were deferred, failed or left in doubt, and are looked at again. */
  retry: number;
  /** Given up earlier, and not changed since: not sent. */
  dead: number;
}

/** Which part of its streams a run covers; all of them without one. */
export interface RunRange {
  /** Keys of the run's one stream. */
  keys?: string[];
  /** On the cursor, as text: from this value on, and before that one. */
  from?: string;
  to?: string;
  /** A condition in SQL over the source's columns. */
  where?: string;
  /** Records sent at most. */
  limit?: number;
  /** Sends what is unchanged too. */
  force?: boolean;
}

/** Why an operation waits for a person. */
export interface Hold {
  /** Records it is about. */
  count: number;
  reason: string;
  /** False: no approval lets it go; the reason says what does. */
  approvable: boolean;
}
export type Holds = Record<string, Partial<Record<LimitedOperation, Hold>>>;

/** What became of records. */
export interface OutcomeCounts {
  synced: number;
  unchanged: number;
  deferred: number;
  failed: number;
  dead: number;
}

export const runs = slotsync.table(
  'runs',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    kind: text('kind').$type<RunKind>().notNull(),
    lane: text('lane').notNull(),
    streams: text('streams').array().notNull(),
    status: text('status').$type<RunStatus>().notNull(),
    /** Per stream, what the plan found. */
    plan: jsonb('plan').$type<Record<string, PlanCounts>>().notNull().default({}),
    /** Per stream, what became of its records. */
    counts: jsonb('counts').$type<Record<string, OutcomeCounts>>().notNull().default({}),
    /** Per stream and operation, why it waits for a person. */
    holds: jsonb('holds').$type<Holds>().notNull().default({}),
    range: jsonb('range').$type<RunRange>(),
    /** Nothing of it is sent until it is resumed. */
    pausedAt: moment('paused_at'),
    errorCode: text('error_code'),
    errorMessage: text('error_message'),
    requestedAt: moment('requested_at').notNull().defaultNow(),
    startedAt: moment('started_at'),
    finishedAt: moment('finished_at'),
  },
  (table) => [
    check('runs_kind', oneOf('kind', RUN_KINDS)),
    check('runs_status', oneOf('status', RUN_STATUSES)),
    index('runs_unfinished')
      .on(table.id)
      .where(sql`finished_at IS NULL`),
  ],
);

export const batches = slotsync.table(
  'batches',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    runId: big('run_id')
      .notNull()
      .references(() => runs.id, { onDelete: 'cascade' }),
    stream: text('stream').notNull(),
    /** Batches of a level are queued when those of all lower levels are finished. */
    level: smallint('level').notNull(),
    /** Null: whatever the rows ask for. `retire`: the rows were gone when the run was planned. */
    operation: text('operation').$type<LimitedOperation>(),
    keys: text('keys').array().notNull(),
    state: text('state').$type<BatchState>().notNull(),
    counts: jsonb('counts').$type<OutcomeCounts>(),
    errorCode: text('error_code'),
    errorMessage: text('error_message'),
    createdAt: moment('created_at').notNull().defaultNow(),
    finishedAt: moment('finished_at'),
  },
  (table) => [
    check('batches_state', oneOf('state', BATCH_STATES)),
    check('batches_operation', oneOf('operation', LIMITED_OPERATIONS)),
    index('batches_run').on(table.runId, table.state, table.level),
  ],
);

export const records = slotsync.table(
  'records',
  {
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    externalId: text('external_id'),
    destinationId: big('destination_id'),
    /** Hash of the row whose object was accepted last. */
    sourceHash: hash('source_hash'),
    /** Hash of the object that was accepted last; null: the service never accepted one. */
    objectHash: text('object_hash'),
    status: text('status').$type<RecordStatus>().notNull(),
    /** Hash of the row a dead record was given up with: only another row is sent again. */
    refusedHash: hash('refused_hash'),
    errorCode: text('error_code'),
    errorMessage: text('error_message'),
    /** The missing record a deferred one waits for: stream and key as a JSON list. */
    waitsFor: text('waits_for'),
    waitsSince: moment('waits_since'),
    /** Times it was sent or tried since it was last accepted. */
    attempts: integer('attempts').notNull().default(0),
    /** The service may hold something else than what was accepted last: an answer was lost, or a worker was. */
    inDoubt: boolean('in_doubt').notNull().default(false),
    /** When its row was first seen to be gone, where the stream waits before it retires. */
    goneSince: moment('gone_since'),
    /** Who is writing it just now; two batches with one key take turns. */
    claimedBy: text('claimed_by'),
    claimedUntil: moment('claimed_until'),
    runId: big('run_id'),
    syncedAt: moment('synced_at'),
    updatedAt: moment('updated_at').notNull().defaultNow(),
  },
  (table) => [
    primaryKey({ columns: [table.stream, table.localKey] }),
    check('records_status', oneOf('status', RECORD_STATUSES)),
    index('records_external_id').on(table.externalId),
    index('records_unsettled')
      .on(table.stream, table.status)
      .where(sql`status NOT IN ('synced', 'retired')`),
    index('records_waits_for')
      .on(table.waitsFor)
      .where(sql`waits_for IS NOT NULL`),
  ],
);

/**
 * The inbox: a key that may differ now. Rows are only ever added, by other programs' transactions too, so that nobody
 * waits for anybody; one key may stand here many times. They go when the run that took them has ended.
 */
export const changes = slotsync.table(
  'changes',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    requestedAt: moment('requested_at').notNull().defaultNow(),
    /** The run that looks at it. */
    runId: big('run_id'),
    /** After a run that could not: when it is looked at again. */
    notBefore: moment('not_before'),
  },
  (table) => [
    index('changes_waiting')
      .on(table.id)
      .where(sql`run_id IS NULL`),
    index('changes_taken')
      .on(table.runId)
      .where(sql`run_id IS NOT NULL`),
    index('changes_key').on(table.stream, table.localKey),
  ],
);

/** How far a stream was polled by its cursor: everything up to here is accepted. As text, at full precision. */
export const watermarks = slotsync.table('watermarks', {
  stream: text('stream').primaryKey(),
  cursor: text('cursor').notNull(),
  localKey: keyText('local_key').notNull(),
  movedAt: moment('moved_at').notNull().defaultNow(),
});

/** A person's word that so many held records of a stream may go. Used once, by the next plan that needs it. */
export const approvals = slotsync.table(
  'approvals',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    /** The run whose hold was approved, and the one that used it. */
    runId: big('run_id').notNull(),
    usedBy: big('used_by'),
    stream: text('stream').notNull(),
    operation: text('operation').$type<LimitedOperation>().notNull(),
    allowed: integer('allowed').notNull(),
    approvedAt: moment('approved_at').notNull().defaultNow(),
    expiresAt: moment('expires_at').notNull(),
  },
  (table) => [
    check('approvals_operation', oneOf('operation', LIMITED_OPERATIONS)),
    index('approvals_open')
      .on(table.stream, table.operation)
      .where(sql`used_by IS NULL`),
  ],
);

/** What is started by the clock, and which of its moments was started last. */
export const schedules = slotsync.table('schedules', {
  name: text('name').primaryKey(),
  pattern: text('pattern').notNull(),
  timezone: text('timezone').notNull(),
  registeredAt: moment('registered_at').notNull().defaultNow(),
  /** The moment of the schedule that was started last, or passed over. */
  lastDue: moment('last_due'),
});

/** One row a booking, as both sides were seen last. */
export const reservations = slotsync.table(
  'reservations',
  {
    /** Our key; for a booking known only there, the service's id behind `#`. */
    key: keyText('key').primaryKey(),
    externalId: text('external_id'),
    destinationId: big('destination_id'),
    verdict: text('verdict').$type<Verdict>().notNull(),
    /** What differs: field to here and there. */
    differs: jsonb('differs').$type<Differences>(),
    /** What is wrong with the booking here, whatever stands there. */
    problem: text('problem'),
    beginHere: moment('begin_here'),
    endHere: moment('end_here'),
    beginThere: moment('begin_there'),
    endThere: moment('end_there'),
    /** Objects and fields as each side has them; there the status as well. */
    here: jsonb('here'),
    there: jsonb('there'),
    seenAt: moment('seen_at').notNull(),
    runId: big('run_id'),
  },
  (table) => [
    check('reservations_verdict_known', oneOf('verdict', VERDICTS)),
    index('reservations_verdict').on(table.verdict),
    index('reservations_destination_id').on(table.destinationId),
    index('reservations_external_id').on(table.externalId),
  ],
);

/** What became of bookings: one row for each time that a verdict, or what differs, changed. */
export const reservationEvents = slotsync.table(
  'reservation_events',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    key: keyText('key').notNull(),
    /** Null: it was not known before. */
    fromVerdict: text('from_verdict').$type<Verdict>(),
    /** Null: it is on neither side any more. */
    toVerdict: text('to_verdict').$type<Verdict>(),
    differs: jsonb('differs').$type<Differences>(),
    at: moment('at').notNull().defaultNow(),
    runId: big('run_id'),
  },
  (table) => [
    index('reservation_events_key').on(table.key),
    index('reservation_events_run').on(table.runId),
    index('reservation_events_at').on(table.at),
  ],
);

export const cancellations = slotsync.table(
  'cancellations',
  {
    destinationId: big('destination_id').primaryKey(),
    externalId: text('external_id'),
    /** Id of the reservation it cancels, at the service. */
    reservation: big('reservation'),
    cancelledAt: moment('cancelled_at'),
    begin: moment('begin'),
    end: moment('end'),
    seenAt: moment('seen_at').notNull().defaultNow(),
    runId: big('run_id'),
  },
  (table) => [
    index('cancellations_reservation').on(table.reservation),
    index('cancellations_external_id').on(table.externalId),
  ],
);

/** One row: the service and organization this state belongs to. */
export const destination = slotsync.table(
  'destination',
  {
    singleRow: boolean('single_row').primaryKey().default(true),
    baseUrl: text('base_url').notNull(),
    organizationId: text('organization_id').notNull(),
    region: text('region').notNull(),
    /** Names this state; the queue is kept under it, so that two states on one Redis never mix. */
    stateId: uuid('state_id').notNull().defaultRandom(),
    boundAt: moment('bound_at').notNull().defaultNow(),
  },
  () => [check('destination_one_row', sql`single_row`)],
);
