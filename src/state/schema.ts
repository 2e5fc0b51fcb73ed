// The tables of the state, in the organization's own database: schema `slotsync`. docs/state-tables.md says what every
// column means; other programs may read them. Not here: `quota_limiters`, written by SQL functions alone, `migrations`, and
// the tables of locks.ts, which hold nothing.
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
  real,
  smallint,
  text,
  timestamp,
  uniqueIndex,
  uuid,
  type ExtraConfigColumn,
} from 'drizzle-orm/pg-core';
import type { WrittenField } from '../streams/destination-object.js';
import { MAX_ID_BYTES } from '../streams/local-key.js';

export const slotsync = pgSchema('slotsync');

/**
 * Keys sort by their bytes, as the mirror's reading does: the merge in a plan depends on it. External ids are plain text in
 * every table: a comparison between two collations takes no index.
 */
const keyText = customType<{ data: string }>({ dataType: () => 'text COLLATE "C"' });
const time = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const big = (name: string) => bigint(name, { mode: 'number' });
/** 64 bits of hash: never a number in JavaScript. */
const hash = (name: string) => bigint(name, { mode: 'bigint' });

export const RUN_KINDS = ['incremental', 'sync', 'backfill', 'reconcile', 'verify', 'repair'] as const;
export type RunKind = (typeof RUN_KINDS)[number];
/** Who asked for a run: the nightly schedule or a period, a command, or changes in the inbox. */
export const STARTED_BY = ['schedule', 'command', 'change'] as const;
export type StartedBy = (typeof STARTED_BY)[number];
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
export const BATCH_STATES = ['planned', 'queued', 'done', 'failed', 'cancelled'] as const;
export type BatchState = (typeof BATCH_STATES)[number];
export const RECORD_STATUSES = ['pending', 'synced', 'retired', 'deferred', 'failed', 'dead'] as const;
export type RecordStatus = (typeof RECORD_STATUSES)[number];

/**
 * The operations that a limit is set for; each may be held alone. `overwrite`: a create whose object is at the service already,
 * nobody's record, and would be changed. `repair`: drift that is sent again.
 */
export const LIMITED_OPERATIONS = ['create', 'update', 'retire', 'overwrite', 'repair'] as const;
export type LimitedOperation = (typeof LIMITED_OPERATIONS)[number];

/** A gate closes one operation, or `*`: all of them. */
export const GATED_OPERATIONS = [...LIMITED_OPERATIONS, '*'] as const;
export type GatedOperation = (typeof GATED_OPERATIONS)[number];

/**
 * Why a gate is closed. A plan closes the first six, `limit` to `owned_by_former_stream`. The others are met while a batch is
 * sent: too many objects refused, a freeze, a kind of request that the service forbids.
 */
export const GATE_REASONS = [
  'limit',
  'empty_source',
  'stale',
  'restored',
  'owned_by_former_stream',
  'refused',
  'frozen',
  'forbidden',
] as const;
export type GateReason = (typeof GATE_REASONS)[number];

/** Why a stream needs a whole sync. The first reason is kept until a whole plan has ended. */
export const DUE_REASONS = [
  'new',
  'schedule',
  'approved',
  'frozen',
  'fresh_load',
  'verified',
  'limited',
  'busy',
  'rows_gone',
  'cancelled',
  'failed',
] as const;
export type DueReason = (typeof DUE_REASONS)[number];

/** Why a record is sent again although nothing of it has changed. */
export const RESEND_REASONS = ['forced', 'repair', 'retry'] as const;
export type ResendReason = (typeof RESEND_REASONS)[number];

/** The actions of operators that others ask about later. */
export const OPERATOR_ACTIONS = [
  'approve',
  'reject',
  'pause',
  'resume',
  'cancel',
  'retry',
  'rename',
  'link',
  'unlink',
  'forget',
  'repair',
  'freeze',
  'unfreeze',
  'triggers',
  'rename_stream',
  'take',
  'except',
  'except_end',
] as const;
export type OperatorAction = (typeof OPERATOR_ACTIONS)[number];
/** The surface where an operator acted. */
export const ACTED_VIA = ['command', 'page'] as const;
export type ActedVia = (typeof ACTED_VIA)[number];

/** The verdict of a reconcile on a booking. */
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

/** The way in which a record got its object, where its template did not decide: a match, or a rename. */
export const LINKED_BY = ['match', 'rename'] as const;
export type LinkedBy = (typeof LINKED_BY)[number];

/**
 * The kinds of objects that a verify finds not to be as they should be. `extra`: an object of a type we sync that is nobody's
 * record, which is no drift. `stored_otherwise`: it was sent again, and still differs in the same values. `kept`: it differs only
 * in fields whose rules keep what stands at the service, which is no drift.
 */
export const DRIFT_KINDS = [
  'changed',
  'missing',
  'inactive',
  'wrong_type',
  'extra',
  'stored_otherwise',
  'kept',
] as const;
export type DriftKind = (typeof DRIFT_KINDS)[number];

/** The condition that an alert reports. `nightly_run` is no concern: it is opened when a nightly run starts, and over when the run ends. */
export const ALERT_CONDITIONS = [
  'run_failed',
  'run_partial',
  'run_held',
  'sending_stopped',
  'no_success',
  'drift',
  'inbox',
  'state_restored',
  'source_stale',
  'needs_person',
  'nightly_run',
] as const;
export type AlertCondition = (typeof ALERT_CONDITIONS)[number];
export const ALERT_EVENTS = ['opened', 'recovered'] as const;
export type AlertEvent = (typeof ALERT_EVENTS)[number];

