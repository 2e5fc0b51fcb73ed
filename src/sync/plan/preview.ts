// Previews the plan of a stream for `slotsync plan`: counts, number of requests, and some records field by field. Reads
// mirror, state and service, and writes nothing.
import { codeOf, messageOf, SlotsyncError, UsageError } from '../../errors/errors.js';
import { listRecordedStreams } from '../../state/records/read/count-records.js';
import { listFailures } from '../../state/records/read/failures.js';
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
import type { PlanDeps, TypeObjects } from './existing-objects.js';
import type { WriteEntry } from './merge-readings.js';
import { planStream } from './plan-stream.js';

interface PreviewOptions {
  /** Number of records that may still be written in all streams. Each preview subtracts its own. */
  room?: { records: number };
  /** Called with all operations, in lists of about 1,000, while the stream is read. */
  each?: ((operations: readonly PlannedOperation[]) => Promise<void>) | undefined;
}

type Describe = (operations: readonly Planned[]) => Promise<PlannedOperation[]>;

export type Preview = Awaited<ReturnType<typeof previewStream>>;
/** Maximum number of examples for each operation. */
const SAMPLES = 5;
/** Maximum number of objects in one request that reads objects. */
const AT_ONCE = 1000;
/** Lane of lowest priority, so that runs send their requests first. */
const CONTEXT = { lane: 'verify' } as const;

/**
 * Previews a stream as a run would plan it, with at most `room` writes. A permanent fault of the source is returned in
 * `error`. Errors that may pass are thrown.
 */
export async function previewStream(
  deps: PlanDeps,
  stream: Stream,
  { room = { records: Infinity }, each }: PreviewOptions = {},
) {
  const preview = {
    stream: stream.name,
    counts: { create: 0, update: 0, retire: 0, moved: 0, unchanged: 0, retry: 0, dead: 0 } as PlanCounts,
    /** Maximum number of requests. Fewer are needed if objects turn out to be equal. */
    requests: 0,
    samples: [] as PlannedOperation[],
    /** Why the service could not be asked about existing objects. */
    unread: undefined as string | undefined,
    /** Number of rows that would not be sent, and some of these rows with the reason. */
    refused: 0,
    refusals: [] as { key: string; code: string; message: string }[],
    /** Number of objects that would pass to another record, and some of them. */
    handedOver: 0,
    handovers: [] as Handover[],
    /** Pairs of a deleted row and a new row that have equal values. */
    renamed: [] as RenamedRow[],
    /** Number of deleted rows whose objects stay, because the stream has `retire: 'keep'`. */
    kept: 0,
    /** Given-up records whose linked object is gone, or has another external id. */
    broken: [] as { localKey: string; errorMessage: string | null }[],
    /** Number of objects that are those of no record and no planned row. Counted only before the first sync. */
    unowned: 0,
    /** Records that gates would hold, by operation. */
    holds: {} as Awaited<ReturnType<typeof planStream>>['holds'],
    /** Why the stream is frozen. Null if it is not. */
    frozen: null as string | null,
    /** Problem of the mirror's load, even if no record is held because of it. */
    load: undefined as LoadFacts | undefined,
    /** Why the stream cannot be planned at all. */
    error: undefined as { code: string; message: string } | undefined,
  };
  // For a file, errors of the service are thrown, because the file must be complete. Otherwise `unread` reports them.
  const destination = each
    ? deps.destination
    : withoutFailures(deps.destination, (reason) => (preview.unread = reason));
  const asking = { ...deps, destination };
  const describe: Describe = (operations) => describeOperations(asking, stream, operations, CONTEXT);
  const foresee = (keys: readonly string[]) => foreseeIds(asking, stream, keys);
  const { sink, chosen } = createPreviewSink(preview, foresee, each && { each, describe });
  const range = room.records < Infinity ? { limit: room.records } : null;
  try {
    const request = { kind: 'sync', range, room, context: CONTEXT } as const;
    const planned = await planStream(asking, stream, request, sink);
    const { load, holds } = planned;
    preview.frozen = planned.standing.frozen;
    preview.counts = planned.counts;
    preview.holds = holds;
    preview.load = load && toLoadFacts(load);
    preview.renamed = planned.renamed;
    preview.kept = planned.kept;
    const broken = { stream: stream.name, status: 'dead', code: 'link_broken', limit: SAMPLES } as const;
    preview.broken = await listFailures(deps.state.db, broken);
    const requests = countRequests(stream, chosen, Object.keys(holds), deps.destination.patches);
    preview.requests = planned.questions + requests;
    const examples = [...chosen.samples.values()].flat();
    preview.samples = await describeOperations(asking, stream, examples, CONTEXT, planned.typeObjects);
    if (range === null && planned.counts.create > 0 && preview.unread === undefined)
      preview.unowned = await countUnowned(deps, stream, planned.typeObjects, preview);
  } catch (error) {
    // Errors of `each`, such as a full disk, do not belong to the stream.
    if (!(error instanceof SlotsyncError) || error instanceof UsageError || error.disposition !== 'dead')
      throw error;
    preview.error = { code: error.code, message: error.message };
  }
  return preview;
}

