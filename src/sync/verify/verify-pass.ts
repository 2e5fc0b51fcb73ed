// The parts of a verify share this: their dependencies, how an object is read by its external id, and how results are written
// and counted.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Unreadable } from '../../destination/destination.js';
import { writeDrift, mendDrift } from '../../state/drift/write-drift.js';
import { readClock } from '../../state/database.js';
import { checkAgain } from '../../state/records/record-state.js';
import { readOwnersByKey, type OwnerRecord } from '../../state/records/read/owners.js';
import type { DriftKind } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import { readRendered } from '../object/compare-objects.js';
import type { Pace } from '../run/request-pace.js';
import type { SyncDeps } from '../run/sync-deps.js';
import { judgeObject, type Judgement } from './judge-object.js';

export interface Pass extends Pick<SyncDeps, 'mirror' | 'destination' | 'state' | 'streams'> {
  runId: number;
  /** Awaited before each request. */
  pace: Pace;
  signal: AbortSignal | undefined;
  /** Milliseconds since any moment, never going back. */
  clock: () => number;
  /** So many objects more were looked at. Throws when the run was cancelled meanwhile. */
  progress: (objects: number) => Promise<void>;
}

/** Objects of one stream by their result. */
export interface Tally extends Partial<Record<DriftKind, number>> {
  /** Compared: as they should be, or drifting. */
  compared: number;
  /** Not compared: a sync has something to do about the record, or its row is gone. */
  waiting: number;
  /** Put in doubt: the row has not changed, and becomes another object than was accepted. The next sync looks at it. */
  inDoubt: number;
}

/** Counts by stream. */
export type Tallies = Map<string, Tally>;

/** Adds what was seen of a stream. */
export function count(tallies: Tallies, { name }: Stream, seen: Partial<Tally>): void {
  const tally = tallies.get(name) ?? { compared: 0, waiting: 0, inDoubt: 0 };
  for (const [kind, objects] of Object.entries(seen) as [keyof Tally, number][])
    tally[kind] = (tally[kind] ?? 0) + objects;
  tallies.set(name, tally);
}

/** An object of a record, and what is to be said of it; `unsure`: it is looked at by its external id. */
export interface Judged {
  record: OwnerRecord;
  judgement: Judgement;
}

/** A record that was written so shortly before the service was asked may have been written after it: seconds. */
const MARGIN_SECONDS = 2;

/** Whether a page may show what the service held before the record's last write. `askedAt`: by the clock. */
export function isOutdated({ clock }: Pass, { quietSeconds }: OwnerRecord, askedAt: number): boolean {
  return quietSeconds <= (clock() - askedAt) / 1000 + MARGIN_SECONDS;
}

/**
 * Looks at objects by their external ids, at most 1000, and judges them. One request for each page of them, sent once no
 * record was written just now. A record that is written meanwhile waits.
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
  // By the clock that records are written by: how busy this process is says nothing about them.
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

/** Waits until each of these records was written longer ago than the margin; those that are written again wait no longer. */
async function untilQuiet(records: readonly OwnerRecord[], signal: AbortSignal | undefined): Promise<void> {
  const youngest = records.reduce((least, { quietSeconds }) => Math.min(least, quietSeconds), Infinity);
  const seconds = MARGIN_SECONDS + 0.1 - Math.max(0, youngest);
  if (seconds > 0) await sleep(seconds * 1000, undefined, signal ? { signal } : {});
}

/**
 * Writes what drifts of the objects of a stream, and counts all of them. Looks again at those that are unsure. What no sync
 * would look at is put in doubt.
 */
export async function record(
  pass: Pass,
  stream: Stream,
  seen: readonly Judged[],
  tallies: Tallies,
): Promise<void> {
  const { state, runId } = pass;
  const source = { runId, stream: stream.name };
  const isUnsure = ({ judgement }: Judged) => judgement === 'unsure';
  const unsure = seen.filter(isUnsure).map((one) => one.record);
  const judged = [
    ...seen.filter((one) => !isUnsure(one)),
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