/**
 * The problem of a load of the mirror. `older`: than the one that was read before. `future`: it has not been yet.
 * `unreadable`: the configuration's question has no answer that is a time.
 */
export const LOAD_PROBLEMS = ['too_old', 'older', 'future', 'unreadable'] as const;
export type LoadProblem = (typeof LOAD_PROBLEMS)[number];

/** The text of an alert: counts, streams, codes and commands, and never a key or a value. */
export interface AlertText {
  title: string;
  details: readonly string[];
  commands: readonly string[];
  /** Facts that are still to be known when it is over. */
  afterwards?: readonly string[];
  /** The run of a `nightly_run`, its name at a monitoring service, and, when it has ended, whether it ended badly. */
  run?: { id: number; uuid: string; isBad?: boolean };
}

/** By field, the values that differ: `here` by the mapping, `there` at the service. */
export type DriftFields = Record<string, { here: readonly string[]; there: readonly string[] }>;

/** The parts in which the two sides of a booking differ: `here` in the mirror, `there` at the service. */
export type Differences = Partial<
  Record<'begin' | 'end' | 'objects' | 'fields' | 'status', { here: unknown; there: unknown }>
>;

/** The check of an enumerated column; it is named after its table and column. */
const oneOf = (table: string, column: string, values: readonly string[], name = `${table}_${column}`) =>
  check(name, sql.raw(`${column} IN (${values.map((value) => `'${value}'`).join(', ')})`));
/** An index of those rows alone that fulfil a condition. */
const partialIndex = (name: string, condition: string, ...on: [ExtraConfigColumn, ...ExtraConfigColumn[]]) =>
  index(name)
    .on(...on)
    .where(sql.raw(condition));

/** The counts of a plan in one stream. */
export interface PlanCounts {
  create: number;
  update: number;
  retire: number;
  unchanged: number;
  /** Records that were deferred, failed or in doubt, and are tried again. */
  retry: number;
  /** Dead, and their rows have not changed since: not sent. */
  dead: number;
  /** Rows that only changed their key: neither created nor retired. Runs of before have none. */
  moved?: number;
  /** In a repair: objects that drift, and are checked and sent again. */
  repair?: number;
  /**
   * When records that were never accepted meet objects that are nobody's record: how many meet none, an equal one, and one
   * that would be changed.
   */
  new?: number;
  equal?: number;
  overwrite?: number;
  /** Creates about which the service was not asked: whatever they meet, they are not held. */
  unasked?: number;
  /** Creates and updates that the declaration of the stream leaves out. */
  left_out?: number;
  /** Records that differ and that exceptions leave as they are. */
  excepted?: number;
  /** It was planned over a load of the mirror with this problem. */
  staleLoad?: LoadProblem;
  /** Records in its batches, held and refused ones included. The run has to end with an outcome of each. */
  inBatches?: number;
}

/** The part of its streams that a run covers; all of them without one. */
export interface RunRange {
  /** Keys of the run's one stream. */
  keys?: string[];
  /** Values of the cursor, as text: from this one on, and before that one. */
  from?: string;
  to?: string;
  /** A condition in SQL over the source's columns. */
  where?: string;
  /** Records sent at most. */
  limit?: number;
  /** Sends what is unchanged too. */
  force?: boolean;
  /** In a repair: only objects that this verify has seen, since it began (ISO time). */
  verified?: number;
  verifiedSince?: string;
  /** In a verify: so many records of each stream, chosen at random. */
  sample?: number;
  /** In a verify: objects that are nobody's record count as drift. */
  extras?: boolean;
  /** In a verify: makes records of objects whose rows have none. */
  adopt?: boolean;
}

/** Numbers and names from which the sentence about a closed gate is made. */
export interface GateFacts {
  /** Records the service is believed to hold; of `overwrite`, those that the plan would create. */
  accepted: number;
  /** Other records of which other runs did the same within a day. */
  earlier?: number;
  /** The limit that is exceeded. */
  limit?: { count: number; percent: number };
  /** Records that the gate held before: the plan of single keys is weighed together with them. */
  held?: number;
  /** The number that an approval allows, which did not suffice. `isOther`: it is for exactly the keys that were held, and these are others. */
  approval?: { allowed: number; isOther: boolean };
  /** The approval stands, and is not used yet: creates or updates of the stream are not sent. */
  waitsForWrites?: true;
  /** The mirror is another one than before. */
  mirrorChange?: string;
  /** The load of the mirror has a problem. */
  load?: LoadFacts;
  /** Only of a repair: the objects that drift. */
  drift?: DriftSummary;
  /** Streams that left the configuration and own the objects, with the number of their objects. */
  formerStreams?: Record<string, number>;
  /** Only of `refused`: the number of objects that the service refused, and one of its reasons. */
  refused?: { records: number; sent: number; code: string; message: string };
  /** Only of a gate of all operations: records held by operation. */
  byOperation?: Partial<Record<LimitedOperation, number>>;
  /** Only of `frozen` and `forbidden`: the reason of the freeze, or the message of the service. */
  message?: string;
}

/** The problem of a load as numbers; times are as they were when it was read. */
export interface LoadFacts {
  problem: LoadProblem;
  /** Negative: it is to come. Null: it could not be read. */
  ageSeconds: number | null;
  maxHours: number;
  /** How much older it is than the one that was read before. */
  olderSeconds?: number;
  /** Why it cannot be read. */
  message?: string;
}

/** The number of objects that drift, by the way they differ. */
export interface DriftSummary {
  total: number;
  missing: number;
  inactive: number;
  changed: number;
  /** The field in which all that are changed differ; null: no single one. */
  commonField: string | null;
}

