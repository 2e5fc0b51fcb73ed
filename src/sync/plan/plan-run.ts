// Plans a run: reads all its streams and writes batches. No batch is sent before all streams were read. An interrupted
// planning starts again. If two processes plan the same run, the later process continues and the earlier one stops.
import { randomUUID } from 'node:crypto';
import type { Lane } from '../../destination/quota/limiter.js';
import { errorEntry } from '../../errors/error-catalogue.js';
import { codeOf, dispositionOf, reasonOf, SlotsyncError } from '../../errors/errors.js';
import { noMeter } from '../../process/meter.js';
import {
  keepLoads,
  noteLoad,
  type SeenLoad,
  endPartialProblems,
  listStreams,
  noteProblems,
} from '../../state/streams.js';
import { namesOfAsking, type Stream } from '../../streams/stream.js';
import { readTakenKeys, type TakenRun } from '../../state/inbox/take-changes.js';
import { NO_OUTCOMES } from '../../state/records/outcome-types.js';
import { compareIdsBy } from '../../state/records/compare-ids.js';
import { deleteBatches, insertBatches, type QueuedBatch } from '../../state/runs/batches.js';
import { failPlanning } from '../../state/runs/end-run.js';
import { finishPlanning } from '../../state/runs/advance-run.js';
import { pruneHistory } from '../../state/history.js';
import { pruneRuns } from '../../state/retention.js';
import {
  asPlanner,
  isPlanner,
  PlannerReplaced,
  takePlanning,
  type Planner,
} from '../../state/runs/claim-planning.js';
import { isWhole, readRun, type Run } from '../../state/runs/read-runs.js';
import { countingSent } from '../../state/sent.js';
import { endStreamPlans, type StreamPlan } from '../../state/gates/close-gates.js';
import type { Holds, PlanCounts } from '../../state/schema.js';
import { logUnexpected } from '../../process/logger.js';
import { noteFailure, noteInSpan } from '../../process/tracing.js';
import type { Recognizer } from '../run/recognize-databases.js';
import type { SyncDeps } from '../run/sync-deps.js';
import { planRepair, planStream } from './plan-stream.js';
import type { NameCheck } from './unknown-names.js';
import { createBatchWriter } from './planned-batches.js';

interface RunDeps extends SyncDeps {
  nameCheck: NameCheck;
  /** Checks whether mirror and state are still the same databases, and not restored backups. */
  recognize?: Recognizer['both'];
  /** If true, waits when the service refuses the credentials. Otherwise the run fails. */
  waitForCredentials?: boolean;
}

/** Each 500th incremental run deletes old runs from the history, and so does every run of another kind. */
const PRUNE_EVERY = 500;
const MINUTE = 60 * 1000;
/** Milliseconds. A check of the databases that this process made so recently is not repeated. */
const JUST_NOW = 5 * 1000;

/** Attempts to read a stream's source. After that, only this stream fails. */
const STREAM_ATTEMPTS = 3;

/** Properties of a run that its planner needs. */
type PlannedRun = Pick<Run, 'id' | 'kind' | 'range' | 'streams' | 'lane' | 'startedBy'> & {
  /** Keys taken from the inbox, by stream. If undefined, they are read from the state. */
  keys?: Readonly<Record<string, readonly string[]>>;
};

interface PlanningAttempt {
  /** Unique token of this attempt. The run names the token of one attempt; only this attempt may write. */
  token?: string;
  /** Run over a few keys that this process has just taken from the inbox, together with the right to plan it. */
  taken?: TakenRun | undefined;
  /** The run, if this process has already read it. */
  run?: PlannedRun | undefined;
  /** Number of earlier failed attempts to plan this run. */
  attemptsMade?: number;
  signal?: AbortSignal | undefined;
}

/**
 * Plans a run and writes its batches. Returns the batches to queue now, or none if another process plans the run. A
 * permanent error ends the run. Other errors are thrown, so that the caller tries again.
 */
