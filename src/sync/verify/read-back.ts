// Reads all objects of some types for `verify` and compares them with their records. Then searches for records whose
// objects were not among them. Keeps only digests of ids in memory, at most 64 MB for a million objects. Stores objects that drift, and
// counts the results.
import { setTimeout as sleep } from 'node:timers/promises';
import type { FoundObject, Unreadable } from '../../destination/destination.js';
import { listExceptions } from '../../state/exceptions.js';
import { readDriftingKeys, mendDrift, writeDrift } from '../../state/drift.js';
import { readClock } from '../../state/database.js';
import { checkAgain } from '../../state/records/record-state.js';
import { listOwners, readOwnersByKey, type OwnerRecord } from '../../state/records/read/owners.js';
import type { DriftKind } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import { DigestSet } from '../../text/digest-set.js';
import { readBeside, readRendered, type ObjectBeside } from '../object/compare-objects.js';
import type { Pace } from '../run/request-pace.js';
import type { SyncDeps } from '../run/sync-deps.js';
import { judgeObject, type Judgement } from './judge-object.js';

export interface Pass extends Pick<SyncDeps, 'mirror' | 'destination' | 'state' | 'streams'> {
  runId: number;
  /** Awaited before each request, to limit the request rate. */
  pace: Pace;
  signal: AbortSignal | undefined;
  /** Returns milliseconds of a monotonic clock. */
  clock: () => number;
  /** Called with the number of objects checked since the last call. Throws if the run was cancelled. */
  progress: (objects: number) => Promise<void>;
}

/** Number of objects of one stream by result of the comparison. */
export interface Tally extends Partial<Record<DriftKind, number>> {
  /** Number of objects that were compared, whether or not they drift. */
  compared: number;
  /** Number of objects that were not compared, because a sync will handle the record, or its row was deleted. */
  waiting: number;
  /** Number of records put in doubt: the unchanged row renders another object than was accepted. */
  inDoubt: number;
  /** Number of objects that were not compared, because an operator excepted their records. */
  excepted?: number;
}

export type Tallies = Map<string, Tally>;

export function count(tallies: Tallies, { name }: Stream, seen: Partial<Tally>): void {
  const tally = tallies.get(name) ?? { compared: 0, waiting: 0, inDoubt: 0 };
  for (const [kind, objects] of Object.entries(seen) as [keyof Tally, number][])
    tally[kind] = (tally[kind] ?? 0) + objects;
  tallies.set(name, tally);
}

/** A record, and the result for its object. If `unsure`, the object must be read again. */
interface Judged {
  record: OwnerRecord;
  judgement: Judgement;
}

/** Seconds. If a record was written this shortly before a request, the answer may be older than the record. */
const MARGIN_SECONDS = 2;

/** Returns true if the answer may be older than the record. `askedAt`: clock time of the request. */
function isOutdated({ clock }: Pass, { quietSeconds }: OwnerRecord, askedAt: number): boolean {
  return quietSeconds <= (clock() - askedAt) / 1000 + MARGIN_SECONDS;
}

/**
 * Reads objects by external id, at most 1,000, and judges them. Waits until none of the records was written just now. A
 * record written during the request counts as `waiting`.
 */
async function judgeByExternalId(
  pass: Pass,
  stream: Stream,
  records: readonly OwnerRecord[],
): Promise<Judged[]> {
  if (records.length === 0) return [];
  const { destination, state, pace, signal } = pass;
  const asked = new Map(records.map(({ localKey, externalId }) => [localKey, externalId]));
  await untilQuiet(records, signal);
  await pace(signal);
  // Uses the database's clock, by which records are dated. A busy process might be late.
  const askedSeconds = (await readClock(state.db)).getTime() / 1000;
  const unreadable: Unreadable = new Map();
  const context = { lane: 'verify', signal } as const;
  const found = await destination.findObjects([...asked.values()], stream.type, context, unreadable);
  const standing = await readOwnersByKey(state.db, stream.name, [...asked.keys()]);
  const read = await readRendered(pass, stream, [...asked.keys()]);
  return standing.map((record) => {
    const { localKey, externalId, writtenSeconds } = record;
    if (externalId !== asked.get(localKey)) return { record, judgement: 'waiting' };
    if (unreadable.has(externalId)) return { record, judgement: 'unreadable' };
    const isAnswerOutdated = writtenSeconds > askedSeconds - MARGIN_SECONDS;
    const compared = { stream, record, ...read(localKey) };
    return { record, judgement: judgeObject(compared, found.get(externalId), isAnswerOutdated) };
  });
}

/** Waits until all records were written long enough ago. Does not wait longer if they are written again. */
async function untilQuiet(records: readonly OwnerRecord[], signal: AbortSignal | undefined): Promise<void> {
  const youngest = records.reduce((least, { quietSeconds }) => Math.min(least, quietSeconds), Infinity);
  const seconds = MARGIN_SECONDS + 0.1 - Math.max(0, youngest);
  if (seconds > 0) await sleep(seconds * 1000, undefined, signal ? { signal } : {});
}

/**
 * Stores which objects of a stream drift, and counts all. Reads objects that are `unsure` again. Puts records in doubt
 * that no sync would notice.
 */
