// Declares the tables of schema `slotsync` for Drizzle. docs/state-tables.md describes every column, because other
// programs may read these tables. Not declared here: `migrations`, the empty lock tables of locks.ts, and
// `quota_limiters`, which only SQL functions write.
import { getTableColumns, sql, type SQL } from 'drizzle-orm';
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
  type PgTable,
} from 'drizzle-orm/pg-core';
import type { WrittenField } from '../streams/destination-object.js';
import { MAX_ID_BYTES } from '../streams/local-key.js';

export const slotsync = pgSchema('slotsync');

/**
 * Text in byte order (collation `C`), because a plan merges these keys with the mirror's keys, which are sorted by
 * bytes. External ids have no `COLLATE`: PostgreSQL uses no index to compare columns of different collations.
 */
const keyText = customType<{ data: string }>({ dataType: () => 'text COLLATE "C"' });
const time = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const big = (name: string) => bigint(name, { mode: 'number' });
/** A 64-bit hash, read as `bigint` because a JavaScript number would lose digits. */
const hash = (name: string) => bigint(name, { mode: 'bigint' });

export const RUN_KINDS = ['incremental', 'sync', 'backfill', 'reconcile', 'verify', 'repair'] as const;
export type RunKind = (typeof RUN_KINDS)[number];
/** Origins of a run: a schedule (cron or period), a command, or changes in the inbox. */
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
 * Operations with a configurable limit, each of which a gate can hold back separately. `overwrite` is a create that
 * would change an existing object that no record owns. `repair` sends an object again because the service holds other
 * values.
 */
export const LIMITED_OPERATIONS = ['create', 'update', 'retire', 'overwrite', 'repair'] as const;
export type LimitedOperation = (typeof LIMITED_OPERATIONS)[number];

/** Operations that a gate can close. `*` closes all operations of a stream. */
export const GATED_OPERATIONS = [...LIMITED_OPERATIONS, '*'] as const;
export type GatedOperation = (typeof GATED_OPERATIONS)[number];

/**
 * Reasons why a gate is closed. `refused` (the service refused too many objects), `frozen` and `forbidden` (the service
 * forbids this kind of request) can also close a gate while a batch is being sent. Only a plan closes a gate for the
 * other reasons.
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

/** Reasons why a stream needs a whole sync. The first reason is kept until a whole plan has ended. */
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

export const RESEND_REASONS = ['forced', 'repair', 'retry'] as const;
export type ResendReason = (typeof RESEND_REASONS)[number];

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
  'probe',
] as const;
export type OperatorAction = (typeof OPERATOR_ACTIONS)[number];
export const ACTED_VIA = ['command', 'page'] as const;
export type ActedVia = (typeof ACTED_VIA)[number];

/** Results of comparing a booking in the mirror with its reservation at the service. */
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

/** Ways in which a record was linked to an object other than the object of its external id template. */
export const LINKED_BY = ['match', 'rename'] as const;
export type LinkedBy = (typeof LINKED_BY)[number];

/**
 * Differences that `slotsync verify` can find in an object. Three kinds are no drift: `extra` (no record owns the
 * object), `stored_otherwise` (sent again, but the same values still differ) and `kept` (only fields differ whose rules
 * keep the service's values).
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

/** Conditions that an alert reports. A `nightly_run` is no problem: its alert is open while the run is unfinished. */
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
 * Problems with the load time of the mirror. `older`: the load is older than the previously seen load. `future`: the
 * load time is still to come. `unreadable`: the configured query returned no time.
 */
export const LOAD_PROBLEMS = ['too_old', 'older', 'future', 'unreadable'] as const;
export type LoadProblem = (typeof LOAD_PROBLEMS)[number];

/** Text of an alert. It contains counts, stream names, codes and commands, but never a key or a value of a row. */
export interface AlertText {
  title: string;
  details: readonly string[];
  commands: readonly string[];
  /** Sentences that are added to the message when the alert has recovered. */
  afterwards?: readonly string[];
  /**
   * Run of a `nightly_run` alert. `uuid`: id of the run at a monitoring service. `isBad`: set when the run has ended.
   */
  run?: { id: number; uuid: string; isBad?: boolean };
}

/** Values that differ, by field name. `here`: values that the mapping produces. `there`: values at the service. */
export type DriftFields = Record<string, { here: readonly string[]; there: readonly string[] }>;

/** Parts of a booking that differ. `here`: value in the mirror. `there`: value at the service. */
export type Differences = Partial<
  Record<'begin' | 'end' | 'objects' | 'fields' | 'status', { here: unknown; there: unknown }>
>;

/** Casts of 64-bit numbers in `columnList`, by Drizzle's type of the column. */
const CASTS: Readonly<Record<string, string>> = { PgBigInt53: '::float8', PgBigInt64: '::text' };

