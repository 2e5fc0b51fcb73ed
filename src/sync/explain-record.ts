// Everything about one record side by side: its row, the object the row becomes, what the state knows and what stands at
// the service. Reads on all sides and writes nothing.
import type { ServiceObject } from '../destination/destination.js';
import type { State } from '../state/database.js';
import { readPlanMarks } from '../state/records/plan-marks.js';
import {
  countChangesOf,
  listBatchesOf,
  readRecord,
  type RecordBatch,
  type RecordRow,
} from '../state/records/read-records.js';
import type { Row } from '../streams/config-schema.js';
import {
  diffObjects,
  hashObject,
  type DestinationObject,
  type FieldChange,
} from '../streams/destination-object.js';
import type { Stream } from '../streams/stream.js';
import { decide, parseMark, type Decision, type Mark } from './decide.js';
import { describeMissing, mergeWithService, renderRows, type Rendered } from './render.js';
import type { SyncDeps } from './sync-deps.js';

export type ExplainDeps = Pick<SyncDeps, 'mirror' | 'destination' | 'state'>;

export interface RecordExplained {
  stream: string;
  key: string;
  /** Undefined: there is no such row. */
  row: Row | undefined;
  object: DestinationObject | undefined;
  /** Why the row does not become an object now. */
  problem: string | undefined;
  record: RecordRow | undefined;
  there: ServiceObject | undefined;
  /** What a write would change there, field by field. */
  changes: FieldChange[];
  /** Whether the object is the one that was accepted last. */
  isAccepted: boolean;
  /** What the next plan does about it. */
  decision: Decision;
  batches: RecordBatch[];
  /** Times it stands in the inbox. */
  waitingChanges: number;
}

const CONTEXT = { lane: 'incremental' } as const;
const MOST_BATCHES = 5;

/** Explains one record of a stream. Throws what mirror, state and service throw. */
export async function explainRecord(
  { mirror, destination, state }: ExplainDeps,
  stream: Stream,
  key: string,
): Promise<RecordExplained> {
  const rows = await mirror.readRows(stream, [key]);
  const found = rows.get(key);
  const record = await readRecord(state.db, stream.name, key);
  const rendered = (await renderRows(state, stream, rows)).get(key);
  const object = rendered && 'object' in rendered ? rendered.object : undefined;
  const externalId = object?.extId ?? record?.externalId ?? undefined;
  const standing =
    externalId === undefined
      ? undefined
      : (await destination.findObjects([externalId], stream.type, CONTEXT)).get(externalId);
  return {
    stream: stream.name,
    key,
    row: found?.row,
    object,
    problem: rendered && problemOf(rendered),
    record,
    there: standing,
    changes: object ? diffObjects(standing, mergeWithService(stream, object, standing)) : [],
    isAccepted: object !== undefined && record?.objectHash === hashObject(object),
    decision: decide(found?.hash, await readMark(state, stream.name, key)),
    batches: await listBatchesOf(state.db, stream.name, key, MOST_BATCHES),
    waitingChanges: await countChangesOf(state.db, stream.name, key),
  };
}

function problemOf(rendered: Rendered): string | undefined {
  if ('problem' in rendered) return rendered.problem;
  return 'missing' in rendered ? describeMissing(rendered.missing) : undefined;
}

async function readMark(state: State, stream: string, key: string): Promise<Mark | undefined> {
  for await (const [line] of readPlanMarks(state, stream, [key]))
    if (line !== undefined) return parseMark(line.slice(line.indexOf('\t') + 1));
  return undefined;
}