export async function record(
  pass: Pass,
  stream: Stream,
  seen: readonly Judged[],
  tallies: Tallies,
): Promise<void> {
  const { state, runId } = pass;
  const source = { runId, stream: stream.name };
  const keys = seen.map((one) => one.record.localKey);
  const exceptions = await listExceptions(state.db, { stream: stream.name, keys });
  const excepted = new Set(exceptions.map(({ localKey }) => localKey));
  const mine = seen.filter((one) => !excepted.has(one.record.localKey));
  if (excepted.size > 0) count(tallies, stream, { excepted: seen.length - mine.length });
  const isUnsure = ({ judgement }: Judged) => judgement === 'unsure';
  const unsure = mine.filter(isUnsure).map((one) => one.record);
  const judged = [
    ...mine.filter((one) => !isUnsure(one)),
    ...(await judgeByExternalId(pass, stream, unsure)),
  ];
  const keysOf = (wanted: Judgement) =>
    judged.flatMap((one) => (one.judgement === wanted ? one.record.localKey : []));
  const [fine, doubtful] = [keysOf('fine'), keysOf('doubtful')];
  const drifting = judged.flatMap(({ record: { localKey, externalId, writtenAt }, judgement }) =>
    typeof judgement === 'object' ? { localKey, externalId, writtenAt, ...judgement } : [],
  );
  await mendDrift(state.db, source, { keys: [...fine, ...keysOf('abandoned')] });
  await checkAgain(state.db, { stream: stream.name, keys: [...doubtful, ...keysOf('unreadable')] });
  const written = await writeDrift(state.db, source, drifting);
  const drifts = Object.values(written).reduce((sum, objects) => sum + objects, 0);
  const compared = fine.length + drifts;
  const inDoubt = doubtful.length;
  count(tallies, stream, { ...written, compared, waiting: judged.length - compared - inDoubt, inDoubt });
}

/** Number of records read from the state, or searched for at the service, at once. */
const AT_ONCE = 1000;

/** Types to read back together, because the same streams have them. */
interface TypeRequest {
  types: ReadonlySet<string>;
  /** Streams with these types that are verified. */
  streams: readonly Stream[];
  /** If true, also stores objects that belong to no record. They are always counted. */
  extras: boolean;
}

/**
 * Reads all objects of some types, compares them with their records, and stores the drift. Objects without a record are
 * counted for the first stream with these types. Throws errors of mirror, state and service, or the signal's reason.
 */
export async function readTypesBack(pass: Pass, request: TypeRequest): Promise<Tallies> {
  const { clock, signal } = pass;
  const { met, tallies } = await readBeside(
    pass,
    { types: request.types, context: { lane: 'verify', signal }, pace: () => pass.pace(signal), clock },
    () => ({ met: new DigestSet(), tallies: new Map() as Tallies }),
    async (result, page, askedAt) => {
      for (const { object } of page) if (object.extId !== undefined) result.met.add(object.extId);
      await comparePage(pass, request, { page, askedAt }, result.tallies);
      await pass.progress(page.length);
    },
  );
  for (const stream of request.streams) await lookForUnmet(pass, stream, met, tallies);
  return tallies;
}

async function comparePage(
  pass: Pass,
  { types, streams, extras }: TypeRequest,
  { page, askedAt }: { page: readonly ObjectBeside[]; askedAt: number },
  tallies: Tallies,
): Promise<void> {
  const seen = new Map<Stream, Judged[]>(streams.map((stream) => [stream, []]));
  const unowned: FoundObject[] = [];
  for (const { object, owner } of page) {
    if (!owner) {
      unowned.push(object);
      continue;
    }
    const { stream } = owner;
    // An object whose type is not its record's is judged later, when the record's object is searched for.
    const into = types.has(stream.type) ? seen.get(stream) : undefined;
    if (!into) continue;
    if (!owner.record) {
      count(tallies, stream, { waiting: 1 });
      continue;
    }
    const compared = { ...owner, record: owner.record };
    const judgement = judgeObject(compared, object, isOutdated(pass, owner.record, askedAt));
    into.push({ record: owner.record, judgement });
  }
  for (const [stream, judged] of seen) await record(pass, stream, judged, tallies);
  const first = [...pass.streams.values()].find((stream) => types.has(stream.type));
  if (!first || !streams.includes(first) || unowned.length === 0) return;
  count(tallies, first, { extra: unowned.length });
  const source = { runId: pass.runId, stream: first.name };
  // Objects without a record are stored if `extras` is set, or if an earlier verify has stored them.
  const known = extras ? undefined : await readDriftingKeys(pass.state.db, first.name, unowned.map(extraKey));
  const said = unowned.filter((object) => known?.has(extraKey(object)) ?? true);
  const drifting = said.map((object) => ({
    localKey: extraKey(object),
    externalId: object.extId,
    kind: 'extra' as const,
    fields: undefined,
    writtenAt: undefined,
  }));
  await writeDrift(pass.state.db, source, drifting);
}

const extraKey = ({ id }: FoundObject) => `#${id}`;

/** Searches for the objects of records that were not among the objects read. */
async function lookForUnmet(pass: Pass, stream: Stream, met: DigestSet, tallies: Tallies): Promise<void> {
  const { state, signal } = pass;
  let unmet: Judged[] = [];
  const look = async () => {
    await record(pass, stream, unmet, tallies);
    unmet = [];
  };
  for (let after: string | undefined; ;) {
    signal?.throwIfAborted();
    const block = await listOwners(state.db, stream.name, after, AT_ONCE);
    const fine: string[] = [];
    for (const standing of block) {
      if (met.has(standing.externalId)) continue;
      // For a deactivated record, an absent object is fine. A record that a sync must send is not judged.
      if (standing.status === 'retired') fine.push(standing.localKey);
      else if (standing.status !== 'synced' || !standing.isSettled) count(tallies, stream, { waiting: 1 });
      else if (unmet.push({ record: standing, judgement: 'unsure' }) >= AT_ONCE) await look();
    }
    await mendDrift(state.db, { runId: pass.runId, stream: stream.name }, { keys: fine });
    await pass.progress(0);
    after = block.at(-1)?.localKey;
    if (block.length < AT_ONCE || after === undefined) break;
  }
  await look();
}
