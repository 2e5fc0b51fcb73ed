// Collects the keys of a plan into batches of the stream's size, and batches into statements. What a limit is set for
// goes into batches of its own, which start out held: only once the whole stream was read is it known how many there are.
import type { State } from '../../state/database.js';
import { forgetRecords, noteBack, noteGone, readLongGone } from '../../state/records/gone-rows.js';
import { insertBatches, releaseHeldBatches, type NewBatch } from '../../state/runs/batches.js';
import { LIMITED_OPERATIONS, type LimitedOperation } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import { hasLimit } from './limits.js';
import type { PlanEntry } from './merge-readings.js';

export interface BatchWriterOptions {
  runId: number;
  /** Retirements go after every write of the run. */
  retireLevel: number;
  /** Keys that may still be sent, over all streams of the run. */
  room: { keys: number };
}

/** Batch rows, and keys of records without an object, written in one statement. */
const ROWS_AT_ONCE = 200;
const KEYS_AT_ONCE = 1000;

export type BatchWriter = ReturnType<typeof createBatchWriter>;

export function createBatchWriter({ db }: State, stream: Stream, options: BatchWriterOptions) {
  const { runId, retireLevel, room } = options;
  const counts: Record<LimitedOperation, number> = { create: 0, update: 0, retire: 0 };
  const open = new Map<LimitedOperation | undefined, string[]>();
  let passed = 0;
  let gone: PlanEntry[] = [];
  let back: string[] = [];
  let forgetting: string[] = [];
  let rows: NewBatch[] = [];
  let batches = 0;

  async function add(operation: LimitedOperation | undefined, key: string): Promise<void> {
    const keys = open.get(operation) ?? [];
    open.set(operation, keys);
    if (keys.push(key) >= stream.batchSize) await close(operation);
  }

  async function close(operation: LimitedOperation | undefined): Promise<void> {
    const keys = open.get(operation) ?? [];
    open.delete(operation);
    if (keys.length === 0) return;
    batches++;
    const level = operation === 'retire' ? retireLevel : stream.level;
    const state = operation === undefined ? 'planned' : 'held';
    rows.push({ runId, stream: stream.name, level, keys, state, operation });
    if (rows.length >= ROWS_AT_ONCE) await insert();
  }

  async function insert(): Promise<void> {
    await insertBatches(db, rows);
    rows = [];
  }

  /** Those whose row has been gone for as long as the stream waits. */
  async function retireGone(): Promise<void> {
    const due = await chooseLongGone(gone);
    gone = [];
    for (const difference of due) {
      counts.retire++;
      if (difference.passed) passed++;
      await add('retire', difference.key);
    }
  }

  async function chooseLongGone(differences: PlanEntry[]): Promise<PlanEntry[]> {
    if (stream.graceDays === 0) return differences;
    const keys = differences.map(({ key }) => key);
    await noteGone(db, stream.name, keys);
    const due = await readLongGone(db, stream.name, keys, stream.graceDays);
    return differences.filter(({ key }) => due.has(key));
  }

  async function resetBack(): Promise<void> {
    await noteBack(db, stream.name, back);
    back = [];
  }

  async function forgetAll(): Promise<void> {
    await forgetRecords(db, stream.name, forgetting);
    forgetting = [];
  }

  return {
    counts,
    batches: () => batches,
    /** Retirements among them that an earlier plan has let through. */
    passed: () => passed,

    async write(
      operation: Exclude<PlanEntry['operation'], 'retire' | 'forget' | 'back'>,
      key: string,
    ): Promise<void> {
      if (room.keys <= 0) return;
      room.keys--;
      if (operation === 'retry') return add(undefined, key);
      counts[operation]++;
      await add(hasLimit(stream, operation) ? operation : undefined, key);
    },

    async retire(difference: PlanEntry): Promise<void> {
      if (gone.push(difference) >= KEYS_AT_ONCE) await retireGone();
    },

    /** The row is there again. */
    async reset(key: string): Promise<void> {
      if (back.push(key) >= KEYS_AT_ONCE) await resetBack();
    },

    async forget(key: string): Promise<void> {
      if (forgetting.push(key) >= KEYS_AT_ONCE) await forgetAll();
    },

    async flush(): Promise<void> {
      if (gone.length > 0) await retireGone();
      if (back.length > 0) await resetBack();
      if (forgetting.length > 0) await forgetAll();
      for (const operation of [undefined, ...LIMITED_OPERATIONS]) await close(operation);
      await insert();
    },

    /** No hold: its batches may go when it is their turn. */
    async letGo(operation: LimitedOperation): Promise<void> {
      await releaseHeldBatches(db, { runId, stream: stream.name, operation }, 'planned');
    },
  };
}