/** A gate that a run found closed, as the history of the run keeps it. The gate itself may have opened since. */
export interface Hold {
  operation: GatedOperation;
  reason: GateReason;
  /** Records held. */
  count: number;
  facts: GateFacts;
  /** With `overwrite`: some of the records, and what would be changed. */
  samples?: HeldSample[];
  /** An operator had rejected exactly these records before. */
  isRejected?: true;
}

/** A change that a write would make at the service: the values it holds, and those it would hold. */
export interface HeldSample {
  key: string;
  externalId: string;
  changes: { field: string; old: readonly string[]; new: readonly string[] }[];
}
/** By stream and `nameOfGate`. */
export type Holds = Record<string, Record<string, Hold>>;

/** A fault of a stream as a whole, whatever its records say. */
export interface StreamProblem {
  /** `failed`: it could not be read or planned, or nothing of its last whole run was accepted. */
  status: 'failed' | 'partial';
  code: string | null;
  message: string | null;
  /** ISO time. */
  since: string;
  runId: number | null;
  runKind: RunKind | null;
  /** Only a whole run ends it. */
  isWhole: boolean;
  /** Records that the run left failed or dead. */
  failed: number;
  dead: number;
}

/** Records by outcome. */
export type OutcomeCounts = Record<'synced' | 'unchanged' | 'deferred' | 'failed' | 'dead', number>;

/** Writes that the service accepted, by what they were: of `synced` records. `create`: the record's first one. */
export type AcceptedCounts = Record<'create' | 'update' | 'retire', number>;

export const runs = slotsync.table(
  'runs',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    kind: text('kind').$type<RunKind>().notNull(),
    lane: text('lane').notNull(),
    startedBy: text('started_by').$type<StartedBy>().notNull(),
    /** The streams it covers; none for a reconcile, which covers bookings. */
    streams: text('streams').array().notNull(),
    status: text('status').$type<RunStatus>().notNull(),
    /** Per stream, what the plan found. */
    plan: jsonb('plan').$type<Record<string, PlanCounts>>().notNull().default({}),
    /** Per stream, records by outcome; written when the run ends. */
    counts: jsonb('counts').$type<Record<string, OutcomeCounts>>().notNull().default({}),
    /** Per stream, what the service accepted; written when the run ends. Null: a run of before. */
    accepted: jsonb('accepted').$type<Record<string, AcceptedCounts>>(),
    /** Per stream, what its plan and its batches found held. For display only. */
    holds: jsonb('holds').$type<Holds>().notNull().default({}),
    /** Null: its streams as a whole. */
    range: jsonb('range').$type<RunRange>(),
    /** Paused since; nothing of it is sent until it is resumed. */
    pausedAt: time('paused_at'),
    errorCode: text('error_code'),
    errorMessage: text('error_message'),
    requestedAt: time('requested_at').notNull().defaultNow(),
    startedAt: time('started_at'),
    finishedAt: time('finished_at'),
    /** The token of the process that plans it: only that one writes its batches. */
    planner: text('planner'),
    /** Fingerprint of the configuration whose processes work it. Null: it only reads, or a former version started it. */
    configuration: text('configuration'),
    /** Per stream, the fingerprint of its declaration when the run was started. */
    fingerprints: jsonb('fingerprints').$type<Record<string, string>>(),
  },
  (table) => [
    oneOf('runs', 'kind', RUN_KINDS),
    oneOf('runs', 'started_by', STARTED_BY),
    oneOf('runs', 'status', RUN_STATUSES),
    partialIndex('runs_unfinished', 'finished_at IS NULL', table.id),
    partialIndex('runs_not_succeeded', "status <> 'succeeded'", table.id),
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
    /** The batches of a level are queued when those of all lower levels are finished. */
    level: smallint('level').notNull(),
    /** The operation whose limit counts its records. Null: no limit does, and the rows say what is sent. */
    operation: text('operation').$type<LimitedOperation>(),
    /** Does not count towards later limits: it was approved, released before, or is part of the first filling. */
    exempt: boolean('exempt').notNull().default(false),
    /** While it is under way, those without an outcome: keys that are settled earlier get a finished batch of their own. */
    keys: text('keys').array().notNull(),
    state: text('state').$type<BatchState>().notNull(),
    counts: jsonb('counts').$type<OutcomeCounts>(),
    /** Writes of it that the service accepted; null: none, or a batch of before. */
    accepted: jsonb('accepted').$type<AcceptedCounts>(),
    errorCode: text('error_code'),
    errorMessage: text('error_message'),
    createdAt: time('created_at').notNull().defaultNow(),
    finishedAt: time('finished_at'),
  },
  (table) => [
    oneOf('batches', 'state', BATCH_STATES),
    oneOf('batches', 'operation', LIMITED_OPERATIONS),
    index('batches_run').on(table.runId, table.state, table.level),
    partialIndex('batches_unsent', "state IN ('planned', 'queued')", table.stream, table.operation),
  ],
);

/**
 * A key: the outcome of its latest attempt, and, of the object that it owns, what the service accepted last. The facts of
 * an object (external id, number, hashes, doubt, next look) stand in the one record that owns it, and pass on together.
 */
