// The plan of one stream: what differs between mirror and state, in batches, weighed against the stream's limits. A run
// and a preview plan through this one function, so that they cannot disagree; a sink says what becomes of the batches.
import { readMirrorChange, type MirrorChange } from '../../state/databases.js';
import { readLinks } from '../../state/records/links.js';
import { readPlanMarks } from '../../state/records/plan-marks.js';
import { countAccepted } from '../../state/records/count-records.js';
import type { UsedApproval } from '../../state/runs/approvals.js';
import { countUnaskedWithinADay } from '../../state/runs/batches.js';
import {
  LIMITED_OPERATIONS,
  type HeldSample,
  type Hold,
  type LimitedOperation,
  type PlanCounts,
  type RunKind,
  type RunRange,
} from '../../state/schema.js';
import type { Context } from '../../destination/client.js';
import type { CostlyReading } from '../../mirror/mirror.js';
import { shortenKey } from '../../streams/local-key.js';
import type { RecordKey } from '../../state/records/outcome-types.js';
import type { Stream } from '../../streams/stream.js';
import type { Decision } from '../decide.js';
import {
  describeMirrorChange,
  hasLimit,
  isWithinLimit,
  withoutAnyUnasked,
  type LimitFacts,
} from '../mass-change-limits.js';
import { chooseDue, explainRetirementHold, mayPlanRetirements } from '../retire.js';
import { requireLookups } from '../current-streams.js';
import type { CostlyBatches } from '../explain-reading.js';
import { keysPerBatch } from './keys-per-batch.js';
import { createMoves } from './moved-records.js';
import { createMeetings, type MeetDeps, type MetObjects } from './met-objects.js';
import { mergeReadings, type MergeCounts, type RefusedEntry, type WriteEntry } from './merge-readings.js';
import { explainRefusal, type RefusedRow } from './refused-rows.js';
import { readSharedIds } from './shared-external-ids.js';
import { weighOperation } from './weigh-operation.js';

export type PlanDeps = MeetDeps;

interface PlanRequest {
  kind: RunKind;
  range: RunRange | null;
  /** Keys taken from the inbox; undefined: what the range selects. */
  keys?: readonly string[];
  /** Undefined for a preview. */
  runId?: number;
  /** Records that may still be written, over all streams of the run; used up here. */
  room: { records: number };
  /** For the questions to the service. */
  context: Context;
}

/** What becomes of a plan. A sink that only looks at it leaves out what writes. */
export interface PlanSink {
  /**
   * The keys of one request. `limit`: the operation whose limit it falls under; such a batch starts out held. `isLast`: it
   * comes after all other writes of the run.
   */
  addBatch(batch: {
    limit: LimitedOperation | undefined;
    isLast: boolean;
    /** It was released by an earlier plan, and does not count again. */
    isExempt?: boolean;
    entries: readonly WriteEntry[];
  }): Promise<void>;
  /** The last batch was added. They are stored before limits are applied: runs planned side by side see each other. */
  flush?(): Promise<void>;
  /** No hold: the batches under this limit may be sent. `isExempt`: they do not count towards later limits. */
  release?(limit: LimitedOperation, isExempt: boolean): Promise<void>;
  /** Rows of records at the service were found to be gone, or to be in the mirror again. */
  noteRowsGone?(keys: readonly string[]): Promise<void>;
  noteRowsBack?(keys: readonly string[]): Promise<void>;
  /** Rows that take objects over: they are looked at. */
  follow?(rows: readonly RecordKey[]): Promise<void>;
  /** Records the service never had, whose rows are gone. */
  forget?(keys: readonly string[]): Promise<void>;
  /** Records that are not in sync, whose rows are gone from a stream that retires nothing. */
  abandon?(keys: readonly string[]): Promise<void>;
  /** Rows that are not sent; not all of them at once. */
  refuse(rows: readonly RefusedRow[]): Promise<void>;
}

/** Keys handed to the sink at once, and objects asked for. */
const KEYS_AT_ONCE = 1000;
/** Of what is overwritten, records kept field by field. */
const SAMPLES = 3;