export async function planRun(
  deps: RunDeps,
  runId: number,
  { token = randomUUID(), taken, run: known, attemptsMade = 0, signal }: PlanningAttempt = {},
): Promise<QueuedBatch[]> {
  const { state, log } = deps;
  const planner: Planner = { runId, token };
  const run = taken
    ? { ...taken, id: runId }
    : (await takePlanning(state.db, planner)) && (known ?? (await readRun(state.db, runId)));
  if (!run) return [];
  noteInSpan({
    'slotsync.run.kind': run.kind,
    'slotsync.run.streams': run.streams,
    'slotsync.run.started_by': run.startedBy,
    'slotsync.lane': run.lane,
  });
  try {
    const isIncremental = run.kind === 'incremental';
    const isPruned = !isIncremental || runId % PRUNE_EVERY === 0;
    const pruning = isPruned
      ? pruneRuns(state.db)
          .then(() => pruneHistory(state.db, deps))
          .catch((error: unknown) => log.warn({ code: codeOf(error) }, 'deleting old runs failed'))
      : undefined;
    await deps.recognize?.(isIncremental ? MINUTE : JUST_NOW);
    await compareIdsAsConfigured(deps);
    const planned = await planStreams(deps, run, { planner, attemptsMade, signal });
    await pruning;
    const context = { lane: run.lane as Lane, signal };
    await deps.nameCheck.requireKnownNames(planned.sending, context);
    const queued = await finishPlanning(state.db, planner, planned, async (tx) => {
      for (const writer of planned.writers) await writer.writeRest(tx);
      const held = await endStreamPlans(tx, planned.plans);
      for (const [stream, counts] of Object.entries(planned.plan)) {
        const { records = 0, rejected = [] } = held.get(stream) ?? {};
        counts.inBatches = (counts.inBatches ?? 0) - records;
        for (const name of rejected) Object.assign(planned.holds[stream]?.[name] ?? {}, { isRejected: true });
        if (counts.unasked) await tx.execute(countingSent(stream, 'unasked', counts.unasked));
      }
      if (planned.hasProblems) await endPartialProblems(tx, Object.keys(planned.plan));
      for (const [stream, load] of planned.loads) await noteLoad(tx, stream, load, { isWhole: isWhole(run) });
      if (run.kind === 'sync') await keepLoads(tx, namesOfAsking(deps.streams.values()));
    });
    noteInSpan({ 'slotsync.run.batches': planned.batches });
    log.info({ batches: planned.batches }, 'run planned');
    return queued;
  } catch (error) {
    // If the state does not answer, the original error is reported.
    const isReplaced = error instanceof PlannerReplaced;
    if (isReplaced || !(await isPlanner(state.db, planner).catch(() => true))) {
      log.info('planning ended: another process plans this run');
      return [];
    }
    if (dispositionOf(error) !== 'dead' || (deps.waitForCredentials && isWaitedFor(error))) throw error;
    await failPlanning(state.db, planner, reasonOf(error));
    noteFailure(codeOf(error));
    log.error({ code: codeOf(error) }, 'run failed while planning');
    return [];
  }
}

/** Makes the state compare external ids by the configured rule, if the configuration of any stream has changed. */
async function compareIdsAsConfigured({ state, streams }: RunDeps): Promise<void> {
  const [rule] = [...streams.values()].flatMap(({ externalId }) => externalId.rule ?? []);
  if (!rule) return;
  const planned = new Map(
    (await listStreams(state.db)).map(({ stream, fingerprint }) => [stream, fingerprint]),
  );
  const isNew = [...streams.values()].some(({ name, declaration }) => planned.get(name) !== declaration);
  if (isNew) await compareIdsBy(state, rule);
}

/** Returns true if waiting can help, for example if a server does not answer or credentials are refused. */
const isWaitedFor = (error: unknown) => errorEntry(codeOf(error)).systemic === 'wait';

