// A plan that is only looked at: counts, requests, time, and a few records field by field. Reads the mirror,
// the state and, for what stands there now, the service. Writes nothing anywhere.
import type { Destination, ServiceObject } from '../../destination/destination.js';
import { codeOf, messageOf, SlotsyncError } from '../../errors.js';
import { readOpenApprovals } from '../../state/runs/approvals.js';
import { readExternalIds, readLongGone, readRecordIds } from '../../state/records/records.js';
import { LIMITED_OPERATIONS, type LimitedOperation, type Hold, type PlanCounts } from '../../state/schema.js';
import { mapRow, toObject } from '../../streams/map-row.js';
import {
  createObject,
  diffObjects,
  mergeObject,
  type FieldChange,
} from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import type { PlanEntry } from './merge-readings.js';
import { explainHold, hasLimit } from './limits.js';
import {
  explainSharedIds,
  planStream,
  requestsPerBatch,
  toPlanCounts,
  type PlanDeps,
} from './plan-stream.js';

export interface PreviewDeps extends PlanDeps {
  destination: Destination;
}

/** One record of a plan: what its write would change, or why there would be none. */
export interface Sample {
  operation: 'create' | 'update' | 'retry' | 'retire';
  key: string;
  externalId: string | undefined;
  changes: FieldChange[];
  problem: string | undefined;
}

export interface Preview {
  stream: string;
  counts: PlanCounts;
  /** Requests at most: a record whose object turns out equal needs none. */
  requests: number;
  samples: Sample[];
  /** Rows that share an external id; none of them would be sent. */
  shared: { key: string; message: string }[];
  /** Why operations would wait for a person. */
  holds: Partial<Record<LimitedOperation, Hold>>;
  /** Why the service could not be asked what stands there now. */
  unread: string | undefined;
  /** Why the stream cannot be planned at all. */
  error: { code: string; message: string } | undefined;
}

const SAMPLES = 5;
/** Keys whose absence is looked up in one statement. */
const KEYS_AT_ONCE = 1000;

/** Previews one stream; of what would be written, no more than there is `room` for, which is used up. A fault of its source stands in the answer; failures that may pass are thrown. */
export async function previewStream(
  deps: PreviewDeps,
  stream: Stream,
  { room = { keys: Infinity }, signal }: { room?: { keys: number }; signal?: AbortSignal } = {},
): Promise<Preview> {
  const preview: Preview = {
    stream: stream.name,
    counts: { create: 0, update: 0, retire: 0, unchanged: 0, retry: 0, dead: 0 },
    requests: 0,
    samples: [],
    shared: [],
    holds: {},
    unread: undefined,
    error: undefined,
  };
  try {
    const sharedIds = explainSharedIds(await deps.mirror.findSharedExternalIds(stream));
    preview.shared = [...sharedIds].map(([key, { message }]) => ({ key, message }));
    const chosen = new Map<Sample['operation'], string[]>();
    const planned = { create: 0, update: 0, retry: 0, retire: 0 };
    let passed = 0;
    let gone: PlanEntry[] = [];
    const retireGone = async () => {
      const due = await chooseLongGone(deps, stream, gone);
      gone = [];
      planned.retire += due.length;
      passed += due.filter((difference) => difference.passed).length;
      for (const { key } of due) choose(chosen, 'retire', key);
    };
    const isLimited = room.keys < Infinity;

    const differences = planStream(deps, stream);
    let step = await differences.next();
    for (; !step.done; step = await differences.next()) {
      const { operation, key } = step.value;
      if (operation === 'forget' || operation === 'back') continue;
      if (operation === 'retire') {
        if (stream.retire === 'keep' || isLimited) continue;
        if (gone.push(step.value) >= KEYS_AT_ONCE) await retireGone();
        continue;
      }
      if (sharedIds.has(key) || room.keys <= 0) continue;
      room.keys--;
      planned[operation]++;
      choose(chosen, operation, key);
    }
    await retireGone();
    const counts = step.value;
    preview.counts = toPlanCounts(counts, planned.retire);
    const facts = { accepted: counts.accepted, isEmpty: counts.rows === 0 };
    const approvals = await readOpenApprovals(deps.state.db, stream.name);
    for (const operation of LIMITED_OPERATIONS) {
      const hold = explainHold(stream, {
        ...facts,
        operation,
        count: planned[operation],
        passed: operation === 'retire' ? passed : 0,
        allowed: approvals.get(operation)?.allowed,
      });
      if (hold) preview.holds[operation] = hold;
    }
    preview.requests = requestsOf(stream, planned, preview.holds);
    await takeSamples(deps, stream, chosen, preview, signal);
  } catch (error) {
    if (!(error instanceof SlotsyncError) || error.disposition !== 'dead') throw error;
    preview.error = { code: error.code, message: error.message };
  }
  return preview;
}

