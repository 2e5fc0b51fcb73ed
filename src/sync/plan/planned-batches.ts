// Writes planned keys as batches. One batch is claimed, read and settled as a whole, and may take several requests.
import type { Context } from '../../destination/client.js';
import type { Lane } from '../../destination/quota/limiter.js';
import type { Meter } from '../../process/meter.js';
import type { Queries, State } from '../../state/database.js';
import { addChanges } from '../../state/inbox/add-changes.js';
import { failRecords } from '../../state/records/settle-records.js';
import {
  abandonRecords,
  forgetRecords,
  noteBack,
  noteGone,
  noteRenamed,
  type RenamedRow,
} from '../../state/records/gone-rows.js';
import { countOutcomes, type Outcome, type RecordKey } from '../../state/records/outcome-types.js';
import { wishAgain } from '../../state/records/retry-records.js';
import { insertBatches, type NewBatch } from '../../state/runs/batches.js';
import { asPlanner, type Planner } from '../../state/runs/claim-planning.js';
import type { LimitedOperation, ResendReason, RunKind, RunRange } from '../../state/schema.js';
import { MOST_OBJECTS } from '../../streams/config-schema.js';
import type { Stream } from '../../streams/stream.js';
import type { WriteEntry } from './merge-readings.js';

/**
 * Kinds of batches. `limit`: limit that counts the records. `isLast`: sent after all other writes of the run.
 * `isExempt`: released by an earlier plan, so that the limit does not count the records again.
 */
const BATCH_KINDS = {
  /** Records that no limit counts: objects to read back, and rows that only changed their key. */
  unlimited: {},
  create: { limit: 'create' },
  update: { limit: 'update' },
  overwrite: { limit: 'overwrite' },
  retire: { limit: 'retire', isLast: true },
  releasedRetire: { limit: 'retire', isLast: true, isExempt: true },
  repair: { limit: 'repair' },
  repairRetire: { limit: 'repair', isLast: true },
} as const satisfies Record<string, Kind>;

interface Kind {
  limit?: LimitedOperation;
  isLast?: true;
  isExempt?: true;
}

export type BatchKind = keyof typeof BATCH_KINDS;

export const limitOf = (kind: BatchKind): Kind => BATCH_KINDS[kind];

export interface PlanRequest {
  kind: RunKind;
  range: RunRange | null;
  /** Keys taken from the inbox. If undefined, the run's range selects the rows. */
  keys?: readonly string[];
  /** Id of the run. Undefined for a preview. */
  runId?: number;
  /** Number of records that the run may still write in all its streams. `isShort`: records were left out. */
  room: { records: number; isShort?: boolean };
  context: Context;
}

/** A row that is not sent, with the reason. If `deadHash` is set, its record is given up until the row changes. */
export interface RefusedRow {
  key: string;
  code: 'key_too_long' | 'external_id_shared';
  message: string;
  externalId?: string;
  deadHash?: string;
}

/** Receives the results of planning. The sink of a preview implements no method that writes. */
export interface PlanSink {
  addBatch(kind: BatchKind, entries: readonly WriteEntry[]): Promise<void>;
  /** Called after the last batch. Stores batches that limits count, so that parallel plans count them too. */
  flush?(isComplete?: boolean): Promise<void>;
  /** Called with keys whose rows were deleted, or exist again. The service may have their objects. */
  noteRowsGone?(keys: readonly string[]): Promise<void>;
  noteRowsBack?(keys: readonly string[]): Promise<void>;
  /** Called with pairs of a deleted row and a new row that have equal values. */
  noteRenamed?(renamed: readonly RenamedRow[]): Promise<void>;
  /** Called with records to send although their rows have not changed, until they are accepted or given up. */
  wish?(reason: ResendReason, keys: readonly string[]): Promise<void>;
  /** Called with rows that take over an object. They go to the inbox. */
  follow?(rows: readonly RecordKey[]): Promise<void>;
  /** Called with records whose rows were deleted and whose objects the service never had. */
  forget?(keys: readonly string[]): Promise<void>;
  /** Called with records not in sync, if their rows were deleted and the stream has `retire: 'keep'`. */
  abandon?(keys: readonly string[]): Promise<void>;
  /** Called with a list of rows that are not sent. There may be several lists. */
  refuse(rows: readonly RefusedRow[]): Promise<void>;
}

/** Number of records by planned operation. `gone`: rows were deleted, but only a whole sync deactivates. */
export const NOTHING_PLANNED = {
  create: 0,
  update: 0,
  retire: 0,
  overwrite: 0,
  repair: 0,
  released: 0,
  moved: 0,
  gone: 0,
};

export type Planned = typeof NOTHING_PLANNED;

/** Number of keys passed to a sink, or searched for, at once. */
export const KEYS_AT_ONCE = 1000;

/** Maximum number of keys in an incremental batch. In small batches, a change waits for few other records. */
export const KEYS_OF_A_CHANGE = 100;
/** Maximum number of fixed-size requests in a batch. If a worker dies, the batch waits for its claim to expire. */
const MOST_REQUESTS = 10;

