// Reads objects from the service, compares them with what was accepted last, and stores which of them drift. Only
// reads; a separate run repairs.
import { settleRestored } from '../../state/restored-databases.js';
import {
  countNotComparedAgain,
  deleteDriftOfOthers,
  deleteOutdatedDrift,
  noteVerified,
} from '../../state/drift.js';
import { countAccepted } from '../../state/records/read/count-records.js';
import { sampleOwners } from '../../state/records/read/owners.js';
import { pruneDrift } from '../../state/retention.js';
import type { Queries } from '../../state/database.js';
import type { Run } from '../../state/runs/read-runs.js';
import { startFreeRun, type RunRequest } from '../../state/runs/start-run.js';
import type { RunRange, StartedBy } from '../../state/schema.js';
import { groupByTypes, type Stream } from '../../streams/stream.js';
import { readLookupTables, requireLookups } from '../run/current-streams.js';
import { readAlone, workReading } from '../run/reading-run.js';
import type { Pace } from '../run/request-pace.js';
import type { SyncDeps } from '../run/sync-deps.js';
import { adoptObjects, type Adopted } from './adopt.js';
import { readTypesBack, count, record, type Pass, type Tallies, type Tally } from './read-back.js';

export interface VerifyDeps extends Pick<SyncDeps, 'mirror' | 'destination' | 'state' | 'streams' | 'log'> {
  startedBy: StartedBy;
  /** Awaited before each request, to limit the request rate. */
  pace: Pace;
  /** Returns milliseconds of a monotonic clock. */
  clock?: () => number;
  /** Called with the number of objects checked so far, and the approximate total. */
  onProgress?: (done: number, total: number) => void;
}

export interface VerifyRequest {
  /** Streams to verify; by default all. */
  streams?: readonly Stream[];
  /** Number of records to check in each stream, chosen at random. By default, all are checked. */
  sample?: number | undefined;
  /** If true, objects that belong to no record are stored too. */
  extras?: boolean | undefined;
}

export interface VerifyResult {
  runId: number;
  /** Counts of each stream, parents first. */
  streams: ({ stream: string; type: string } & Tally)[];
  /** Number of objects that drift. */
  drifting: number;
  /** Number of objects of these types without a record. They are no drift, since slotsync does not own them. */
  extra: number;
  /** Number of objects that still differ after they were sent again. A repair does not send them once more. */
  storedOtherwise: number;
  /** Number of objects that differ only in values that field rules keep. They do not count as drift. */
  kept: number;
  /** Number of objects that drifted earlier and could not be compared now. 0 if only a sample was checked. */
  notComparedAgain: number;
  requests: number;
}

export interface AdoptResult {
  runId: number;
  /** Counts of each stream, parents first. */
  streams: ({ stream: string; type: string } & Adopted)[];
  requests: number;
}

/** Number of records whose objects are searched for in one request. */
const AT_ONCE = 1000;

/**
 * Verifies streams. Throws SlotsyncError `verify_running` if another verify is running, other errors of mirror, state
 * and service, or the signal's reason. Results up to the error stay stored.
 */
export function verify(
  deps: VerifyDeps,
  request?: VerifyRequest,
  signal?: AbortSignal,
): Promise<VerifyResult> {
  return readAlone(deps.state, 'verify', () => verifyAlone(deps, request, signal));
}

/** Makes records for objects that have a row but no record. Throws the same errors as `verify`. */
export function adopt(
  deps: VerifyDeps,
  streams: readonly Stream[] = [...deps.streams.values()],
  signal?: AbortSignal,
): Promise<AdoptResult> {
  return readAlone(deps.state, 'verify', async () => {
    const result = await inRun(deps, streams, { adopt: true }, signal, adoptObjects);
    deps.log.info({ runId: result.runId, requests: result.requests }, 'objects adopted');
    return result;
  });
}

/** Verifies streams. The caller holds the lock that only one verify can have. */
export async function verifyAlone(
  deps: VerifyDeps,
  request: VerifyRequest = {},
  signal?: AbortSignal,
): Promise<VerifyResult> {
  const { sample, extras = false, streams = [...deps.streams.values()] } = request;
  const range = { ...(sample === undefined ? {} : { sample }), ...(extras ? { extras } : {}) };
  const result = await inRun(deps, streams, range, signal, async (pass, selected) =>
    sample === undefined ? readBack(pass, selected, extras) : lookAtSamples(pass, selected, sample),
  );
  const { runId, requests } = result;
  const sumOf = (countOf: (tally: Tally) => number) =>
    result.streams.reduce((sum, tally) => sum + countOf(tally), 0);
  const drifting = sumOf((tally) => countRepairable(tally) + (tally.wrong_type ?? 0));
  const extra = sumOf((tally) => tally.extra ?? 0);
  const storedOtherwise = sumOf((tally) => tally.stored_otherwise ?? 0);
  const kept = sumOf((tally) => tally.kept ?? 0);
  if (sample === undefined) await settleRestored(deps.state.db, [...deps.streams.keys()]);
  const notComparedAgain = sample === undefined ? await countNotComparedAgain(deps.state.db, runId) : 0;
  const counts = { drifting, extra, storedOtherwise, kept, notComparedAgain };
  deps.log.info({ runId, requests, ...counts, sample }, 'objects verified');
  return { runId, streams: result.streams, ...counts, requests };
}

