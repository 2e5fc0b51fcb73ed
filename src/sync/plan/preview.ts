// The sink of `plan`: counts, requests, time, and a few records field by field. Reads the mirror, the state and, for what
// stands at the service now, the service. Writes nothing anywhere.
import { codeOf, messageOf, SlotsyncError, UsageError } from '../../errors.js';
import { listRequestSizes } from '../../state/request-sizes.js';
import { FIRST_OBJECTS } from '../../streams/config-schema.js';
import type { PlanCounts } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import { findReadingRemedies, type CostlyBatches } from '../explain-reading.js';
import {
  describeOperations,
  toRefused,
  type Operation,
  type Planned,
  type PlannedOperation,
} from './planned-operations.js';
import { keysPerBatch } from './keys-per-batch.js';
import { planStream, type PlanDeps, type PlanSink } from './plan-stream.js';
import type { RefusedRow } from './refused-rows.js';

type PreviewDeps = PlanDeps;

interface PreviewOptions {
  /** What is written of all streams at most; used up. */
  room?: { records: number };
  signal?: AbortSignal;
  /** Gets every operation, in lists of at most some thousand, while the stream is read. */
  each?: ((operations: readonly PlannedOperation[]) => Promise<void>) | undefined;
}

export type Preview = Awaited<ReturnType<typeof previewStream>>;
/** Samples of each operation. */
const SAMPLES = 5;
/** Objects asked for in one request. */
const AT_ONCE = 1000;
/** A preview waits for every run. */
const CONTEXT = { lane: 'verify' } as const;

/**
 * Previews one stream as a run would plan it; of what would be written, no more than there is `room` for. A fault of its source stands in the answer; failures that may pass are thrown.
 */
export async function previewStream(
  deps: PreviewDeps,
  stream: Stream,
  { room = { records: Infinity }, signal, each }: PreviewOptions = {},
) {
  const preview = {
    stream: stream.name,
    counts: { create: 0, update: 0, retire: 0, moved: 0, unchanged: 0, retry: 0, dead: 0 } as PlanCounts,
    /** At most: a record whose object turns out equal needs none. */
    requests: 0,
    samples: [] as PlannedOperation[],
    /** Why the service could not be asked what stands there now. */
    unread: undefined as string | undefined,
    /** Rows that would not be sent: how many, and the first of them with the reason. */
    refused: 0,
    refusals: [] as Pick<RefusedRow, 'key' | 'code' | 'message'>[],
    /** Why operations would wait for an operator. */
    holds: {} as Awaited<ReturnType<typeof planStream>>['holds'],
    /** Where each batch reads the whole source: how much that is, and what helps. */
    costly: undefined as (CostlyBatches & { remedies: string[] }) | undefined,
    /** Why the stream cannot be planned at all. */
    error: undefined as { code: string; message: string } | undefined,
  };
  const chosen = new Map<Operation, Planned[]>();
  /** Records by the limit that they fall under. */
  /** Of them, those the service has accepted nothing of. */
  let created = 0;
  const records = { create: 0, update: 0, retire: 0, overwrite: 0, repair: 0, unlimited: 0 };
  /** What is written down must be true. Samples are shown with the reason why they may not be. */
  async function orUnread<T>(answer: Promise<T>, nothing: () => T | Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      if (each) throw error;
      preview.unread = `${messageOf(error)} (${codeOf(error)})`;
      return nothing();
    }
  }
  const { findObjects, findObjectsByNumber, findObjectsByFields, readType } = deps.destination;
  const destination: PreviewDeps['destination'] = {
    ...deps.destination,
    findObjects: (...asked) => orUnread(findObjects(...asked), () => new Map()),
    findObjectsByNumber: (...asked) => orUnread(findObjectsByNumber(...asked), () => new Map()),
    findObjectsByFields: (...asked) => orUnread(findObjectsByFields(...asked), () => []),
    readType: (typeId, asked, read) =>
      orUnread(readType(typeId, asked, read), () => read((async function* () {})())),
  };
  const asking = { ...deps, destination };
  const context = { ...CONTEXT, signal };
  let open: Planned[] = [];
  async function handOver(): Promise<void> {
    if (each && open.length > 0) await each(await describeOperations(asking, stream, open, context));
    open = [];
  }
  const sink: PlanSink = {
    async addBatch({ limit, entries }) {
      records[limit ?? 'unlimited'] += entries.length;
      created += entries.filter(({ operation, isNew }) => operation === 'create' || isNew).length;
      for (const entry of entries) {
        const operation = limit === 'overwrite' ? limit : entry.operation;
        const planned = { operation, key: entry.key };
        if (each) open.push(planned);
        const ofOperation = chosen.get(operation) ?? [];
        if (ofOperation.length < SAMPLES) chosen.set(operation, [...ofOperation, planned]);
      }
      if (open.length >= AT_ONCE) await handOver();
    },
    flush: handOver,
    async refuse(refused) {
      preview.refused += refused.length;
      const named = refused.slice(0, SAMPLES - preview.refusals.length);
      preview.refusals.push(...named.map(({ key, code, message }) => ({ key, code, message })));
      await each?.(refused.map(toRefused));
    },
  };
  const range = room.records < Infinity ? { limit: room.records } : null;
  try {
    const request = { kind: 'sync', range, room, context } as const;
    const { counts, holds, questions, costly } = await planStream(asking, stream, request, sink);
    preview.counts = counts;
    preview.holds = holds;
    if (costly) preview.costly = { ...costly, remedies: findReadingRemedies(stream, costly) };
    preview.requests = questions;
    if (stream.owns === 'object') preview.requests += Math.ceil(created / keysPerBatch(stream));
    // What is held costs nothing.
    const inOneRequest = await readRequestSize(deps, stream);
    for (const [limit, count] of Object.entries(records))
      if (!Object.hasOwn(holds, limit))
        preview.requests += countRequests(stream, count, { inOneRequest, retires: limit === 'retire' });
    preview.samples = await describeOperations(asking, stream, [...chosen.values()].flat(), context);
  } catch (error) {
    // What `each` throws is no fault of the stream.
    if (!(error instanceof SlotsyncError) || error instanceof UsageError || error.disposition !== 'dead')
      throw error;
    preview.error = { code: error.code, message: error.message };
  }
  return preview;
}

/** Objects that the next requests of the stream hold. */
async function readRequestSize({ state }: PreviewDeps, { type, batchSize }: Stream): Promise<number> {
  if (batchSize !== 'auto') return batchSize;
  const known = (await listRequestSizes(state.db)).find((one) => one.type === type);
  return known?.objects ?? FIRST_OBJECTS;
}

/**
 * Requests that so many records take when all of them must be sent: reads, unless the mapping owns the object; for
 * retirements a look at the reservations; and writes. A batch looks for its creates in any case.
 */
function countRequests(
  { owns, unlessReserved, batchSize }: Stream,
  records: number,
  { inOneRequest, retires }: { inOneRequest: number; retires: boolean },
): number {
  const reads = Math.ceil(records / (batchSize === 'auto' ? AT_ONCE : batchSize));
  const looks = Number(retires || owns === 'fields') + Number(retires && unlessReserved);
  return Math.ceil(records / inOneRequest) + looks * reads;
}

/** Seconds the requests take when the quota is used up all the time: rate / (1 + mean latency). */
export function secondsAtQuota(requests: number, requestsPerSecond: number, latencyMs: number): number {
  return (requests * (1 + latencyMs / 1000)) / requestsPerSecond;
}