export const records = slotsync.table(
  'records',
  {
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    /** The object that it owns; null: none. No two records own one object. */
    externalId: text('external_id'),
    /** Its row's external id, where that is not the object that it owns: another record owns it, or nothing was sent yet. */
    rowExternalId: text('row_external_id'),
    /** The key of the record whose external id changed, since when no row has the external id of this object. */
    formerKey: keyText('former_key'),
    destinationId: text('destination_id'),
    /** Hash of the row whose object was accepted last. */
    sourceHash: hash('source_hash'),
    /** Hash of the object that was accepted last; null: the service never accepted one; empty: not relied on. */
    objectHash: text('object_hash'),
    /**
     * Tokens of the values that were accepted last, 8 characters for each field whose rule compares with them, and wishes that the
     * mirror win once; null: none. streams/field-rules.ts makes and reads them.
     */
    acceptedFields: text('accepted_fields'),
    status: text('status').$type<RecordStatus>().notNull(),
    /**
     * Hash of the row that was refused. Of a dead record: only a row with another hash is sent again. Of a failed record: the service
     * refused it while it accepted nothing, or contradicted it, and it is looked at once more.
     */
    refusedHash: hash('refused_hash'),
    errorCode: text('error_code'),
    errorMessage: text('error_message'),
    /** The missing record a deferred one waits for: stream and key as a JSON list. */
    waitsFor: text('waits_for'),
    waitsSince: time('waits_since'),
    /** Attempts since it was last accepted. */
    attempts: integer('attempts').notNull().default(0),
    /** The service may hold something else than was accepted last: an answer or a worker was lost. */
    inDoubt: boolean('in_doubt').notNull().default(false),
    /** Until then a write whose answer was lost may still be carried out; after it the object is looked at once more. */
    checkAfter: time('check_after'),
    /** When its row was first missing; null again once its object is retired. */
    goneSince: time('gone_since'),
    /** The time in the column of `graceDays`, of the row that was accepted last; null: none is configured, or the row has none. */
    endsAt: time('ends_at'),
    /** Before its row was first missing, when a whole plan last ended that found it. */
    thereUntil: time('there_until'),
    /** When its row was first seen: a batch was to send it, or a verify has adopted it. */
    firstSeenAt: time('first_seen_at').notNull().defaultNow(),
    /** The key of a row that was new when its own was found missing, and had the same values; null: none had. */
    renamedTo: keyText('renamed_to'),
    /** The batch that may write it now; null: none. */
    claimedBy: text('claimed_by'),
    claimedUntil: time('claimed_until'),
    runId: big('run_id'),
    /** The wish to send it again although nothing changed; null: none. The acceptance of the record clears it. */
    resend: text('resend').$type<ResendReason>(),
    resendSince: time('resend_since'),
    /** The run whose plan made the wish; null: a retry of an operator. */
    resendRun: big('resend_run'),
    /** The operation that its last acceptance counted as; null: it counted as none. Limits count each key once by it. */
    countedAs: text('counted_as').$type<LimitedOperation>(),
    syncedAt: time('synced_at'),
    updatedAt: time('updated_at').notNull().defaultNow(),
  },
  (table) => [
    primaryKey({ columns: [table.stream, table.localKey] }),
    oneOf('records', 'status', RECORD_STATUSES),
    oneOf('records', 'resend', RESEND_REASONS),
    oneOf('records', 'counted_as', LIMITED_OPERATIONS),
    uniqueIndex('records_external_id').on(table.externalId),
    index('records_destination_id').on(table.destinationId),
    partialIndex('records_row_external_id', 'row_external_id IS NOT NULL', table.rowExternalId),
    partialIndex('records_unsettled', "status NOT IN ('synced', 'retired')", table.stream, table.status),
    partialIndex('records_waits_for', 'waits_for IS NOT NULL', table.waitsFor),
    partialIndex('records_in_doubt', 'in_doubt', table.stream),
    partialIndex('records_resend', 'resend IS NOT NULL', table.stream),
    partialIndex('records_check_after', 'check_after IS NOT NULL', table.checkAfter),
    partialIndex('records_renamed_to', 'renamed_to IS NOT NULL', table.stream, table.renamedTo),
    partialIndex('records_former_key', 'former_key IS NOT NULL', table.stream, table.formerKey),
  ],
);

/**
 * The object that a record owns, where its template does not say. A link wins over the template and outlives the
 * record.
 */
export const links = slotsync.table(
  'links',
  {
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    /** The object's external id; one that it is still to be given when `assigns_id`. */
    externalId: text('external_id').notNull(),
    /** The service's number of the object when it was linked. */
    destinationId: text('destination_id'),
    /** The object has no external id yet: the first write names its number and assigns one. */
    assignsId: boolean('assigns_id').notNull().default(false),
    linkedBy: text('linked_by').$type<LinkedBy>().notNull(),
    /** The fields that named the object; null: an operator did. */
    fields: text('fields').array(),
    linkedAt: time('linked_at').notNull().defaultNow(),
  },
  (table) => [
    primaryKey({ columns: [table.stream, table.localKey] }),
    oneOf('links', 'linked_by', LINKED_BY),
    uniqueIndex('links_external_id').on(table.externalId),
    uniqueIndex('links_destination_id').on(table.destinationId),
  ],
);

/** An object that is not as it should be at the service. The row is deleted when that is corrected. */
export const drift = slotsync.table(
  'drift',
  {
    stream: text('stream').notNull(),
    /** Our key; for an object that is nobody's record, `#` and the service's number. */
    localKey: keyText('local_key').notNull(),
    externalId: text('external_id'),
    kind: text('kind').$type<DriftKind>().notNull(),
    /** With `changed`, `inactive` and `stored_otherwise`. */
    fields: jsonb('fields').$type<DriftFields>(),
    /** When the service was seen to hold it so. */
    seenAt: time('seen_at').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.stream, table.localKey] }),
    oneOf('drift', 'kind', DRIFT_KINDS),
    index('drift_external_id').on(table.externalId),
  ],
);

