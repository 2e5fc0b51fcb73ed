// The sink of a run: batches become rows, several in one statement. What falls under a limit starts out held: only once
// the whole stream was read is it known how many there are.
import { NO_OUTCOMES } from '../../state/records/outcome-types.js';
import type { State } from '../../state/database.js';
import type { Meter } from '../../meter.js';
import { failRecords } from '../../state/records/mark-failed.js';
import { forgetRecords, noteBack, noteGone } from '../../state/records/gone-rows.js';
import { insertBatches, releaseHeldBatches, type NewBatch } from '../../state/runs/batches.js';
import type { Stream } from '../../streams/stream.js';
import type { PlanSink } from './plan-stream.js';

/** Batch rows written in one statement. */
const ROWS_AT_ONCE = 200;

/** Writes a stream's batches; retirements go after every write of the run. */
export function createBatchWriter(
  { db }: State,
  { name, level }: Stream,
  { runId, retireLevel, meter }: { runId: number; retireLevel: number; meter: Meter },
) {
  let rows: NewBatch[] = [];
  let batches = 0;

  async function flush(): Promise<void> {
    await insertBatches(db, rows);
    rows = [];
  }

  const sink: PlanSink = {
    async addBatch({ limit, entries }) {
      batches++;
      rows.push({
        runId,
        stream: name,
        level: limit === 'retire' ? retireLevel : level,
        keys: entries.map(({ key }) => key),
        state: limit === undefined ? 'planned' : 'held',
        operation: limit,
      });
      if (rows.length >= ROWS_AT_ONCE) await flush();
    },
    flush,
    release: (operation) => releaseHeldBatches(db, { runId, stream: name, operation }, 'planned'),
    noteRowsGone: (keys) => noteGone(db, name, keys),
    noteRowsBack: (keys) => noteBack(db, name, keys),
    forget: (keys) => forgetRecords(db, name, keys),
    async refuse(refused) {
      const failures = refused.map(({ key: localKey, ...why }) => ({ localKey, ...why }));
      await failRecords(db, name, runId, failures);
      const dead = refused.filter(({ deadHash }) => deadHash !== undefined).length;
      const counts = { ...NO_OUTCOMES, failed: refused.length - dead, dead };
      const finished = { state: 'done', counts, finishedAt: new Date() } as const;
      await insertBatches(db, [
        { runId, stream: name, level, keys: refused.map(({ key }) => key), ...finished },
      ]);
      meter.settled(name, counts);
    },
  };
  return {
    sink,
    /** Batches that send something, held ones included. */
    batches: () => batches,
  };
}