/** Plans one stream into the sink. Throws what the readings and the sink throw; then the sink holds only a part. */
export function planStream(deps: PlanDeps, stream: Stream, request: PlanRequest, sink: PlanSink) {
  const plan = () => planReadings(deps, stream, request, sink);
  return (request.keys ?? request.range?.keys) ? plan() : deps.mirror.takeTurn(plan);
}

async function planReadings(deps: PlanDeps, declared: Stream, request: PlanRequest, sink: PlanSink) {
  requireLookups(declared);
  const { mirror, state } = deps;
  const mirrorChange = await readMirrorChange(state.db, declared.name);
  // Its data may be older than what was sent: nothing of it is sent unasked.
  const stream = mirrorChange ? withoutAnyUnasked(declared) : declared;
  const { range, room } = request;
  const { from, to, where, force = false } = range ?? {};
  const keys = (request.keys ?? range?.keys)?.map(shortenKey);
  // A few keys are not worth reading the whole source; what they share with others is found before they are sent.
  const shared = keys ? [] : await readSharedIds(deps, stream);
  const planned = {
    create: 0,
    update: 0,
    retire: 0,
    overwrite: 0,
    repair: 0,
    released: 0,
    moved: 0,
    takenOver: 0,
    /** Of them, those that change their objects: updates. */
    changed: 0,
    /** Records never accepted, about whose objects the service is asked. */
    asked: 0,
    unasked: 0,
    equal: 0,
    samples: [] as HeldSample[],
  };
  const retires = mayPlanRetirements(stream, request);

  const isIncremental = request.kind === 'incremental';
  const usual = keysPerBatch(stream, { isIncremental });
  let costly: CostlyReading | undefined;
  /** Batches that read rows. */
  let reading = 0;
  const batches = collect<LimitedOperation | 'released' | undefined, WriteEntry>(
    usual,
    (name, entries) => {
      reading++;
      const isExempt = name === 'released';
      const limit = isExempt ? 'retire' : name;
      return sink.addBatch({ limit, isLast: limit === 'retire', isExempt, entries });
    },
    async (entries) => {
      costly = await mirror.findCostlyReading(stream, {
        keysAtOnce: usual,
        keys: entries.map(({ key }) => key),
      });
      return keysPerBatch(stream, { isIncremental, isCostly: costly !== undefined });
    },
  );
  const moves = createMoves(deps, stream);
  const isPlanned = (row: RecordKey) => row.stream === stream.name && keys?.includes(row.localKey) === true;
  /** Whether the record of a gone row comes into `gone`. */
  const isMet = (key: string) => retires && (keys === undefined || keys.includes(key));
  const meetings = createMeetings(deps, stream, request.context);
  /** Requests that a run sends to look for what its creates meet. */
  let questions = 0;
  /** `isRest`: no other list comes after this one. */
  async function meet(keys: readonly string[], isRest: boolean): Promise<MetObjects> {
    if (keys.length === 0) return new Map();
    // Whatever a few creates meet, they are not held, unless they come in parts: what is overwritten counts over a day.
    const areFew =
      isRest &&
      planned.asked === 0 &&
      isWithinLimit(
        stream,
        'overwrite',
        keys.length + (await countUnaskedWithinADay(deps.state.db, stream.name, request.runId ?? 0)),
      );
    const mayBeHeld = request.kind === 'incremental' || range !== null || !areFew;
    if (!mayBeHeld) planned.unasked += keys.length;
    // A preview shows what would be overwritten, also where a run does not ask.
    if (!mayBeHeld && request.runId !== undefined) return new Map();
    planned.asked += keys.length;
    const met = await meetings.meet(keys);
    if (mayBeHeld) questions = meetings.requests();
    return met;
  }
  /** What the service has accepted nothing of yet. */
  const created = collect<'create', WriteEntry>(KEYS_AT_ONCE, async (_, entries) => {
    const creates = entries.filter(({ operation }) => operation === 'create');
    const takeovers = await moves.findTakeovers(creates.map(({ key }) => key));
    const untaken = entries.flatMap(({ key }) => (takeovers.has(key) ? [] : key));
    const met = await meet(untaken, entries.length < KEYS_AT_ONCE);
    for (const entry of entries) {
      const former = takeovers.get(entry.key);
      if (!former) {
        const object = met.get(entry.key);
        if (object && object.changes.length > 0) {
          planned.overwrite++;
          if (planned.samples.length < SAMPLES) planned.samples.push(object);
          await batches.add('overwrite', entry);
          continue;
        }
        if (object) planned.equal++;
        const isCreate = entry.operation === 'create' || mirrorChange !== undefined;
        if (isCreate) planned.create++;
        const isLimited = isCreate && hasLimit(stream, 'create');
        await batches.add(isLimited ? 'create' : undefined, entry);
        continue;
      }
      planned.takenOver++;
      if (former.isChanged) {
        planned.changed++;
        planned.update++;
      }
      await batches.add(former.isChanged && hasLimit(stream, 'update') ? 'update' : undefined, entry);
      if (former.stream !== stream.name || !isMet(former.localKey)) planned.moved++;
    }
  });
  const gone = collect<'gone', WriteEntry>(KEYS_AT_ONCE, async (_, found) => {
    const moved = await moves.findMoved(found.map(({ key }) => key));
    planned.moved += moved.size;
    // Of single keys the rows that take these objects over may not be among them.
    if (isIncremental) await sink.follow?.([...moved.values()].flat().filter((row) => !isPlanned(row)));
    const entries = found.filter(({ key }) => !moved.has(key));
    if (stream.graceDays > 0) await sink.noteRowsGone?.(entries.map(({ key }) => key));
    for (const entry of await chooseDue(state, stream, entries)) {
      planned.retire++;
      if (entry.wasReleased) planned.released++;
      await batches.add(entry.wasReleased ? 'released' : 'retire', entry);
    }
  });
  const unsent = collect<'noteRowsBack' | 'forget' | 'abandon', string>(KEYS_AT_ONCE, async (name, found) =>
    sink[name]?.(found),
  );
  const refused = collect<'refused', RefusedEntry>(KEYS_AT_ONCE, async (_, entries) => {
    // A linked row does not use the external id that it shares.
    const sharing = entries.flatMap(({ key, sharedId }) => (sharedId === undefined ? [] : key));
    const links = await readLinks(state.db, stream.name, sharing);
    for (const { key, decision } of entries)
      if (links.has(key) && isWrite(decision)) await addWrite({ operation: decision, key });
    const unlinked = entries.filter(({ key }) => !links.has(key));
    await sink.refuse(unlinked.map((entry) => explainRefusal(entry, shared)));
  });
  async function addWrite(entry: WriteEntry): Promise<void> {
    if (room.records <= 0) return;
    room.records--;
    const { operation } = entry;
    if (operation === 'create' || entry.isNew) return created.add('create', entry);
    // What is tried again is sent unasked, but not from a mirror that may be older.
    const isUpdate = operation === 'update' || mirrorChange !== undefined;
    if (isUpdate) planned.update++;
    await batches.add(isUpdate && hasLimit(stream, 'update') ? 'update' : undefined, entry);
  }

  const sharedIds = shared.map(({ externalId }) => externalId);
  const entries = mergeReadings(
    mirror.readHashes(stream, { keys, from, to, where }, sharedIds),
    readPlanMarks(state, stream.name, keys),
    force,
  );
  let step = await entries.next();
  try {
    for (; !step.done; step = await entries.next()) {
      const entry = step.value;
      const { operation, key } = entry;
      switch (operation) {
        case 'retire':
          if (retires) await gone.add('gone', entry);
          break;
        case 'back':
          await unsent.add('noteRowsBack', key);
          break;
        case 'forget':
          // Of a part of a stream, a row that is gone may only be outside.
          if (range === null) await unsent.add('forget', key);
          break;
        case 'unsettled':
          if (range === null && stream.retire === 'keep') await unsent.add('abandon', key);
          break;
        case 'refuse': {
          // What is accepted and shares its external id now is reported by a run over the whole stream; a key that is too
          // long, once.
          const isNews = !entry.isSettled || (range === null && entry.sharedId !== undefined);
          if (isNews) await refused.add('refused', entry);
          break;
        }
        default:
          await addWrite(entry);
      }
    }
  } finally {
    // What stops in the middle must end the readings: each holds one of the few connections.
    await entries.return(NO_COUNTS);
  }
  for (const collected of [refused, created, gone, unsent, batches, sink]) await collected.flush?.();

  const { create, update, unchanged, retry, dead } = step.value;
  const { retire, takenOver, changed, asked, equal, overwrite } = planned;
  const moved = Math.max(0, planned.moved - changed);
  const counts: PlanCounts = {
    create: create - takenOver,
    update: update + changed,
    retire,
    unchanged,
    retry,
    dead,
    moved,
  };
  if (planned.unasked > 0) counts.unasked = planned.unasked;
  if (equal + overwrite > 0) Object.assign(counts, { new: asked - equal - overwrite, equal, overwrite });
  const weighed = await weighLimits(
    deps,
    stream,
    request,
    { merged: step.value, planned, keys, mirrorChange },
    sink,
  );
  const isWorth = costly !== undefined && reading >= costly.mattersFrom;
  const read: CostlyBatches | undefined = isWorth && costly ? { ...costly, batches: reading } : undefined;
  return { counts, questions, costly: read, mirrorChange, ...weighed };
}