/** Returns true if there is something to write, but none of the examples can be sent. */
export function isUnsendable({ samples, refused }: Pick<Preview, 'samples' | 'refused'>): boolean {
  const written = samples.filter(({ operation }) => operation !== 'retire');
  return written.length + refused > 0 && written.every(({ problem }) => problem !== undefined);
}

/** Creates the sink of a preview. It counts records, keeps examples, and passes operations to `listing`. */
function createPreviewSink(
  preview: Pick<Preview, 'refused' | 'refusals' | 'handedOver' | 'handovers'>,
  foresee: (keys: readonly string[]) => Promise<ForeseenIds>,
  listing: { each: NonNullable<PreviewOptions['each']>; describe: Describe } | undefined,
) {
  const chosen = {
    samples: new Map<Operation, Planned[]>(),
    /** Number of records for each limit. */
    records: { create: 0, update: 0, retire: 0, overwrite: 0, repair: 0, unlimited: 0 },
    /** Number of records that the service has never accepted. */
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

/** Returns the operation to show. A create that takes over an existing object is shown as an update or a move. */
function shownAs(kind: BatchKind, operation: WriteEntry['operation']): Operation {
  if (kind === 'overwrite') return kind;
  if (operation !== 'create' || kind === 'create') return operation;
  return kind === 'update' ? kind : 'move';
}

/** Returns the destination with failing reads replaced by empty results. `failed` is called with each error. */
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

/**
 * Counts the objects that are those of no record and no planned row. Returns 0 if a stream with these types has records.
 * The request takes the place of that for the examples. If they needed one, or there are several types, returns 0 too.
 */
async function countUnowned(
  { state, streams }: PlanDeps,
  { objectTypes }: Stream,
  objects: TypeObjects,
  { samples, counts: { equal = 0, overwrite = 0 } }: Pick<Preview, 'samples' | 'counts'>,
): Promise<number> {
  const isSpared = objects.isKnown(samples.flatMap(({ externalId }) => externalId ?? []));
  if (objectTypes.size > 1 || !isSpared) return 0;
  const mayOwn = (name: string) =>
    [...objectTypes].some((type) => streams.get(name)?.objectTypes.has(type) ?? true);
  if ((await listRecordedStreams(state.db)).some(mayOwn)) return 0;
  const count = await objects.count();
  return count < Infinity ? Math.max(0, count - equal - overwrite) : 0;
}

/** Returns the number of write requests. With `auto`, each request may have twice the objects of the previous one. */
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
 * Returns the number of requests if all objects must be written: reads, reservation checks of deactivations, and
 * writes. Held records need no requests. A batch always searches for existing objects of its creates.
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

/** Returns the seconds that the requests take at full quota. Each slot serves one request in 1 s plus the latency. */
export function secondsAtQuota(requests: number, requestsPerSecond: number, latencyMs: number): number {
  return (requests * (1 + latencyMs / 1000)) / requestsPerSecond;
}