/** Returns how many drifting objects of a stream a repair can send. */
export const countRepairable = ({ changed = 0, missing = 0, inactive = 0 }: Partial<Tally>): number =>
  changed + missing + inactive;

/** Starts a repair run of those streams that no unfinished run covers. Undefined if all streams are covered. */
export async function startRepairRun(
  db: Queries,
  { streams, ...started }: Pick<RunRequest, 'streams' | 'startedBy' | 'fingerprints'>,
): Promise<Run | undefined> {
  const request = { kind: 'repair', lane: 'verify', ...started, streams } as const;
  return (await startFreeRun(db, request)).run;
}

async function readBack(pass: Pass, streams: readonly Stream[], extras: boolean): Promise<Tallies> {
  const tallies: Tallies = new Map();
  for (const { types, streams: those } of groupByTypes(streams)) {
    const found = await readTypesBack(pass, { types, streams: those, extras });
    for (const [name, tally] of found) tallies.set(name, tally);
    const { db } = pass.state;
    for (const { name } of those) {
      const source = { runId: pass.runId, stream: name };
      await deleteOutdatedDrift(db, source);
      await noteVerified(db, { ...source, objects: found.get(name)?.compared ?? 0 });
    }
  }
  await deleteDriftOfOthers(pass.state.db, pass.runId, [...pass.streams.keys()]);
  return tallies;
}

async function lookAtSamples(pass: Pass, streams: readonly Stream[], sample: number): Promise<Tallies> {
  const tallies: Tallies = new Map();
  for (const stream of streams) {
    const chosen = await sampleOwners(pass.state.db, stream.name, sample);
    for (let at = 0; at < chosen.length; at += AT_ONCE) {
      const block = chosen.slice(at, at + AT_ONCE);
      const unsure = block.map((one) => ({ record: one, judgement: 'unsure' as const }));
      await record(pass, stream, unsure, tallies);
      await pass.progress(block.length);
    }
    count(tallies, stream, {});
  }
  return tallies;
}

/** Runs `work` as a run of kind `verify`, and returns the counts by stream. */
async function inRun<T extends object>(
  deps: VerifyDeps,
  streams: readonly Stream[],
  range: RunRange,
  signal: AbortSignal | undefined,
  work: (pass: Pass, streams: readonly Stream[]) => Promise<ReadonlyMap<string, T>>,
): Promise<{ runId: number; streams: ({ stream: string; type: string } & T)[]; requests: number }> {
  const { mirror, destination, state, startedBy, pace, clock = () => performance.now() } = deps;
  const request = {
    kind: 'verify',
    lane: 'verify',
    startedBy,
    streams: streams.map(({ name }) => name),
    range: Object.keys(range).length === 0 ? undefined : range,
  } as const;
  const { result, ...run } = await workReading(deps, request, signal, async ({ id, requireUnended }) => {
    let total = 0;
    for (const { name } of streams) {
      const accepted = await countAccepted(state.db, name);
      total += range.sample === undefined ? accepted : Math.min(range.sample, accepted);
    }
    let done = 0;
    const progress = async (objects: number) => {
      done += objects;
      deps.onProgress?.(Math.min(done, total), total);
      await requireUnended();
    };
    // Reads the lookup tables now, because mapping uses their current content.
    const current = await readLookupTables(mirror, [...deps.streams.values()]);
    const selected = current.filter(({ name }) => streams.some((stream) => stream.name === name));
    selected.forEach(requireLookups);
    const all = new Map(current.map((stream) => [stream.name, stream]));
    const sides = { mirror, destination, state, streams: all };
    return work({ ...sides, runId: id, pace, signal, clock, progress }, selected);
  });
  await pruneDrift(state.db);
  const counts = streams.flatMap(({ name, objectTypes }) => {
    const found = result.get(name);
    return found ? [{ stream: name, type: [...objectTypes].join(', '), ...found }] : [];
  });
  return { ...run, streams: counts };
}