/** SQL list of the columns of a table, or of some of them, named as in `RowOf`. `alias`: alias of the table. */
export function columnList(table: PgTable, alias?: string, some?: readonly string[]): SQL {
  const columns = Object.entries(getTableColumns(table)).filter(
    ([property]) => some?.includes(property) ?? true,
  );
  const of = alias === undefined ? '' : `${alias}.`;
  return sql.raw(
    columns
      .map(([property, { name, columnType }]) => `${of}${name}${CASTS[columnType] ?? ''} AS "${property}"`)
      .join(', '),
  );
}

/** Declares a check constraint that limits a column to `values`. The default name is the table, `_` and the column. */
const oneOf = (table: string, column: string, values: readonly string[], name = `${table}_${column}`) =>
  check(name, sql.raw(`${column} IN (${values.map((value) => `'${value}'`).join(', ')})`));
const partialIndex = (name: string, condition: string, ...on: [ExtraConfigColumn, ...ExtraConfigColumn[]]) =>
  index(name)
    .on(...on)
    .where(sql.raw(condition));

export interface PlanCounts {
  create: number;
  update: number;
  retire: number;
  unchanged: number;
  /** Records that are sent again because they were deferred, failed or in doubt. */
  retry: number;
  /** Records not sent because they were given up and their rows have not changed since. */
  dead: number;
  /** Rows of which only the key changed. No object is created or retired for them. Older runs lack this count. */
  moved?: number;
  /** Objects that drift, which a repair run checks and sends again. */
  repair?: number;
  /**
   * Results of looking up existing objects for records that were never accepted. `new`: no object exists. `equal`: the
   * existing object has the same values. `overwrite`: the write would change an existing object that no record owns.
   */
  new?: number;
  equal?: number;
  overwrite?: number;
  /** Creates for which the plan did not look up existing objects. No limit on overwriting holds them back. */
  unasked?: number;
  /** Creates and updates that are not sent because the stream's `operations` setting excludes them. */
  left_out?: number;
  /** Records that differ but are not sent because an operator excepted them. */
  excepted?: number;
  staleLoad?: LoadProblem;
  /** Records in the planned batches, including held records. Each must have an outcome when the run has ended. */
  inBatches?: number;
}

/** Part of its streams that a run covers. Without a range, the run covers its streams completely. */
export interface RunRange {
  /** Keys to process. The run then covers exactly one stream. */
  keys?: string[];
  /** Bounds of the cursor column, as text. `from` is inclusive, `to` is exclusive. */
  from?: string;
  to?: string;
  where?: string;
  limit?: number;
  /** If true, unchanged records are sent too. */
  force?: boolean;
  /** For a repair: id and start time (ISO) of a verify run. Only objects that the verify run compared are repaired. */
  verified?: number;
  verifiedSince?: string;
  /** For a verify: number of records to check in each stream, chosen at random. */
  sample?: number;
  /** For a verify: if true, objects that no record owns count as drift. */
  extras?: boolean;
  /** For a verify: if true, creates records for existing objects whose rows have no record yet. */
  adopt?: boolean;
}

/** Numbers and names from which the message about a closed gate is built. */
export interface GateFacts {
  /** Objects that the service is assumed to hold. For `overwrite`: records that the plan would create. */
  accepted: number;
  /** Records that other runs sent with this operation within 23 hours. */
  earlier?: number;
  limit?: { count: number; percent: number };
  /** Records that the gate already held. A plan of single keys counts them together with its own keys. */
  held?: number;
  /** Number of records that an insufficient approval permits. `isOther` is true if it was for other keys. */
  approval?: { allowed: number; isOther: boolean };
  /** Set if an approval is valid but not used yet, because creates or updates of the stream are held. */
  waitsForWrites?: true;
  /** Explains why the mirror seems to be a different or restored database. */
  mirrorChange?: string;
  load?: LoadFacts;
  drift?: DriftSummary;
  /** Number of the objects owned by each stream that is no longer in the configuration. */
  formerStreams?: Record<string, number>;
  /** For `refused` only: number of refused objects among the sent objects, and code and message of one refusal. */
  refused?: { records: number; sent: number; code: string; message: string };
  /** For a gate of all operations (`*`) only: number of held records by operation. */
  byOperation?: Partial<Record<LimitedOperation, number>>;
  /** For `frozen`: reason of the freeze. For `forbidden`: error message of the service. */
  message?: string;
}

/** Problem of the mirror's load in numbers, as of the time when a plan read the load time. */
export interface LoadFacts {
  problem: LoadProblem;
  /** Age of the load. Negative if the load time is in the future. Null if the load time could not be read. */
  ageSeconds: number | null;
  maxHours: number;
  /** Number of seconds by which this load is older than the previously seen load. */
  olderSeconds?: number;
  /** Error message if the load time could not be read. */
  message?: string;
}

export interface DriftSummary {
  total: number;
  missing: number;
  inactive: number;
  changed: number;
  /** Name of the field that differs in every `changed` object. Null if no field differs in all of them. */
  commonField: string | null;
}