/** The history of drift: one row for each change of what is said of an object. */
export const driftEvents = slotsync.table(
  'drift_events',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    externalId: text('external_id'),
    /** Null: it was as it should be. */
    fromKind: text('from_kind').$type<DriftKind>(),
    /** Null: it is as it should be. */
    toKind: text('to_kind').$type<DriftKind>(),
    /** As in `drift`; where it is as it should be, what differed until it was written. */
    fields: jsonb('fields').$type<DriftFields>(),
    at: time('at').notNull().defaultNow(),
    runId: big('run_id'),
  },
  (table) => [
    index('drift_events_key').on(table.stream, table.localKey),
    index('drift_events_at').on(table.at),
  ],
);

/** When each stream was last read back from the service as a whole. */
export const verifications = slotsync.table('verifications', {
  stream: text('stream').primaryKey(),
  /** When the last whole pass over its type began. */
  verifiedAt: time('verified_at').notNull(),
  /** Objects of its records that were compared then. */
  objects: big('objects').notNull(),
  runId: big('run_id'),
});

/** That everything the state held of a key was deleted at an operator's command. The key itself is not kept. */
export const removals = slotsync.table('removals', {
  id: big('id').primaryKey().generatedAlwaysAsIdentity(),
  stream: text('stream').notNull(),
  /** SHA-256 of the stream, a line feed and the key, in hexadecimal. */
  keyHash: text('key_hash').notNull(),
  removedAt: time('removed_at').notNull().defaultNow(),
  /** Rows deleted, by table. */
  deleted: jsonb('deleted').$type<Record<string, number>>().notNull(),
});

/**
 * The right to write an object whose external id does not follow from the key of its record alone: then records of
 * several keys, streams or runs may have its external id. It has a row while a batch has it.
 */
export const objectClaims = slotsync.table('object_claims', {
  externalId: text('external_id').primaryKey(),
  claimedBy: text('claimed_by').notNull(),
  claimedUntil: time('claimed_until').notNull(),
});

/**
 * The inbox: a key that may differ now. Programs only add rows, so that no writer waits for another; one key may have
 * many rows. They are deleted when the run that took them has ended.
 */
export const changes = slotsync.table(
  'changes',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    requestedAt: time('requested_at').notNull().defaultNow(),
    /** The incremental run that took it; null: none yet. */
    runId: big('run_id'),
    /** An unfinished run that has taken an earlier row of the key: this row is not taken before that run has ended. */
    afterRun: big('after_run'),
    /** Set when its run failed: it is not taken again before. */
    notBefore: time('not_before'),
  },
  (table) => [
    partialIndex('changes_waiting', 'run_id IS NULL AND after_run IS NULL', table.id),
    partialIndex('changes_taken', 'run_id IS NOT NULL', table.runId),
    partialIndex('changes_after', 'after_run IS NOT NULL', table.afterRun),
    index('changes_key').on(table.stream, table.localKey, table.runId),
    // Other programs write here.
    check(
      'changes_size',
      sql.raw(`octet_length(stream) <= ${MAX_ID_BYTES} AND octet_length(local_key) <= ${MAX_ID_BYTES}`),
    ),
    check('changes_times', sql`isfinite(requested_at) AND isfinite(not_before)`),
  ],
);

/** A stream that the state knows, in the configuration or not. Whoever asks whether it was synced whole, or is due, reads this row. */
export const streams = slotsync.table(
  'streams',
  {
    stream: text('stream').primaryKey(),
    /** That of the declaration with which the stream was last planned whole. */
    fingerprint: text('fingerprint'),
    /** When a plan last read all of it. */
    plannedAt: time('planned_at'),
    /** When a whole sync of it last ended without a failed record. */
    syncedAt: time('synced_at'),
    /** Needs a whole sync since then; null: it does not. */
    dueSince: time('due_since'),
    dueReason: text('due_reason').$type<DueReason>(),
    /** When a whole sync of it was last begun, whatever became of that. */
    attemptedAt: time('attempted_at'),
    problem: jsonb('problem').$type<StreamProblem>(),
    /** Every row up to this position of the cursor is settled. Text, at full precision; null: it was never polled. */
    cursor: text('cursor'),
    cursorKey: keyText('cursor_key'),
    /** The column and the type that the position was read of. */
    cursorColumn: text('cursor_column'),
    cursorType: text('cursor_type'),
    cursorMovedAt: time('cursor_moved_at'),
    /** A whole plan since this time found nothing to hold although the mirror is another database than before. */
    mirrorPassedAt: time('mirror_passed_at'),
    /** Objects that the service answered and refused since the last whole plan, with the latest reason. */
    answered: integer('answered').notNull().default(0),
    refused: integer('refused').notNull().default(0),
    refusedCode: text('refused_code'),
    refusedMessage: text('refused_message'),
    /** Refusals that an approval allows until the next whole plan. */
    refusalsAllowed: integer('refusals_allowed').notNull().default(0),
  },
  (table) => [
    oneOf('streams', 'due_reason', DUE_REASONS),
    partialIndex('streams_due', 'due_since IS NOT NULL', table.dueSince),
  ],
);

/**
 * A reason why something of a stream is not sent now, and an operator's answer to it. The row is there while it keeps a key
 * back.
 */