/** What is held costs nothing; what has a limit goes in batches of its own. */
function requestsOf(
  stream: Stream,
  planned: Record<Sample['operation'], number>,
  holds: Preview['holds'],
): number {
  const free = LIMITED_OPERATIONS.filter((operation) => holds[operation] === undefined);
  const alone = free.filter((operation) => operation === 'retire' || hasLimit(stream, operation));
  const mixed = free.filter((operation) => !alone.includes(operation));
  const together = planned.retry + mixed.reduce((sum, operation) => sum + planned[operation], 0);
  const batches = (records: number) => Math.ceil(records / stream.batchSize);
  return (
    batches(together) * requestsPerBatch(stream, false) +
    alone.reduce(
      (sum, operation) =>
        sum + batches(planned[operation]) * requestsPerBatch(stream, operation === 'retire'),
      0,
    )
  );
}

/** Retirements whose time has come; a preview takes no note of the others. */
async function chooseLongGone(
  { state }: PreviewDeps,
  { name, graceDays }: Stream,
  gone: readonly PlanEntry[],
): Promise<readonly PlanEntry[]> {
  if (graceDays === 0 || gone.length === 0) return gone;
  const keys = gone.map(({ key }) => key);
  const due = await readLongGone(state.db, name, keys, graceDays);
  return gone.filter(({ key }) => due.has(key));
}

function choose(chosen: Map<Sample['operation'], string[]>, operation: Sample['operation'], key: string) {
  const keys = chosen.get(operation) ?? [];
  if (keys.length < SAMPLES) chosen.set(operation, [...keys, key]);
}

async function takeSamples(
  deps: PreviewDeps,
  stream: Stream,
  chosen: ReadonlyMap<Sample['operation'], string[]>,
  preview: Preview,
  signal: AbortSignal | undefined,
): Promise<void> {
  const keys = [...chosen.values()].flat();
  if (keys.length === 0) return;
  const rows = await deps.mirror.readRows(stream, keys);
  const known = await readRecordIds(deps.state.db, stream.name, keys);
  const mapped = new Map([...rows].map(([key, { row }]) => [key, attempt(() => mapRow(stream, row))]));
  const references = [...mapped.values()].flatMap((result) =>
    'value' in result ? result.value.references : [],
  );
  const externalIdOf = await readExternalIds(deps.state.db, references);

  const externalIds = keys.flatMap((key) => {
    const result = mapped.get(key);
    return result && 'value' in result ? [result.value.extId] : (known.get(key) ?? []);
  });
  let there = new Map<string, ServiceObject>();
  try {
    there = await deps.destination.findObjects(externalIds, stream.type, { lane: 'incremental', signal });
  } catch (error) {
    preview.unread = `${messageOf(error)} (${codeOf(error)})`;
  }

  for (const [operation, sampled] of chosen) {
    for (const key of sampled) {
      const sample: Sample = { operation, key, externalId: known.get(key), changes: [], problem: undefined };
      preview.samples.push(sample);
      const result = mapped.get(key);
      if (!result) {
        const found = there.get(sample.externalId ?? '');
        if (found) sample.changes = diffObjects(found, { ...found, active: false });
        continue;
      }
      if ('error' in result) {
        sample.problem = result.error;
        continue;
      }
      const { extId } = result.value;
      const found = there.get(extId);
      // A reference that is not there yet is shown by its key: it is on its way in the same run, or will be waited for.
      const linked = toObject(
        stream,
        result.value,
        (reference) => externalIdOf(reference) ?? `(${reference.stream} ${reference.localKey})`,
      );
      const object = 'object' in linked ? linked.object : createObject(extId, stream.type, true, []);
      sample.externalId = extId;
      sample.changes = diffObjects(
        found,
        stream.owns === 'object' ? object : mergeObject(object, found, stream.owned),
      );
    }
  }
}

function attempt<T>(run: () => T): { value: T } | { error: string } {
  try {
    return { value: run() };
  } catch (error) {
    return { error: messageOf(error) };
  }
}

/** Seconds the requests take when the quota is used up all the time: rate / (1 + mean latency). */
export function secondsAtQuota(requests: number, requestsPerSecond: number, latencyMs: number): number {
  return (requests * (1 + latencyMs / 1000)) / requestsPerSecond;
}