/** Closed gate as a run found it, kept in the history of the run. The gate may have opened since. */
export interface Hold {
  operation: GatedOperation;
  reason: GateReason;
  count: number;
  facts: GateFacts;
  /** For `overwrite` only: some of the records, with the values that the write would change. */
  samples?: HeldSample[];
  /** Set if an operator had already rejected exactly these records. */
  isRejected?: true;
}

/** Record whose write would change values at the service. `old`: values there now. `new`: values after the write. */
export interface HeldSample {
  key: string;
  externalId: string;
  changes: { field: string; old: readonly string[]; new: readonly string[] }[];
}
/** Holds by stream name and by gate name (see `nameOfGate`). */
export type Holds = Record<string, Record<string, Hold>>;

/** Problem of a stream as a whole, in addition to errors of single records. */
export interface StreamProblem {
  /** `failed` if the stream could not be read or planned, or if its last whole run had no accepted record. */
  status: 'failed' | 'partial';
  code: string | null;
  message: string | null;
  /** ISO time. */
  since: string;
  runId: number | null;
  runKind: RunKind | null;
  /** If true, only a whole sync of the stream can clear the problem. */
  isWhole: boolean;
  failed: number;
  dead: number;
}

export type OutcomeCounts = Record<'synced' | 'unchanged' | 'deferred' | 'failed' | 'dead', number>;

/** Number of accepted writes by operation. `create` counts the first accepted write of a record. */
export type AcceptedCounts = Record<'create' | 'update' | 'retire', number>;

export const runs = slotsync.table(
  'runs',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    kind: text('kind').$type<RunKind>().notNull(),
    lane: text('lane').notNull(),
    startedBy: text('started_by').$type<StartedBy>().notNull(),
    /** Names of the streams that the run covers. Empty for a reconcile run, which compares bookings. */
    streams: text('streams').array().notNull(),
    status: text('status').$type<RunStatus>().notNull(),
    plan: jsonb('plan').$type<Record<string, PlanCounts>>().notNull().default({}),
    /** Outcomes by stream, written when the run ends. */
    counts: jsonb('counts').$type<Record<string, OutcomeCounts>>().notNull().default({}),
    /** Accepted writes by stream, written when the run ends. Null for runs of older versions. */
    accepted: jsonb('accepted').$type<Record<string, AcceptedCounts>>(),
    /** Gates that the run found closed, by stream. For display only: `gates` has the current state. */
    holds: jsonb('holds').$type<Holds>().notNull().default({}),
    /** Null if the run covers its streams completely. */
    range: jsonb('range').$type<RunRange>(),
    /** Time when the run was paused. Nothing of a paused run is sent. */
    pausedAt: time('paused_at'),
    errorCode: text('error_code'),
    errorMessage: text('error_message'),
    requestedAt: time('requested_at').notNull().defaultNow(),
    startedAt: time('started_at'),
    finishedAt: time('finished_at'),
    /** Token of the process that plans the run. Only the process with this token may write batches of the run. */
    planner: text('planner'),
    /** Fingerprint of the configuration whose processes work the run. Null if the run only reads, or is an old run. */
    configuration: text('configuration'),
    /** Fingerprint of each stream's declaration at the start of the run. */
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
    /** Level of the batch. The batches of a level are queued when all batches of lower levels have ended. */
    level: smallint('level').notNull(),
    /** Operation whose limit counts the records. If null, no limit counts them, and each row decides what is sent. */
    operation: text('operation').$type<LimitedOperation>(),
    /** True if later limits ignore the batch because it was approved, released before, or a stream's first load. */
    exempt: boolean('exempt').notNull().default(false),
    /** Keys of the batch. While the batch runs, settled keys are moved from here to a finished batch of their own. */
    keys: text('keys').array().notNull(),
    state: text('state').$type<BatchState>().notNull(),
    counts: jsonb('counts').$type<OutcomeCounts>(),
    /** Number of accepted writes of this batch. Null if there were none, or for batches of older versions. */
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
 * Records: the outcome of the latest attempt for each key. An object's facts (external id, number, hashes, doubt, next
 * check) are in the record that owns the object. They move together if another record becomes the owner.
 */
