// The request of a plan, and the batches that become of it. A batch is claimed, read and settled as one, and written in as many
// requests as it takes.
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
import { NO_OUTCOMES, type RecordKey } from '../../state/records/outcome-types.js';
import { wishAgain } from '../../state/records/resend.js';
import { insertBatches, type NewBatch } from '../../state/runs/batches.js';
import { asPlanner, type Planner } from '../../state/runs/claim-planning.js';
import type { LimitedOperation, ResendReason, RunKind, RunRange } from '../../state/schema.js';
import { MOST_OBJECTS } from '../../streams/config-schema.js';
import type { Stream } from '../../streams/stream.js';
import type { WriteEntry } from './merge-readings.js';

/**
 * The kinds of batches. `limit`: the limit that counts the records. `isLast`: it comes after all other writes of the run.
 * `isExempt`: an earlier plan has let it go, and it does not count again.
 */
const BATCH_KINDS = {
  /** Records that no limit counts: looks at objects in doubt, and rows that have only another key. */
  unlimited: {},
  create: { limit: 'create' },
  update: { limit: 'update' },
  overwrite: { limit: 'overwrite' },
  retire: { limit: 'retire', isLast: true },
  releasedRetire: { limit: 'retire', isLast: true, isExempt: true },
  repair: { limit: 'repair' },
  repairRetire: { limit: 'repair', isLast: true },
} as const satisfies Record<string, { limit?: LimitedOperation; isLast?: true; isExempt?: true }>;

export type BatchKind = keyof typeof BATCH_KINDS;

export function limitOf(kind: BatchKind): { limit?: LimitedOperation; isLast?: true; isExempt?: true } {
  return BATCH_KINDS[kind];
}

export interface PlanRequest {
  kind: RunKind;
  range: RunRange | null;
  /** Keys taken from the inbox; undefined: what the range selects. */
  keys?: readonly string[];
  /** Undefined for a preview. */
  runId?: number;
  /** Records that may still be written, over all streams of the run; used up here. `isShort`: some were left out. */
  room: { records: number; isShort?: boolean };
  /** For the questions to the service. */
  context: Context;
}

/** A row that is not sent, and why. With a `deadHash` its record is given up until the row has another hash. */
export interface RefusedRow {
  key: string;
  code: 'key_too_long' | 'external_id_shared';
  message: string;
  externalId?: string;
  deadHash?: string;
}

/** Takes what is planned. A sink that only shows a plan leaves out what writes. */
export interface PlanSink {
  addBatch(kind: BatchKind, entries: readonly WriteEntry[]): Promise<void>;
  /** The last batch was added. What has a limit is stored before it is weighed: runs planned side by side see each other. */
  flush?(isComplete?: boolean): Promise<void>;
  /** Rows of records at the service were found to be gone, or to be in the mirror again. */
  noteRowsGone?(keys: readonly string[]): Promise<void>;
  noteRowsBack?(keys: readonly string[]): Promise<void>;
  /** Rows that are gone, and new ones with the same values. */
  noteRenamed?(renamed: readonly RenamedRow[]): Promise<void>;
  /** Records that are to be sent again although nothing changed: the wish stays with them until they are accepted. */
  wish?(reason: ResendReason, keys: readonly string[]): Promise<void>;
  /** Rows that take objects over: they are looked at. */
  follow?(rows: readonly RecordKey[]): Promise<void>;
  /** Records the service never had, whose rows are gone. */
  forget?(keys: readonly string[]): Promise<void>;
  /** Records that are not in sync, whose rows are gone from a stream that retires nothing. */
  abandon?(keys: readonly string[]): Promise<void>;
  /** Rows that are not sent; not all of them at once. */
  refuse(rows: readonly RefusedRow[]): Promise<void>;
}

/** Records by what is planned for them. `gone`: their rows are gone, and the next whole sync retires them. */
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

/** Keys handed to the sink at once, and objects asked for. */
export const KEYS_AT_ONCE = 1000;

/** So that a change waits for few others: those of its batch, and one that has claimed its record. */
export const KEYS_OF_A_CHANGE = 100;
/** Full requests of a fixed size in one batch: so much waits for the claims of a worker that died to expire. */
const MOST_REQUESTS = 10;

/** How many keys a batch of the stream holds, of a run in this lane. */
export function keysPerBatch({ batchSize, owns }: Pick<Stream, 'batchSize' | 'owns'>, lane?: Lane): number {
  // A fixed size is that of the finds too, and each find is followed by its one write.
  if (batchSize !== 'auto' && owns === 'fields') return batchSize;
  const most = lane === 'incremental' ? KEYS_OF_A_CHANGE : MOST_OBJECTS;
  if (batchSize === 'auto') return most;
  const keys = Math.min(most, batchSize * MOST_REQUESTS);
  return Math.max(batchSize, keys - (keys % batchSize));
}

/** The requests that write a full batch; of a size that is learned, the fewest. */
export const requestsPerBatch = (stream: Stream): number =>
  stream.batchSize === 'auto' ? 1 : Math.ceil(keysPerBatch(stream) / stream.batchSize);

/** Collects values; each full list, and at the end the rest, is handed over. */
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

/** The same for the batches of one stream: a list for each kind. */
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

/** Batch rows written in one statement, and the keys in them. */
const ROWS_AT_ONCE = 200;
const KEYS_IN_ROWS = 100_000;
/** As many are written with the end of the plan, except those that limits count. */
const KEYS_AT_END = 1000;

/**
 * The sink of a run: a stream's batches become rows; retirements go after every write of the run. None is sent before the plan
 * has ended, which takes out what gates keep back. It writes only as long as this is the planner of the run.
 */
export function createBatchWriter(
  { db }: State,
  { name, level, limits }: Stream,
  {
    planner,
    retireLevel,
    meter,
  }: {
    planner: Planner;
    retireLevel: number;
    meter: Meter;
  },
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
      const failures = refused.map(({ key: localKey, ...why }) => ({ localKey, ...why }));
      const dead = refused.filter(({ deadHash }) => deadHash !== undefined).length;
      const counts = { ...NO_OUTCOMES, failed: refused.length - dead, dead };
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
    /** Writes what is left, in the transaction that ends the plan. */
    writeRest: (tx: Queries) => insertBatches(tx, rows),
    /** Batches that send something, with those that gates will keep back. */
    batches: () => batches,
    /** Records in all of them, and those that the plan itself refused. */
    records: () => records,
  };
}