export const gates = slotsync.table(
  'gates',
  {
    stream: text('stream').notNull(),
    operation: text('operation').$type<GatedOperation>().notNull(),
    reason: text('reason').$type<GateReason>().notNull(),
    since: time('since').notNull().defaultNow(),
    /** The run that closed it, or the last whole sync that met it. An operator names the gate by it; the run may be deleted. */
    runId: big('run_id').notNull(),
    /** Keys that it keeps back, and their digest. */
    count: integer('count').notNull(),
    digest: text('digest').notNull(),
    facts: jsonb('facts').$type<GateFacts>().notNull(),
    samples: jsonb('samples').$type<HeldSample[]>().notNull().default([]),
    /** How many an approval allows; null: it is not approved. */
    allowed: integer('allowed'),
    /** The approval allows exactly the keys with this digest; null: any keys. */
    allowedDigest: text('allowed_digest'),
    approvedAt: time('approved_at'),
    approvedBy: text('approved_by'),
    /** The run that the approval started. */
    approvedRun: big('approved_run'),
    expiresAt: time('expires_at'),
    /** When an operator rejected these keys; null: nobody did. */
    rejectedAt: time('rejected_at'),
    rejectedBy: text('rejected_by'),
    /** The reason that the operator gave for the approval or the rejection. */
    answerReason: text('answer_reason'),
  },
  (table) => [
    primaryKey({ columns: [table.stream, table.operation, table.reason] }),
    oneOf('gates', 'operation', GATED_OPERATIONS),
    oneOf('gates', 'reason', GATE_REASONS),
    index('gates_run').on(table.runId),
  ],
);

/** A key that a gate keeps back. A whole plan replaces the rows of its streams, a partial plan those of its own keys. */
export const held = slotsync.table(
  'held',
  {
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    /** The operation that would be sent. Null: no limit counts it, and its row says what is sent. */
    operation: text('operation').$type<LimitedOperation>(),
    /** The gate: its operation and its reason. */
    gate: text('gate').$type<GatedOperation>().notNull(),
    reason: text('reason').$type<GateReason>().notNull(),
    since: time('since').notNull().defaultNow(),
    /** When a plan last found it so. */
    plannedAt: time('planned_at').notNull().defaultNow(),
  },
  (table) => [
    primaryKey({ columns: [table.stream, table.localKey] }),
    oneOf('held', 'operation', LIMITED_OPERATIONS),
  ],
);

/**
 * Records that the service accepted, by the hour in which it did. Limits are weighed against the last 23 hours.
 * `unasked`: creates that a plan sent without asking the service what they meet.
 */
export const sent = slotsync.table(
  'sent',
  {
    stream: text('stream').notNull(),
    operation: text('operation').$type<LimitedOperation | 'unasked'>().notNull(),
    hour: time('hour').notNull(),
    records: integer('records').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.stream, table.operation, table.hour] }),
    oneOf('sent', 'operation', [...LIMITED_OPERATIONS, 'unasked']),
  ],
);

/** A write that the service accepted. There may be 20 000 in a second, so a row is short, and `history_kinds` has what many have in common. */
export const history = slotsync.table(
  'history',
  {
    at: time('at').notNull(),
    /** The type lasts for one run a second during 68 years. */
    runId: integer('run_id').notNull(),
    kindId: integer('kind_id').notNull(),
    localKey: keyText('local_key').notNull(),
    /** Only with `history: 'values'`. */
    fieldValues: jsonb('field_values').$type<WrittenField[]>(),
  },
  (table) => [
    index('history_local_key').on(table.localKey),
    index('history_at').using('brin', table.at),
    partialIndex('history_values', 'field_values IS NOT NULL', table.at),
  ],
);

/** A kind of writes. Rows may be equal: with a unique index, one of two batches that add a kind would wait for the other. */
export const historyKinds = slotsync.table(
  'history_kinds',
  {
    id: integer('id').primaryKey().generatedAlwaysAsIdentity(),
    stream: text('stream').notNull(),
    operation: text('operation').$type<keyof AcceptedCounts>().notNull(),
    startedBy: text('started_by').$type<StartedBy>().notNull(),
    /** Names of the fields that were written. */
    fields: text('fields').array().notNull(),
  },
  // A hash, because a list of many names is too long for other indexes.
  (table) => [
    oneOf('history_kinds', 'operation', ['create', 'update', 'retire']),
    oneOf('history_kinds', 'started_by', STARTED_BY),
    index('history_kinds_fields').using('hash', table.fields),
  ],
);

/** An action of an operator, and its reason. Nothing refers to it, and it is kept longer than what it is about. */
export const actions = slotsync.table(
  'actions',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    at: time('at').notNull().defaultNow(),
    /** The operating system's user, or on the page whom a trusted proxy names; null: nobody was named. */
    by: text('by'),
    via: text('via').$type<ActedVia>().notNull(),
    action: text('action').$type<OperatorAction>().notNull(),
    /** The object of the action, beside its run: streams, numbers and keys, for people. */
    subject: text('subject'),
    runId: big('run_id'),
    /** As it was given; null: it was not. */
    reason: text('reason'),
  },
  (table) => [
    oneOf('actions', 'action', OPERATOR_ACTIONS),
    oneOf('actions', 'via', ACTED_VIA),
    index('actions_at').on(table.at),
    index('actions_run').on(table.runId),
  ],
);

/**
 * A time in which nothing of its streams is written. Several may apply to one stream. Freezes of the configuration are rows
 * too, so that a process which has loaded another configuration obeys them.
 */
export const freezes = slotsync.table('freezes', {
  id: big('id').primaryKey().generatedAlwaysAsIdentity(),
  /** Null: all streams, except those of `exceptStreams`. */
  streams: text('streams').array(),
  exceptStreams: text('except_streams').array().notNull().default([]),
  beginsAt: time('begins_at').notNull().defaultNow(),
  endsAt: time('ends_at').notNull(),
  reason: text('reason').notNull(),
  /** The operator; null: nobody was named, or the configuration declares it. */
  frozenBy: text('frozen_by'),
  isDeclared: boolean('is_declared').notNull().default(false),
});