export const records = slotsync.table(
  'records',
  {
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    /** External id of the object that the record owns. Null if it owns none. No two records own the same object. */
    externalId: text('external_id'),
    /** External id of the row, if another record owns that object or nothing was sent yet. Otherwise null. */
    rowExternalId: text('row_external_id'),
    /** Key of the record that owned this object until its row got another external id. No row has the object now. */
    formerKey: keyText('former_key'),
    destinationId: text('destination_id'),
    /** Hash of the row from which the last accepted object was mapped. */
    sourceHash: hash('source_hash'),
    /** Hash of the last accepted object. Null if never accepted. Empty if the object's current content is unknown. */
    objectHash: text('object_hash'),
    /**
     * First 8 characters of a hash of each accepted value, for fields whose rules compare with it. Also requests of
     * `slotsync take` that the mirror's value wins once. Null if there is nothing to keep. See streams/field-rules.ts.
     */
    acceptedFields: text('accepted_fields'),
    status: text('status').$type<RecordStatus>().notNull(),
    /**
     * Hash of the row that the service refused. A dead record is sent again only if the hash of its row differs. A
     * failed record with this hash is sent once more, because the refusal is not final yet.
     */
    refusedHash: hash('refused_hash'),
    errorCode: text('error_code'),
    errorMessage: text('error_message'),
    /** JSON list of the stream and key of the missing record for which a deferred record waits. */
    waitsFor: text('waits_for'),
    waitsSince: time('waits_since'),
    /** Number of attempts since the service last accepted the record. */
    attempts: integer('attempts').notNull().default(0),
    /** True if an answer was lost or a worker died, so that the service may hold other values than accepted last. */
    inDoubt: boolean('in_doubt').notNull().default(false),
    /** Time of the next check of the object. Until then, a write whose answer was lost may still be executed. */
    checkAfter: time('check_after'),
    /** Time when a plan first found the row missing. Null again when the object has been retired. */
    goneSince: time('gone_since'),
    /** Value of the `graceDays` column in the row that was accepted last. Null if there is no such column or value. */
    endsAt: time('ends_at'),
    /** End of the last whole plan that found the row. Stored when a plan first finds the row missing. */
    thereUntil: time('there_until'),
    /** Time when a batch first claimed the record, or when a verify created the record for an existing object. */
    firstSeenAt: time('first_seen_at').notNull().defaultNow(),
    /** Key of a new row with the same values, found when the record's row went missing. Null if there was none. */
    renamedTo: keyText('renamed_to'),
    /** Token of the batch that currently may write the record. Null if the record is not claimed. */
    claimedBy: text('claimed_by'),
    claimedUntil: time('claimed_until'),
    runId: big('run_id'),
    /** Reason to send the record again although its row is unchanged. Cleared when the service accepts the record. */
    resend: text('resend').$type<ResendReason>(),
    resendSince: time('resend_since'),
    /** Run whose plan requested the resend. Null if an operator requested it with `slotsync retry`. */
    resendRun: big('resend_run'),
    /** Operation as which limits count the last accepted write, once for each key. Null if limits do not count it. */
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
 * Links of records to objects, needed if the external id template does not determine the object. A link has priority
 * over the template and remains when the record is deleted.
 */
export const links = slotsync.table(
  'links',
  {
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    /** External id of the object. With `assignsId`, the id that the first write will assign. */
    externalId: text('external_id').notNull(),
    destinationId: text('destination_id'),
    /** True if the object has no external id yet. The first write identifies it by its number and assigns the id. */
    assignsId: boolean('assigns_id').notNull().default(false),
    linkedBy: text('linked_by').$type<LinkedBy>().notNull(),
    /** Fields whose values identified the object. Null if an operator chose the object. */
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

/** Objects at the service that are not as they should be. The row is deleted when the object is correct again. */
export const drift = slotsync.table(
  'drift',
  {
    stream: text('stream').notNull(),
    /** Local key. For an object that no record owns: `#` and the service's own id of the object. */
    localKey: keyText('local_key').notNull(),
    externalId: text('external_id'),
    kind: text('kind').$type<DriftKind>().notNull(),
    /** Differing fields, for kinds `changed`, `inactive`, `stored_otherwise` and `kept`. */
    fields: jsonb('fields').$type<DriftFields>(),
    seenAt: time('seen_at').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.stream, table.localKey] }),
    oneOf('drift', 'kind', DRIFT_KINDS),
    index('drift_external_id').on(table.externalId),
  ],
);

/** History of drift, with one row for each change of an object's drift. */
export const driftEvents = slotsync.table(
  'drift_events',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    externalId: text('external_id'),
    /** Previous kind of drift. Null if the object was correct. */
    fromKind: text('from_kind').$type<DriftKind>(),
    /** New kind of drift. Null if the object is correct now. */
    toKind: text('to_kind').$type<DriftKind>(),
    /** Differing fields as in `drift`. If the object is correct now, the fields that differed until the last write. */
    fields: jsonb('fields').$type<DriftFields>(),
    at: time('at').notNull().defaultNow(),
    runId: big('run_id'),
  },
  (table) => [
    index('drift_events_key').on(table.stream, table.localKey),
    index('drift_events_at').on(table.at),
  ],
);

/** Time of the last whole verify of each stream. */
export const verifications = slotsync.table('verifications', {
  stream: text('stream').primaryKey(),
  /** Start of the last whole pass over the stream's type. */
  verifiedAt: time('verified_at').notNull(),
  objects: big('objects').notNull(),
  runId: big('run_id'),
});

