// The sink of `plan`: counts, requests, time, and a few records field by field. Reads the mirror, the state and, for what
// stands at the service now, the service. Writes nothing anywhere.
import { codeOf, messageOf, SlotsyncError, UsageError } from '../../errors/errors.js';
import type { RenamedRow } from '../../state/records/gone-rows.js';
import { FIRST_OBJECTS, MOST_OBJECTS } from '../../streams/config-schema.js';
import type { LoadFacts, PlanCounts } from '../../state/schema.js';
import { readsFirst, type Stream } from '../../streams/stream.js';
import { foreseeIds, type ForeseenIds, type Handover } from '../identity/changed-ids.js';
import { toLoadFacts } from '../limits/load-age.js';
import {
  describeOperations,
  toRefused,
  type Operation,
  type Planned,
  type PlannedOperation,
} from './planned-operations.js';
import { collectLists, keysPerBatch, limitOf, type BatchKind, type PlanSink } from './planned-batches.js';
import type { PlanDeps } from './existing-objects.js';
import type { WriteEntry } from './merge-readings.js';
import { planStream } from './plan-stream.js';

interface PreviewOptions {
  /** Records that may be written of all streams; used up. */
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
 * Previews one stream as a run would plan it; of what would be written, no more than there is `room` for. A fault of its
 * source stands in the answer; failures that may pass are thrown.
 */
export async function previewStream(
  deps: PlanDeps,
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
    refusals: [] as { key: string; code: string; message: string }[],
    /** Objects that change hands, with their bookings: how many, and the first of them. */
    handedOver: 0,
    handovers: [] as Handover[],
    /** Rows that are gone and new ones with the same values. */
    renamed: [] as RenamedRow[],
    /** The gates that would be closed, by operation. */
    holds: {} as Awaited<ReturnType<typeof planStream>>['holds'],
    /** Why the stream is frozen; null: it is not. */
    frozen: null as string | null,
    /** The problem of the load of the mirror, also where that holds nothing. */
    load: undefined as LoadFacts | undefined,
    /** Why the stream cannot be planned at all. */
    error: undefined as { code: string; message: string } | undefined,
  };
  // A file of operations must be complete. Samples are shown with the reason why they may not be.
  const destination = each
    ? deps.destination
    : withoutFailures(deps.destination, (reason) => (preview.unread = reason));
  const asking = { ...deps, destination };
  const context = { ...CONTEXT, signal };
  const describe = (operations: readonly Planned[]) =>
    describeOperations(asking, stream, operations, context);
  const foresee = (keys: readonly string[]) => foreseeIds(asking, stream, keys);
  const { sink, chosen } = createPreviewSink(preview, foresee, each && { each, describe });
  const range = room.records < Infinity ? { limit: room.records } : null;
  try {
    const request = { kind: 'sync', range, room, context } as const;
    const { counts, holds, load, questions, renamed, standing } = await planStream(
      asking,
      stream,
      request,
      sink,
    );
    preview.frozen = standing.frozen;
    preview.counts = counts;
    preview.holds = holds;
    preview.load = load && toLoadFacts(load);
    preview.renamed = renamed;
    preview.requests =
      questions + countRequests(stream, chosen, Object.keys(holds), deps.destination.patches);
    preview.samples = await describe([...chosen.samples.values()].flat());
  } catch (error) {
    // An error of `each` is no fault of the stream.
    if (!(error instanceof SlotsyncError) || error instanceof UsageError || error.disposition !== 'dead')
      throw error;
    preview.error = { code: error.code, message: error.message };
  }
  return preview;
}

/** Whether something is to be sent, and none of the rows that were tried can be. */
export function isUnsendable({ samples, refused }: Pick<Preview, 'samples' | 'refused'>): boolean {
  const written = samples.filter(({ operation }) => operation !== 'retire');
  return written.length + refused > 0 && written.every(({ problem }) => problem !== undefined);
}