/** A record that is left as it is, because somebody administers its object by hand. */
export const exceptions = slotsync.table(
  'exceptions',
  {
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    since: time('since').notNull().defaultNow(),
    /** Null: until an operator ends it. */
    until: time('until'),
    reason: text('reason').notNull(),
    /** The operator; null: nobody was named. */
    by: text('by'),
  },
  (table) => [primaryKey({ columns: [table.stream, table.localKey] })],
);

/**
 * A process that works the queue: a worker, or a command until its run has ended. It renews its row while it lives and
 * deletes it when it stops, so a row that is not renewed is of a process that was killed or is cut off.
 */
export const processes = slotsync.table('processes', {
  /** Claims begin with it: `records.claimed_by`. */
  id: text('id').primaryKey(),
  /** `worker`, or the command. */
  command: text('command').notNull(),
  host: text('host').notNull(),
  pid: integer('pid').notNull(),
  startedAt: time('started_at').notNull().defaultNow(),
  seenAt: time('seen_at').notNull().defaultNow(),
  /** It sends nothing since then, because of the error beside it; null: it sends. */
  stoppedSince: time('stopped_since'),
  errorCode: text('error_code'),
  errorMessage: text('error_message'),
  /** Its `API_REQUESTS_PER_SECOND`. The least of all processes counts. */
  requestsPerSecond: integer('requests_per_second'),
  /** Fingerprint of its configuration, and of each stream. Null: a process of a former version. */
  configuration: text('configuration'),
  fingerprints: jsonb('fingerprints').$type<Record<string, string>>(),
  configurationLoadedAt: time('configuration_loaded_at'),
  /** Its files differ since then from what was loaded; null: they do not. */
  configurationChangedAt: time('configuration_changed_at'),
});

/** Requests of all processes by the second in which they were sent, of the last days. A second without any has no row. */
export const requestSeconds = slotsync.table('request_seconds', {
  second: time('second').primaryKey(),
  requests: integer('requests').notNull(),
  /** Requests among them that were refused with 429. */
  throttled: integer('throttled').notNull().default(0),
});

/** A cause that is reported, from when it was first seen until it was over. */
export const alerts = slotsync.table(
  'alerts',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    /** Names the cause; at most one alert of it is open. */
    cause: text('cause').notNull(),
    condition: text('condition').$type<AlertCondition>().notNull(),
    /** As it was when it opened. */
    message: jsonb('message').$type<AlertText>().notNull(),
    openedAt: time('opened_at').notNull().defaultNow(),
    /** When it was first seen without its cause; null: the cause was there when it was looked at last. */
    goneSince: time('gone_since'),
    /** Null: it is open. */
    recoveredAt: time('recovered_at'),
  },
  (table) => [
    oneOf('alerts', 'condition', ALERT_CONDITIONS),
    uniqueIndex('alerts_open')
      .on(table.cause)
      .where(sql`recovered_at IS NULL`),
  ],
);

/** A message about an alert to one channel: sent, or to be tried. */
export const alertMessages = slotsync.table(
  'alert_messages',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    alertId: big('alert_id')
      .notNull()
      .references(() => alerts.id, { onDelete: 'cascade' }),
    channel: text('channel').notNull(),
    event: text('event').$type<AlertEvent>().notNull(),
    createdAt: time('created_at').notNull().defaultNow(),
    attempts: integer('attempts').notNull().default(0),
    /** It is not tried before: whoever tries it sets this first, so that nobody else does at the same time. */
    nextAt: time('next_at').notNull().defaultNow(),
    /** Null: not sent, or not to everybody. */
    sentAt: time('sent_at'),
    /** Addresses that still miss it, where others have it; null: all or none do. */
    missing: text('missing').array(),
    /** Why the last attempt failed. */
    error: text('error'),
  },
  (table) => [
    oneOf('alert_messages', 'event', ALERT_EVENTS),
    index('alert_messages_alert').on(table.alertId),
    partialIndex('alert_messages_due', 'sent_at IS NULL', table.channel, table.nextAt),
  ],
);

/**
 * Cron schedules, by name: `nightly`, `verify`, and for streams with times of their own their pattern.
 */
export const schedules = slotsync.table('schedules', {
  name: text('name').primaryKey(),
  pattern: text('pattern').notNull(),
  timezone: text('timezone').notNull(),
  /** The streams that it syncs. */
  streams: text('streams').array().notNull().default([]),
  /** So long after an occurrence a newer load of the mirror is waited for. */
  waitMinutes: integer('wait_minutes').notNull().default(0),
  /** Occurrences before this were not missed. */
  registeredAt: time('registered_at').notNull().defaultNow(),
  /** The latest occurrence that was started or skipped. */
  lastDue: time('last_due'),
  /** The latest occurrence after whose run the bookings were reconciled. */
  lastReconciled: time('last_reconciled'),
});

/** The load of the mirror as the last plan of a stream with a `freshness` read it. */
export const freshness = slotsync.table(
  'freshness',
  {
    stream: text('stream').primaryKey(),
    /** When the mirror was loaded; null: that could never be read. */
    loadedAt: time('loaded_at'),
    /** The latest load that was seen, while the mirror has an older one. */
    olderThan: time('older_than'),
    problem: text('problem').$type<LoadProblem>(),
    /** Why it cannot be read. */
    message: text('message'),
    /** Runs hold what they would send because of the problem. */
    holds: boolean('holds').notNull().default(false),
    maxHours: real('max_hours').notNull(),
    readAt: time('read_at').notNull(),
    /** The load that the last sync of the whole stream saw. */
    syncedLoadAt: time('synced_load_at'),
  },
  () => [oneOf('freshness', 'problem', LOAD_PROBLEMS)],
);