/** Evidence that an operator had all data of a key deleted. Only a hash of the key is kept. */
export const removals = slotsync.table('removals', {
  id: big('id').primaryKey().generatedAlwaysAsIdentity(),
  stream: text('stream').notNull(),
  /** SHA-256 of the stream, a line feed and the key, in hexadecimal. */
  keyHash: text('key_hash').notNull(),
  removedAt: time('removed_at').notNull().defaultNow(),
  /** Number of deleted rows by table. */
  deleted: jsonb('deleted').$type<Record<string, number>>().notNull(),
});

/**
 * Claims of batches on objects. Needed if records of several keys, streams or runs may have the same external id. A row
 * exists only while a batch holds the claim.
 */
export const objectClaims = slotsync.table('object_claims', {
  externalId: text('external_id').primaryKey(),
  claimedBy: text('claimed_by').notNull(),
  claimedUntil: time('claimed_until').notNull(),
});

/**
 * The inbox: keys of rows that may have changed. Programs only insert rows, so that no writer waits for a lock of
 * another. A key may have several rows. They are deleted when the incremental run that processes them has ended.
 */
export const changes = slotsync.table(
  'changes',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    requestedAt: time('requested_at').notNull().defaultNow(),
    /** Incremental run that processes the change. Null if no run has taken it. */
    runId: big('run_id'),
    /** Unfinished run that processes an earlier change of the same key. This change waits until that run has ended. */
    afterRun: big('after_run'),
    /** Earliest time for the next attempt, set after the run of the change failed. */
    notBefore: time('not_before'),
  },
  (table) => [
    partialIndex('changes_waiting', 'run_id IS NULL AND after_run IS NULL', table.id),
    partialIndex('changes_taken', 'run_id IS NOT NULL', table.runId),
    partialIndex('changes_after', 'after_run IS NOT NULL', table.afterRun),
    index('changes_key').on(table.stream, table.localKey, table.runId),
    // Limits the size, because other programs insert rows too.
    check(
      'changes_size',
      sql.raw(`octet_length(stream) <= ${MAX_ID_BYTES} AND octet_length(local_key) <= ${MAX_ID_BYTES}`),
    ),
    check('changes_times', sql`isfinite(requested_at) AND isfinite(not_before)`),
  ],
);

/** Known streams, also former ones. Sync times and due streams are read from this table, never from runs. */
export const streams = slotsync.table(
  'streams',
  {
    stream: text('stream').primaryKey(),
    /** Fingerprint of the stream's declaration at its last whole plan. */
    fingerprint: text('fingerprint'),
    /** Time when a plan last read the complete stream. */
    plannedAt: time('planned_at'),
    /** Time when a whole sync of the stream last ended with everything sent. */
    syncedAt: time('synced_at'),
    /** Time when a whole sync became necessary. Null if the stream needs none. */
    dueSince: time('due_since'),
    dueReason: text('due_reason').$type<DueReason>(),
    /** Time when a whole sync of the stream last began, whether or not it succeeded. */
    attemptedAt: time('attempted_at'),
    problem: jsonb('problem').$type<StreamProblem>(),
    /** Polling position. All rows up to this value have an outcome. Text for full precision. Null if never polled. */
    cursor: text('cursor'),
    cursorKey: keyText('cursor_key'),
    cursorColumn: text('cursor_column'),
    cursorType: text('cursor_type'),
    cursorMovedAt: time('cursor_moved_at'),
    /** Time of the last whole plan that held nothing back although the mirror had become another database. */
    mirrorPassedAt: time('mirror_passed_at'),
    /** Objects that the service answered and refused since the last whole plan, with the latest refusal's reason. */
    answered: integer('answered').notNull().default(0),
    refused: integer('refused').notNull().default(0),
    refusedCode: text('refused_code'),
    refusedMessage: text('refused_message'),
    /** Number of refusals that an approval permits until the next whole plan. */
    refusalsAllowed: integer('refusals_allowed').notNull().default(0),
  },
  (table) => [
    oneOf('streams', 'due_reason', DUE_REASONS),
    partialIndex('streams_due', 'due_since IS NOT NULL', table.dueSince),
  ],
);

/** Reasons why records of a stream are held, and the operator's answer. Gates that hold no key are deleted. */
export const gates = slotsync.table(
  'gates',
  {
    stream: text('stream').notNull(),
    operation: text('operation').$type<GatedOperation>().notNull(),
    reason: text('reason').$type<GateReason>().notNull(),
    since: time('since').notNull().defaultNow(),
    /** Run that closed the gate or last confirmed it. Operators name the gate by this id. The run may be deleted. */
    runId: big('run_id').notNull(),
    /** Number of keys that the gate holds back, and a digest of these keys. */
    count: integer('count').notNull(),
    digest: text('digest').notNull(),
    facts: jsonb('facts').$type<GateFacts>().notNull(),
    samples: jsonb('samples').$type<HeldSample[]>().notNull().default([]),
    /** Number of records that the approval permits. Null if the gate is not approved. */
    allowed: integer('allowed'),
    /** Digest of the keys that the operator approved. Null if the approval permits any keys. */
    allowedDigest: text('allowed_digest'),
    approvedAt: time('approved_at'),
    approvedBy: text('approved_by'),
    approvedRun: big('approved_run'),
    expiresAt: time('expires_at'),
    /** Time when an operator rejected these keys. Null if they are not rejected. */
    rejectedAt: time('rejected_at'),
    rejectedBy: text('rejected_by'),
    answerReason: text('answer_reason'),
  },
  (table) => [
    primaryKey({ columns: [table.stream, table.operation, table.reason] }),
    oneOf('gates', 'operation', GATED_OPERATIONS),
    oneOf('gates', 'reason', GATE_REASONS),
    index('gates_run').on(table.runId),
  ],
);