async function planStreams(
  deps: RunDeps,
  run: PlannedRun,
  attempt: { planner: Planner; attemptsMade: number; signal: AbortSignal | undefined },
) {
  const { planner, attemptsMade, signal } = attempt;
  const { state, meter = noMeter } = deps;
  const { id: runId, kind, range } = run;
  const plan: Record<string, PlanCounts> = {};
  const holds: Holds = {};
  const plans: StreamPlan[] = [];
  /** Number of batches to send, including those that gates will hold. */
  let batches = 0;
  const sending: Stream[] = [];
  const writers: ReturnType<typeof createBatchWriter>[] = [];
  const loads = new Map<string, SeenLoad>();
  const streams = [...deps.streams.values()].filter(({ name }) => run.streams.includes(name));
  const retireLevel = streams.reduce((most, { level }) => Math.max(most, level), 0) + 1;
  const room = { records: range?.limit ?? Infinity, isShort: false };
  for (const stream of streams) {
    signal?.throwIfAborted();
    const log = deps.log.child({ stream: stream.name });
    try {
      const writer = createBatchWriter(state, stream, { planner, retireLevel, meter });
      const keys = kind === 'incremental' && {
        keys: run.keys?.[stream.name] ?? (await readTakenKeys(state.db, runId, stream.name)),
      };
      const context = { lane: run.lane as Lane, signal };
      const request = { kind, range, runId, room, context, ...keys };
      room.isShort = false;
      const planned =
        kind === 'repair'
          ? await planRepair(deps, stream, { runId, seenSince: range?.verifiedSince }, writer.sink)
          : await planStream(deps, stream, request, writer.sink);
      plan[stream.name] = { ...planned.counts, inBatches: writer.records() };
      writers.push(writer);
      batches += writer.batches();
      if (writer.batches() > 0) sending.push(stream);
      if (planned.load) loads.set(stream.name, planned.load);
      if (Object.keys(planned.holds).length > 0) holds[stream.name] = planned.holds;
      plans.push({
        ...planned,
        stream: stream.name,
        runId,
        isWhole: isWhole(run),
        fingerprint: stream.declaration,
        isLimited: room.isShort,
      });
      log.info({ ...planned.counts }, 'stream planned');
    } catch (error) {
      if (error instanceof PlannerReplaced || signal?.aborted || !failsAlone(error, attemptsMade))
        throw error;
      // If one source cannot be read, nothing of its stream is sent. Other streams continue.
      await failStream(deps, planner, run, stream, error);
    }
  }
  for (const name of run.streams.filter((one) => !deps.streams.has(one))) {
    const message = 'the stream was removed from the configuration';
    await failStream(deps, planner, run, { name, level: 0 }, new SlotsyncError('configuration', message));
  }
  const hasProblems = plans.some(({ standing }) => standing.hasProblem);
  return { plan, plans, holds, batches, sending, writers, loads, hasProblems };
}

/** Stores why a stream cannot be planned, as a failed batch without keys. Nothing of the stream is sent. */
async function failStream(
  { state, log }: RunDeps,
  planner: Planner,
  run: PlannedRun,
  { name, level }: Pick<Stream, 'name' | 'level'>,
  error: unknown,
): Promise<void> {
  const { runId } = planner;
  const { code, message: reason } = reasonOf(error);
  const message = `${name}: ${reason}`;
  const failed = { state: 'failed', counts: NO_OUTCOMES } as const;
  await asPlanner(state.db, planner, async (tx) => {
    await deleteBatches(tx, runId, name);
    await insertBatches(tx, [
      { ...failed, keys: [], runId, stream: name, level, errorCode: code, errorMessage: message },
    ]);
    await noteProblems(tx, [name], {
      status: 'failed',
      code,
      message,
      runId,
      runKind: run.kind,
      isWhole: isWhole(run),
      failed: 0,
      dead: 0,
    });
  });
  logUnexpected(log, error);
  log.error({ code, stream: name }, 'stream failed while planning');
}

/**
 * Returns true if an error fails only its stream, so that other streams continue. Permanent errors of a source do, and
 * timeouts, for which other streams would wait again. Other errors do after several attempts. Errors that affect all
 * streams do not.
 */
function failsAlone(error: unknown, attemptsMade: number): boolean {
  if (isWaitedFor(error)) return false;
  const isFinal = dispositionOf(error) === 'dead' || codeOf(error) === 'mirror_timeout';
  return isFinal || attemptsMade + 1 >= STREAM_ATTEMPTS;
}