/** Releases what is within the limits or approved; the rest stays held, with the reason. */
async function weighLimits(
  { mirror, state }: Pick<PlanDeps, 'mirror' | 'state'>,
  stream: Stream,
  { kind, runId }: PlanRequest,
  read: {
    merged: MergeCounts;
    planned: Record<LimitedOperation | 'released' | 'asked', number> & { samples: HeldSample[] };
    keys: readonly string[] | undefined;
    mirrorChange: MirrorChange | undefined;
  },
  sink: PlanSink,
) {
  const { merged, planned, keys, mirrorChange } = read;
  const holds: Partial<Record<LimitedOperation, Hold>> = {};
  /** Approvals that lift what would be held otherwise. */
  const approvals: UsedApproval[] = [];
  const operations = LIMITED_OPERATIONS.filter(
    (operation) => hasLimit(stream, operation) && planned[operation] > 0,
  );
  if (operations.length === 0) return { holds, approvals };
  const accepted = keys === undefined ? merged.accepted : await countAccepted(state.db, stream.name);
  for (const operation of operations) {
    const facts: LimitFacts = {
      operation,
      count: planned[operation],
      accepted,
      runId,
      looksLike: mirrorChange && describeMirrorChange(mirrorChange),
    };
    if (operation === 'overwrite') facts.accepted = planned.asked;
    const weighing: Parameters<typeof weighOperation>[3] = { sink, isIncremental: kind === 'incremental' };
    if (operation === 'retire') {
      facts.released = planned.released;
      const isSourceEmpty = merged.rows === 0 && (keys === undefined || (await mirror.isEmpty(stream)));
      weighing.explain = (of, weighed) => explainRetirementHold(of, { ...weighed, isSourceEmpty });
    }
    const { hold, used } = await weighOperation({ state }, stream, facts, weighing);
    if (hold) holds[operation] = operation === 'overwrite' ? { ...hold, samples: planned.samples } : hold;
    if (used) approvals.push(used);
  }
  return { holds, approvals };
}

/** In place of the counts of a reading that was stopped. */
const NO_COUNTS = {} as MergeCounts;

const isWrite = (decision: Decision) =>
  decision === 'create' || decision === 'update' || decision === 'retry';

/**
 * Collects values into lists of a size, by name; each full list, and at the end each rest, is handed over. `resize` is asked
 * once, with the first list of the first size, how long they all may be.
 */
function collect<Name, T>(
  first: number,
  handOver: (name: Name, values: T[]) => Promise<void>,
  resize?: (values: readonly T[]) => Promise<number>,
) {
  const open = new Map<Name, T[]>();
  let size = first;
  let ask = resize;
  return {
    async add(name: Name, value: T): Promise<void> {
      const values = open.get(name) ?? [];
      open.set(name, values);
      if (values.push(value) < size) return;
      if (ask) {
        size = await ask(values);
        ask = undefined;
        if (values.length < size) return;
      }
      open.delete(name);
      await handOver(name, values);
    },
    async flush(): Promise<void> {
      for (const [name, values] of open) await handOver(name, values);
      open.clear();
    },
  };
}