/** Held keys. A whole plan replaces all rows of its streams, a plan of single keys only the rows of these keys. */
export const held = slotsync.table(
  'held',
  {
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    /** Operation that would be sent. If null, no limit counts the key, and its row decides what is sent. */
    operation: text('operation').$type<LimitedOperation>(),
    /** Operation of the gate that holds the key back. With `reason`, it identifies the gate. */
    gate: text('gate').$type<GatedOperation>().notNull(),
    reason: text('reason').$type<GateReason>().notNull(),
    since: time('since').notNull().defaultNow(),
    /** Time when a plan last found the key held. */
    plannedAt: time('planned_at').notNull().defaultNow(),
  },
  (table) => [
    primaryKey({ columns: [table.stream, table.localKey] }),
    oneOf('held', 'operation', LIMITED_OPERATIONS),
  ],
);

/**
 * Number of accepted records per hour. Limits count the last 23 hours. `unasked` counts creates for which the plan did
 * not look up existing objects.
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

/** Accepted writes. Up to 20 000 are inserted in a second, so `history_kinds` has the values that many rows share. */
export const history = slotsync.table(
  'history',
  {
    at: time('at').notNull(),
    /** A 32-bit id suffices for one run a second over 68 years. */
    runId: integer('run_id').notNull(),
    kindId: integer('kind_id').notNull(),
    localKey: keyText('local_key').notNull(),
    /** Written values, stored only if the configuration has `history: 'values'`. */
    fieldValues: jsonb('field_values').$type<WrittenField[]>(),
  },
  (table) => [
    index('history_local_key').on(table.localKey),
    index('history_at').using('brin', table.at),
    partialIndex('history_values', 'field_values IS NOT NULL', table.at),
  ],
);

/**
 * Values that many rows of `history` share. Duplicates are allowed: with a unique index, batches that insert the same
 * kind would wait for each other.
 */
export const historyKinds = slotsync.table(
  'history_kinds',
  {
    id: integer('id').primaryKey().generatedAlwaysAsIdentity(),
    stream: text('stream').notNull(),
    operation: text('operation').$type<keyof AcceptedCounts>().notNull(),
    startedBy: text('started_by').$type<StartedBy>().notNull(),
    fields: text('fields').array().notNull(),
  },
  // A hash index, because a long list of field names exceeds the maximum entry size of a B-tree index.
  (table) => [
    oneOf('history_kinds', 'operation', ['create', 'update', 'retire']),
    oneOf('history_kinds', 'started_by', STARTED_BY),
    index('history_kinds_fields').using('hash', table.fields),
  ],
);