/** The sink of a preview: it counts, keeps samples, and hands every operation over where that is asked for. */
function createPreviewSink(
  preview: Pick<Preview, 'refused' | 'refusals' | 'handedOver' | 'handovers'>,
  foresee: (keys: readonly string[]) => Promise<ForeseenIds>,
  listing:
    | {
        each: NonNullable<PreviewOptions['each']>;
        describe: (operations: readonly Planned[]) => Promise<PlannedOperation[]>;
      }
    | undefined,
) {
  const chosen = {
    samples: new Map<Operation, Planned[]>(),
    /** Records by the limit that they fall under. */
    records: { create: 0, update: 0, retire: 0, overwrite: 0, repair: 0, unlimited: 0 },
    /** Records that the service has accepted nothing of. */
    unaccepted: 0,
  };
  const listed = collectLists<Planned>(AT_ONCE, async (entries) => {
    const written = entries.flatMap(({ operation, key }) => (operation === 'retire' ? [] : key));
    const { problems, handovers } = await foresee(written);
    note([...problems].map(([key, { code, message }]) => ({ key, code, message })));
    preview.handedOver += handovers.length;
    for (const handover of handovers.slice(0, SAMPLES - preview.handovers.length))
      preview.handovers.push(handover);
    const operations = entries.map((one) => ({ ...one, problem: problems.get(one.key)?.message }));
    for (const planned of operations) {
      if (planned.problem !== undefined) continue;
      const samples = chosen.samples.get(planned.operation) ?? [];
      if (samples.length < SAMPLES) chosen.samples.set(planned.operation, [...samples, planned]);
    }
    if (listing) await listing.each(await listing.describe(operations));
  });
  function note(refused: readonly Preview['refusals'][number][]): void {
    preview.refused += refused.length;
    for (const { key, code, message } of refused.slice(0, SAMPLES - preview.refusals.length))
      preview.refusals.push({ key, code, message });
  }
  const sink: PlanSink = {
    async addBatch(kind, entries) {
      const { limit } = limitOf(kind);
      chosen.records[limit ?? 'unlimited'] += entries.length;
      chosen.unaccepted += entries.filter(({ operation, isNew }) => operation === 'create' || isNew).length;
      for (const { operation, key } of entries)
        await listed.add({ operation: shownAs(kind, operation), key });
    },
    flush: listed.flush,
    async refuse(refused) {
      note(refused);
      await listing?.each(refused.map(toRefused));
    },
  };
  return { sink, chosen };
}

/** A row that takes over an object creates none: it changes it, or only moves it to another key. */
function shownAs(kind: BatchKind, operation: WriteEntry['operation']): Operation {
  if (kind === 'overwrite') return kind;
  if (operation !== 'create' || kind === 'create') return operation;
  return kind === 'update' ? kind : 'move';
}

/** The destination, which answers with nothing where it fails; `failed` gets the reason. */
function withoutFailures(
  destination: PlanDeps['destination'],
  failed: (reason: string) => void,
): PlanDeps['destination'] {
  const orNothing =
    <A extends unknown[], T>(ask: (...asked: A) => Promise<T>, nothing: T) =>
    async (...asked: A): Promise<T> => {
      try {
        return await ask(...asked);
      } catch (error) {
        failed(`${messageOf(error)} (${codeOf(error)})`);
        return nothing;
      }
    };
  return {
    ...destination,
    findObjects: orNothing(destination.findObjects, new Map()),
    findObjectsByNumber: orNothing(destination.findObjectsByNumber, new Map()),
    findObjectsByFields: orNothing(destination.findObjectsByFields, []),
    listObjects: orNothing(destination.listObjects, []),
  };
}

/** Requests that write so many objects; with `auto` each holds twice as many as the one before it, as the service may take. */
function countWrites(objects: number, { batchSize }: Stream): number {
  if (batchSize !== 'auto') return Math.ceil(objects / batchSize);
  let requests = 0;
  let size = FIRST_OBJECTS;
  for (let rest = objects; rest > 0; requests++) {
    rest -= size;
    size = Math.min(MOST_OBJECTS, 2 * size);
  }
  return requests;
}

/**
 * Requests that the operations take when all of them must be sent: reads, unless the mapping owns the object; for retirements a
 * look at the reservations; and writes. What is held costs nothing. A batch looks for its creates in any case.
 */
function countRequests(
  stream: Stream,
  { records, unaccepted }: ReturnType<typeof createPreviewSink>['chosen'],
  held: readonly string[],
  patches: boolean,
): number {
  const { unlessReserved, batchSize } = stream;
  const isRead = readsFirst(stream, { patches });
  let requests = !isRead ? Math.ceil(unaccepted / keysPerBatch(stream)) : 0;
  for (const [limit, count] of Object.entries(records)) {
    if (held.includes(limit)) continue;
    const retires = limit === 'retire';
    const reads = Math.ceil(count / (batchSize === 'auto' ? AT_ONCE : batchSize));
    const looks = Number(retires || isRead) + Number(retires && unlessReserved);
    requests += countWrites(count, stream) + looks * reads;
  }
  return requests;
}

/** Seconds the requests take when the quota is used up all the time: rate / (1 + mean latency). */
export function secondsAtQuota(requests: number, requestsPerSecond: number, latencyMs: number): number {
  return (requests * (1 + latencyMs / 1000)) / requestsPerSecond;
}
