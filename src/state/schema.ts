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

export const RUN_KINDS = ['incremental', 'nightly', 'backfill', 'reconcile', 'verify'] as const;
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
    /** Per stream, why retirements wait for a person. */
    holds: jsonb('holds').$type<Record<string, string>>().notNull().default({}),
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
    /** The rows of these keys were gone when the run was planned. */
    retires: boolean('retires').notNull().default(false),
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

export const changes = slotsync.table(
  'changes',
  {
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    requestedAt: moment('requested_at').notNull().defaultNow(),
  },
  (table) => [primaryKey({ columns: [table.stream, table.localKey] })],
);

export const reservations = slotsync.table(
  'reservations',
  {
    /** Our key; for a booking known only there, the service's id behind `#`. */
    key: keyText('key').primaryKey(),
    externalId: text('external_id'),
    destinationId: big('destination_id'),
    verdict: text('verdict').notNull(),
    /** What differs: field to old and new. */
    differs: jsonb('differs').$type<Record<string, { here: unknown; there: unknown }>>(),
    beginHere: moment('begin_here'),
    endHere: moment('end_here'),
    beginThere: moment('begin_there'),
    endThere: moment('end_there'),
    seenAt: moment('seen_at').notNull(),
    runId: big('run_id'),
  },
  (table) => [index('reservations_verdict').on(table.verdict)],
);

export const cancellations = slotsync.table('cancellations', {
  destinationId: big('destination_id').primaryKey(),
  externalId: text('external_id'),
  /** Id of the reservation it cancels, at the service. */
  reservation: big('reservation'),
  cancelledAt: moment('cancelled_at'),
  begin: moment('begin'),
  end: moment('end'),
  seenAt: moment('seen_at').notNull().defaultNow(),
  runId: big('run_id'),
});

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