/** Returns how many keys a batch of the stream has, in a run of this lane. */
export function keysPerBatch({ batchSize, owns }: Pick<Stream, 'batchSize' | 'owns'>, lane?: Lane): number {
  // If objects are read before each write, a batch of fixed size has exactly one read and one write.
  if (batchSize !== 'auto' && owns === 'fields') return batchSize;
  const most = lane === 'incremental' ? KEYS_OF_A_CHANGE : MOST_OBJECTS;
  if (batchSize === 'auto') return most;
  const keys = Math.min(most, batchSize * MOST_REQUESTS);
  return Math.max(batchSize, keys - (keys % batchSize));
}

/** Returns the number of requests for a full batch. Returns the minimum if the request size is learned. */
export const requestsPerBatch = (stream: Stream): number =>
  stream.batchSize === 'auto' ? 1 : Math.ceil(keysPerBatch(stream) / stream.batchSize);

/** Collects values in lists. Calls `handOver` with each full list, and at `flush` with the rest. */
export function collectLists<T>(size: number, handOver: (values: T[]) => Promise<void> | undefined) {
  let values: T[] = [];
  async function flush(): Promise<void> {
    const list = values;
    values = [];
    if (list.length > 0) await handOver(list);
  }
  return {
    async add(value: T): Promise<void> {
      if (values.push(value) >= size) await flush();
    },
    flush,
  };
}

/** Collects the keys of a stream's batches, in one list for each kind of batch. */
export function collectBatches(size: number, { addBatch }: Pick<PlanSink, 'addBatch'>) {
  const lists = new Map(
    (Object.keys(BATCH_KINDS) as BatchKind[]).map((kind) => [
      kind,
      collectLists<WriteEntry>(size, (entries) => addBatch(kind, entries)),
    ]),
  );
  return {
    add: async (kind: BatchKind, entry: WriteEntry) => lists.get(kind)?.add(entry),
    async flush(): Promise<void> {
      for (const list of lists.values()) await list.flush();
    },
  };
}

/** Maximum numbers of batches, and of keys in them, in one INSERT statement. */
const ROWS_AT_ONCE = 200;
const KEYS_IN_ROWS = 100_000;
/** Maximum number of keys to write together with the end of the plan. Keys that limits count are written before. */
const KEYS_AT_END = 1000;

/**
 * Creates the sink of a run, which stores batches as rows. Deactivations come after all other writes of the run.
 * Batches are sent only after the plan has ended, without keys that gates hold. Throws if another process plans the run
 * now.
 */
export function createBatchWriter(
  { db }: State,
  { name, level, limits }: Stream,
  { planner, retireLevel, meter }: { planner: Planner; retireLevel: number; meter: Meter },
) {
  const { runId } = planner;
  const write = (work: (tx: Queries) => Promise<void>) => asPlanner(db, planner, work);
  let rows: NewBatch[] = [];
  let keysInRows = 0;
  let batches = 0;
  let records = 0;

  async function flush(): Promise<void> {
    if (rows.length > 0) await write((tx) => insertBatches(tx, rows));
    rows = [];
    keysInRows = 0;
  }

  const sink: PlanSink = {
    async addBatch(kind, entries) {
      const { limit, isLast = false, isExempt = false } = limitOf(kind);
      batches++;
      records += entries.length;
      rows.push({
        runId,
        stream: name,
        level: isLast ? retireLevel : level,
        keys: entries.map(({ key }) => key),
        state: 'planned',
        operation: limit,
        exempt: isExempt,
      });
      keysInRows += entries.length;
      if (rows.length >= ROWS_AT_ONCE || keysInRows >= KEYS_IN_ROWS) await flush();
    },
    async flush(isComplete = false): Promise<void> {
      const isLimited = rows.some(({ operation }) => operation && limits[operation] !== undefined);
      if (isComplete || keysInRows > KEYS_AT_END || isLimited) await flush();
    },
    wish: (reason, keys) => write((tx) => wishAgain(tx, { stream: name, keys, reason, runId })),
    noteRowsGone: (keys) => write((tx) => noteGone(tx, name, keys)),
    noteRowsBack: (keys) => write((tx) => noteBack(tx, name, keys)),
    noteRenamed: (renamed) => write((tx) => noteRenamed(tx, name, renamed)),
    follow: (rows) =>
      write(async (tx) => {
        for (const { stream, localKey } of rows) await addChanges(tx, stream, [localKey]);
      }),
    forget: (keys) => write((tx) => forgetRecords(tx, name, keys)),
    abandon: (keys) => write((tx) => abandonRecords(tx, name, keys)),
    async refuse(refused) {
      records += refused.length;
      const failures = refused.map(({ key: localKey, deadHash, ...why }): Outcome =>
        deadHash === undefined
          ? { localKey, outcome: 'failed', ...why }
          : { localKey, outcome: 'dead', sourceHash: deadHash, ...why },
      );
      const counts = countOutcomes(failures);
      const finished = { state: 'done', counts } as const;
      const keys = refused.map(({ key }) => key);
      await write(async (tx) => {
        await failRecords(tx, name, runId, failures);
        await insertBatches(tx, [{ runId, stream: name, level, keys, ...finished }]);
      });
      meter.settled(name, counts);
    },
  };
  return {
    sink,
    /** Writes the remaining batches, in the transaction that ends the plan. */
    writeRest: (tx: Queries) => insertBatches(tx, rows),
    /** Returns the number of batches to send, including those that gates will hold. */
    batches: () => batches,
    /** Returns the number of records in batches, including rows that the plan refused. */
    records: () => records,
  };
}