/** Actions of operators and their reasons. Kept longer than the runs and records that the actions are about. */
export const actions = slotsync.table(
  'actions',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    at: time('at').notNull().defaultNow(),
    /** Operating-system user, or the user whom a trusted proxy names on the page. Null if unknown. */
    by: text('by'),
    via: text('via').$type<ActedVia>().notNull(),
    action: text('action').$type<OperatorAction>().notNull(),
    /** Streams, numbers and keys that the action affected, as text for people. */
    subject: text('subject'),
    runId: big('run_id'),
    /** Reason as the operator entered it. Null if none was entered. */
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
 * Periods in which nothing of certain streams is written. Several freezes may apply to one stream. Freezes declared in
 * the configuration are rows too, so that processes with another configuration obey them.
 */
export const freezes = slotsync.table('freezes', {
  id: big('id').primaryKey().generatedAlwaysAsIdentity(),
  /** Names of the frozen streams. If null, all streams except `exceptStreams` are frozen. */
  streams: text('streams').array(),
  exceptStreams: text('except_streams').array().notNull().default([]),
  beginsAt: time('begins_at').notNull().defaultNow(),
  endsAt: time('ends_at').notNull(),
  reason: text('reason').notNull(),
  /** Operator who started the freeze. Null if unknown, or if the configuration declares the freeze. */
  frozenBy: text('frozen_by'),
  isDeclared: boolean('is_declared').notNull().default(false),
});

/** Records that slotsync does not change, because somebody maintains their objects by hand. */
export const exceptions = slotsync.table(
  'exceptions',
  {
    stream: text('stream').notNull(),
    localKey: keyText('local_key').notNull(),
    since: time('since').notNull().defaultNow(),
    /** End of the exception. Null if it lasts until an operator ends it. */
    until: time('until'),
    reason: text('reason').notNull(),
    by: text('by'),
  },
  (table) => [primaryKey({ columns: [table.stream, table.localKey] })],
);

/**
 * Processes that work the queue: a worker, or a command until its run has ended. A process renews its row while it
 * lives and deletes the row when it stops. A row that is not renewed belongs to a killed or disconnected process.
 */
export const processes = slotsync.table('processes', {
  /** Id of the process. The values of `records.claimed_by` begin with this id. */
  id: text('id').primaryKey(),
  command: text('command').notNull(),
  host: text('host').notNull(),
  pid: integer('pid').notNull(),
  startedAt: time('started_at').notNull().defaultNow(),
  seenAt: time('seen_at').notNull().defaultNow(),
  /** Time when the process stopped sending, because of the error in `errorCode`. Null if it is sending. */
  stoppedSince: time('stopped_since'),
  errorCode: text('error_code'),
  errorMessage: text('error_message'),
  /** Setting `API_REQUESTS_PER_SECOND` of the process. The lowest value of all processes applies. */
  requestsPerSecond: integer('requests_per_second'),
  /** Fingerprints of the process's configuration and of each stream. Null for processes of older versions. */
  configuration: text('configuration'),
  fingerprints: jsonb('fingerprints').$type<Record<string, string>>(),
  configurationLoadedAt: time('configuration_loaded_at'),
  /** Time when the configuration files were found to differ from the loaded configuration. Null if they are equal. */
  configurationChangedAt: time('configuration_changed_at'),
});

/** Number of requests of all processes in each second of the last days. Seconds without requests have no row. */
export const requestSeconds = slotsync.table('request_seconds', {
  second: time('second').primaryKey(),
  requests: integer('requests').notNull(),
  /** Number of these requests that the service answered with 429. */
  throttled: integer('throttled').notNull().default(0),
});

/** Problems that are reported, from their first detection until they are over. */
export const alerts = slotsync.table(
  'alerts',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    /** Name of the problem. Only one alert of a cause is open at a time. */
    cause: text('cause').notNull(),
    condition: text('condition').$type<AlertCondition>().notNull(),
    /** Message at the time when the alert opened. */
    message: jsonb('message').$type<AlertText>().notNull(),
    openedAt: time('opened_at').notNull().defaultNow(),
    /** Time when an evaluation first no longer found the cause. Null if the last evaluation found it. */
    goneSince: time('gone_since'),
    recoveredAt: time('recovered_at'),
  },
  (table) => [
    oneOf('alerts', 'condition', ALERT_CONDITIONS),
    uniqueIndex('alerts_open')
      .on(table.cause)
      .where(sql`recovered_at IS NULL`),
  ],
);

/** Messages about an alert to one channel, both sent and pending. */
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
    /** Earliest time of the next attempt. A sender first moves it forward to keep other processes from sending. */
    nextAt: time('next_at').notNull().defaultNow(),
    /** Time when all recipients had received the message. Null until then. */
    sentAt: time('sent_at'),
    /** Addresses that did not receive the message although others did. Null if all or none received it. */
    missing: text('missing').array(),
    error: text('error'),
  },
  (table) => [
    oneOf('alert_messages', 'event', ALERT_EVENTS),
    index('alert_messages_alert').on(table.alertId),
    partialIndex('alert_messages_due', 'sent_at IS NULL', table.channel, table.nextAt),
  ],
);

/** Cron schedules. Names are `nightly`, `verify` and the cron patterns of streams with their own schedules. */
export const schedules = slotsync.table('schedules', {
  name: text('name').primaryKey(),
  pattern: text('pattern').notNull(),
  timezone: text('timezone').notNull(),
  streams: text('streams').array().notNull().default([]),
  /** Minutes after a due time for which the sync may wait for a newer load of the mirror. */
  waitMinutes: integer('wait_minutes').notNull().default(0),
  /** Time when the schedule was registered. Earlier due times do not count as missed. */
  registeredAt: time('registered_at').notNull().defaultNow(),
  /** Latest due time at which a run was started or skipped. */
  lastDue: time('last_due'),
  /** Latest due time after whose run the bookings were reconciled. */
  lastReconciled: time('last_reconciled'),
});

/** Load of the mirror at the last plan of each stream with a `freshness` setting. */
export const freshness = slotsync.table(
  'freshness',
  {
    stream: text('stream').primaryKey(),
    /** Time when the mirror was loaded. Null if it could never be read. */
    loadedAt: time('loaded_at'),
    /** Latest load time that was seen, if the mirror now has an older load. */
    olderThan: time('older_than'),
    problem: text('problem').$type<LoadProblem>(),
    /** Error message if the load time could not be read. */
    message: text('message'),
    /** True if runs hold back their records because of the problem. */
    holds: boolean('holds').notNull().default(false),
    maxHours: real('max_hours').notNull(),
    readAt: time('read_at').notNull(),
    /** Load time of the mirror at the last whole sync of the stream. */
    syncedLoadAt: time('synced_load_at'),
  },
  () => [oneOf('freshness', 'problem', LOAD_PROBLEMS)],
);

