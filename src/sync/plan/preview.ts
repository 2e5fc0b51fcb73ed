// The sink of `plan`: counts, requests, time, and a few records field by field. Reads the mirror, the state and, for what
// stands at the service now, the service. Writes nothing anywhere.
import type { ServiceObject } from '../../destination/destination.js';
import { codeOf, messageOf, SlotsyncError } from '../../errors.js';
import { readRecordIds } from '../../state/records/external-ids.js';
import { createObject, diffObjects } from '../../streams/destination-object.js';
import type { PlanCounts } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import { mergeWithService, renderRows, type Rendered } from '../render.js';
import type { SyncDeps } from '../sync-deps.js';
import type { WriteEntry } from './merge-readings.js';
import { planStream, requestsPerBatch, type PlanSink } from './plan-stream.js';
import type { RefusedRow } from './refused-rows.js';

type PreviewDeps = Pick<SyncDeps, 'mirror' | 'state' | 'destination' | 'streams'>;
type Operation = WriteEntry['operation'];

export type Preview = Awaited<ReturnType<typeof previewStream>>;
/** One record of a plan: what its write would change, or why there would be none. */
export type Sample = Preview['samples'][number];

/** Samples of each operation. */
const SAMPLES = 5;

/**
 * Previews one stream as a run would plan it; of what would be written, no more than there is `room` for, which is used
 * up. A fault of its source stands in the answer; failures that may pass are thrown.
 */
export async function previewStream(
  deps: PreviewDeps,
  stream: Stream,
  { room = { records: Infinity }, signal }: { room?: { records: number }; signal?: AbortSignal } = {},
) {
  const preview = {
    stream: stream.name,
    counts: { create: 0, update: 0, retire: 0, moved: 0, unchanged: 0, retry: 0, dead: 0 } as PlanCounts,
    /** At most: a record whose object turns out equal needs none. */
    requests: 0,
    samples: [] as NonNullable<Awaited<ReturnType<typeof takeSamples>>>['samples'],
    /** Why the service could not be asked what stands there now. */
    unread: undefined as string | undefined,
    /** Rows that would not be sent: how many, and the first of them with the reason. */
    refused: 0,
    refusals: [] as Pick<RefusedRow, 'key' | 'code' | 'message'>[],
    /** Why operations would wait for an operator. */
    holds: {} as Awaited<ReturnType<typeof planStream>>['holds'],
    /** Why the stream cannot be planned at all. */
    error: undefined as { code: string; message: string } | undefined,
  };
  const chosen = new Map<Operation, string[]>();
  const batches = { create: 0, update: 0, retire: 0, overwrite: 0, repair: 0, unlimited: 0 };
  const sink: PlanSink = {
    async addBatch({ limit, isLast, entries }) {
      // Records that moved are let go of; that sends nothing.
      if (limit === undefined && isLast) return;
      batches[limit ?? 'unlimited']++;
      for (const { operation, key } of entries) {
        const keys = chosen.get(operation) ?? [];
        if (keys.length < SAMPLES) chosen.set(operation, [...keys, key]);
      }
    },
    async refuse(refused) {
      preview.refused += refused.length;
      const named = refused.slice(0, SAMPLES - preview.refusals.length);
      preview.refusals.push(...named.map(({ key, code, message }) => ({ key, code, message })));
    },
  };
  const range = room.records < Infinity ? { limit: room.records } : null;
  try {
    const { counts, holds } = await planStream(deps, stream, { kind: 'sync', range, room }, sink);
    preview.counts = counts;
    preview.holds = holds;
    // What is held costs nothing.
    for (const [limit, count] of Object.entries(batches))
      if (!Object.hasOwn(holds, limit))
        preview.requests += count * requestsPerBatch(stream, limit === 'retire');
    Object.assign(preview, await takeSamples(deps, stream, chosen, signal));
  } catch (error) {
    if (!(error instanceof SlotsyncError) || error.disposition !== 'dead') throw error;
    preview.error = { code: error.code, message: error.message };
  }
  return preview;
}

async function takeSamples(
  { mirror, state, destination }: PreviewDeps,
  stream: Stream,
  chosen: ReadonlyMap<Operation, string[]>,
  signal: AbortSignal | undefined,
) {
  const keys = [...chosen.values()].flat();
  if (keys.length === 0) return undefined;
  const known = await readRecordIds(state.db, stream.name, keys);
  const rows = await mirror.readRows(stream, keys);
  // A reference that is not at the service yet is shown by its key: the same run may bring it.
  const rendered = await renderRows(state, stream, rows, (parent) => `(${parent.stream} ${parent.localKey})`);
  const sampled = [...chosen].flatMap(([operation, ofOperation]) =>
    ofOperation.map((key) => {
      const result = rendered.get(key);
      const externalId = result && 'extId' in result ? result.extId : known.get(key);
      return { operation, key, externalId, result };
    }),
  );
  let found = new Map<string, ServiceObject>();
  let unread: string | undefined;
  try {
    const extIds = sampled.flatMap(({ externalId = [] }) => externalId);
    found = await destination.findObjects(extIds, stream.type, { lane: 'incremental', signal });
  } catch (error) {
    unread = `${messageOf(error)} (${codeOf(error)})`;
  }
  const samples = sampled.map(({ result, ...sample }) => ({
    ...sample,
    changes: changesOf(stream, result, found.get(sample.externalId ?? '')),
    problem: result && 'problem' in result ? result.problem : undefined,
  }));
  return { samples, unread };
}

/** What the write of a rendered row, or without a row the retirement, would change. */
function changesOf(stream: Stream, result: Rendered | undefined, standing: ServiceObject | undefined) {
  if (!result) return standing ? diffObjects(standing, { ...standing, active: false }) : [];
  if ('problem' in result) return [];
  const object = 'object' in result ? result.object : createObject(result.extId, stream.type, true, []);
  return diffObjects(standing, mergeWithService(stream, object, standing));
}

/** Seconds the requests take when the quota is used up all the time: rate / (1 + mean latency). */
export function secondsAtQuota(requests: number, requestsPerSecond: number, latencyMs: number): number {
  return (requests * (1 + latencyMs / 1000)) / requestsPerSecond;
}
