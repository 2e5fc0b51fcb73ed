// The batches of a plan. A batch is claimed, read and settled as one, and written in as many requests as it takes.
import type { Lane } from '../../destination/quota/limiter.js';
import type { RenamedRow } from '../../state/records/gone-rows.js';
import type { RecordKey } from '../../state/records/outcome-types.js';
import type { LimitedOperation, ResendReason } from '../../state/schema.js';
import { MOST_OBJECTS } from '../../streams/config-schema.js';
import type { Stream } from '../../streams/stream.js';
import type { WriteEntry } from './merge-readings.js';
import type { RefusedRow } from './refused-rows.js';

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