/** Bookings as last read. Columns with `here` are from the mirror, columns with `there` from the service. */
export const reservations = slotsync.table(
  'reservations',
  {
    /** Local key. For a booking that exists only at the service: `#` and the service's own id. */
    key: keyText('key').primaryKey(),
    externalId: text('external_id'),
    destinationId: text('destination_id'),
    verdict: text('verdict').$type<Verdict>().notNull(),
    differs: jsonb('differs').$type<Differences>(),
    /** Error in the mirror's booking, independent of the service. */
    problem: text('problem'),
    beginHere: time('begin_here'),
    endHere: time('end_here'),
    beginThere: time('begin_there'),
    endThere: time('end_there'),
    /** Objects and fields of the booking. `here` also has the flag for cancelled, `there` the status. */
    here: jsonb('here'),
    there: jsonb('there'),
    seenAt: time('seen_at').notNull(),
    runId: big('run_id'),
  },
  (table) => [
    oneOf('reservations', 'verdict', VERDICTS, 'reservations_verdict_known'),
    // Same condition as in the view `discrepancies`, so that PostgreSQL uses this index to count and list its rows.
    partialIndex(
      'reservations_discrepancies',
      "verdict NOT IN ('agrees', 'agrees_cancelled', 'restored_there', 'not_compared') OR problem IS NOT NULL",
      table.verdict,
    ),
    index('reservations_destination_id').on(table.destinationId),
    index('reservations_external_id').on(table.externalId),
  ],
);

/** History of bookings, with one row for each change of the verdict or of the differences. */
export const reservationEvents = slotsync.table(
  'reservation_events',
  {
    id: big('id').primaryKey().generatedAlwaysAsIdentity(),
    key: keyText('key').notNull(),
    /** Previous verdict. Null if the booking was unknown. */
    fromVerdict: text('from_verdict').$type<Verdict>(),
    /** New verdict. Null if the booking no longer exists on either side. */
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

/** Position up to which changes of reservations at the service were read. The table has a single row. */
export const reservationsWatermark = slotsync.table(
  'reservations_watermark',
  {
    singleRow: boolean('single_row').primaryKey().default(true),
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
    /** The service's id of the cancelled reservation. */
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

/** Service and organization to which this state belongs. The table has a single row. */
export const destination = slotsync.table(
  'destination',
  {
    singleRow: boolean('single_row').primaryKey().default(true),
    baseUrl: text('base_url').notNull(),
    organizationId: text('organization_id').notNull(),
    region: text('region').notNull(),
    /** Id of this state. Keys of the queue contain it, so that two states can share one Redis. */
    stateId: uuid('state_id').notNull().defaultRandom(),
    boundAt: time('bound_at').notNull().defaultNow(),
    /** Store of the quota and the queue: `state`, or the run id and database of a Redis. Null if not stored yet. */
    quotaPlace: text('quota_place'),
    quotaAddress: text('quota_address'),
    /** Time and result of the last request: HTTP status, `unreachable` or `lost`. Null before the first request. */
    answeredAt: time('answered_at'),
    answer: text('answer'),
    /** Time when a request last ended with a 2xx status. */
    succeededAt: time('succeeded_at'),
  },
  () => [check('destination_one_row', sql`single_row`)],
);

/** Databases whose identity is checked: `state` has these tables, `mirror` has the source rows. */
export const DATABASES = ['state', 'mirror'] as const;

/**
 * Identity of the state's and the mirror's database when last checked. A difference shows that a database was restored
 * or replaced. Columns are null if the role may not read them or the server does not have them.
 */
export const databases = slotsync.table(
  'databases',
  {
    name: text('name').$type<(typeof DATABASES)[number]>().primaryKey(),
    systemId: text('system_id'),
    databaseOid: text('database_oid').notNull(),
    /** For the state only: OID of the table `destination`. */
    tableOid: text('table_oid'),
    timeline: integer('timeline'),
    /** Highest position of the write-ahead log that was seen, in bytes. */
    walPosition: big('wal_position'),
    seenAt: time('seen_at').notNull().defaultNow(),
    /** Time when the database was found to be restored or replaced. A whole verify clears this time of the state. */
    restoredAt: time('restored_at'),
    restoredWhy: text('restored_why'),
  },
  () => [oneOf('databases', 'name', DATABASES)],
);

export const repeatableMigrations = slotsync.table('repeatable_migrations', {
  name: text('name').primaryKey(),
  checksum: text('checksum').notNull(),
  appliedAt: time('applied_at').notNull().defaultNow(),
});
