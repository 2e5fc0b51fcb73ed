// The sink of a run: batches become rows, several in one statement. None is sent before the plan has ended, which takes out what
// gates keep back. It writes only as long as this is the planner of the run.
import { NO_OUTCOMES } from '../../state/records/outcome-types.js';
import type { Queries, State } from '../../state/database.js';
import { addChanges } from '../../state/inbox/add-changes.js';
import type { Meter } from '../../process/meter.js';
import { failRecords } from '../../state/records/settle-records.js';
import {
  abandonRecords,
  forgetRecords,
  noteBack,
  noteGone,
  noteRenamed,
} from '../../state/records/gone-rows.js';
import { wishAgain } from '../../state/records/resend.js';
import { insertBatches, type NewBatch } from '../../state/runs/batches.js';
import { asPlanner, type Planner } from '../../state/runs/claim-planning.js';
import type { Stream } from '../../streams/stream.js';
import { limitOf, type PlanSink } from './planned-batches.js';

/** Batch rows written in one statement, and the keys in them. */
const ROWS_AT_ONCE = 200;
const KEYS_AT_ONCE = 100_000;
/** As many are written with the end of the plan, except those that limits count. */
const KEYS_AT_END = 1000;

/** Writes a stream's batches; retirements go after every write of the run. */
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
      if (rows.length >= ROWS_AT_ONCE || keysInRows >= KEYS_AT_ONCE) await flush();
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