/** A booking as both sides were read last: `here` in the mirror, `there` at the service. */
export const reservations = slotsync.table(
  'reservations',
  {
    /** Our key; for a booking that only the service has, `#` and the service's number. */
    key: keyText('key').primaryKey(),
    externalId: text('external_id'),
    destinationId: text('destination_id'),
    verdict: text('verdict').$type<Verdict>().notNull(),
    /** Each difference: `{ here, there }`. */
    differs: jsonb('differs').$type<Differences>(),
    /** The fault of the booking in the mirror, whatever the service has. */
    problem: text('problem'),
    beginHere: time('begin_here'),
    endHere: time('end_here'),
    beginThere: time('begin_there'),
    endThere: time('end_there'),
    /** Objects and fields of each side; `here` whether it is cancelled, `there` the status. */
    here: jsonb('here'),
    there: jsonb('there'),
    seenAt: time('seen_at').notNull(),
    runId: big('run_id'),
  },
  (table) => [
    oneOf('reservations', 'verdict', VERDICTS, 'reservations_verdict_known'),
    // As the view `discrepancies`, which counts and lists by it.
    partialIndex(
      'reservations_discrepancies',
      "verdict NOT IN ('agrees', 'agrees_cancelled', 'restored_there', 'not_compared') OR problem IS NOT NULL",
      table.verdict,
    ),
    index('reservations_destination_id').on(table.destinationId),
    index('reservations_external_id').on(table.externalId),
  ],
);

/** The history of bookings: one row for each change of a verdict or of what differs. */
export const reservationEvents = slotsync.table(
  'reservation_events',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    key: keyText('key').notNull(),
    /** Null: the booking was not known before. */
    fromVerdict: text('from_verdict').$type<Verdict>(),
    /** Null: neither side has it any more. */
    toVerdict: text('to_verdict').$type<Verdict>(),
    differs: jsonb('differs').$type<Differences>(),
    at: time('at').notNull().defaultNow(),
    runId: big('run_id'),
  },
  (table) => [
    index('reservation_events_key').on(table.key),
    index('reservation_events_run').on(table.runId),
    index('reservation_events_at').on(table.at),
  ],
);

/** A single row: how far changes of reservations at the service were read. */
export const reservationsWatermark = slotsync.table(
  'reservations_watermark',
  {
    singleRow: boolean('single_row').primaryKey().default(true),
    /** Changes up to here were read completely. */
    readUpTo: time('read_up_to').notNull(),
    movedAt: time('moved_at').notNull().defaultNow(),
  },
  () => [check('reservations_watermark_one_row', sql`single_row`)],
);

export const cancellations = slotsync.table(
  'cancellations',
  {
    destinationId: text('destination_id').primaryKey(),
    externalId: text('external_id'),
    /** The service's number of the reservation it cancels. */
    reservation: text('reservation'),
    cancelledAt: time('cancelled_at'),
    begin: time('begin'),
    end: time('end'),
    seenAt: time('seen_at').notNull().defaultNow(),
    runId: big('run_id'),
  },
  (table) => [
    index('cancellations_reservation').on(table.reservation),
    index('cancellations_external_id').on(table.externalId),
  ],
);

/** A single row: the service and organization this state belongs to. */
export const destination = slotsync.table(
  'destination',
  {
    singleRow: boolean('single_row').primaryKey().default(true),
    baseUrl: text('base_url').notNull(),
    organizationId: text('organization_id').notNull(),
    region: text('region').notNull(),
    /** Names this state. The queue's keys carry it, so that two states on one Redis never mix. */
    stateId: uuid('state_id').notNull().defaultRandom(),
    boundAt: time('bound_at').notNull().defaultNow(),
    /**
     * Place of the quota and the queue, and its name for people: `state`, or the run id and the database of a Redis. Null: no
     * process has noted it.
     */
    quotaPlace: text('quota_place'),
    quotaAddress: text('quota_address'),
    /** When a request ended last, and how: the HTTP status, `unreachable` or `lost`. Null: none was noted yet. */
    answeredAt: time('answered_at'),
    answer: text('answer'),
    /** When a request last ended with 2xx. */
    succeededAt: time('succeeded_at'),
  },
  () => [check('destination_one_row', sql`single_row`)],
);

/** The database that is recognized by these columns: `state`, that of these tables, or `mirror`. */
export const DATABASES = ['state', 'mirror'] as const;

/**
 * By what the state's database and the mirror's were recognized last, so that one that was restored, or another one, is
 * noticed. Null: the role may not ask, or the server does not say.
 */
export const databases = slotsync.table(
  'databases',
  {
    name: text('name').$type<(typeof DATABASES)[number]>().primaryKey(),
    /** The cluster's. */
    systemId: text('system_id'),
    databaseOid: text('database_oid').notNull(),
    /** For the state: its table `destination`. */
    tableOid: text('table_oid'),
    timeline: integer('timeline'),
    /** The most bytes of the write-ahead log that were seen. */
    walPosition: big('wal_position'),
    seenAt: time('seen_at').notNull().defaultNow(),
    /** When it was found to be another one, or put back. Of the state: null again after a whole verify. */
    restoredAt: time('restored_at'),
    restoredWhy: text('restored_why'),
  },
  () => [oneOf('databases', 'name', DATABASES)],
);

/** The checksum of each file in migrations/repeatable as it was applied last. */
export const repeatableMigrations = slotsync.table('repeatable_migrations', {
  name: text('name').primaryKey(),
  checksum: text('checksum').notNull(),
  appliedAt: time('applied_at').notNull().defaultNow(),
});
