// A type read back whole: each of its objects beside the record that owns it, and then each record whose object was not met,
// asked for by its external id. Memory grows with the type by the external ids alone: 56 MB for a million.
import type { FoundObject } from '../../destination/destination.js';
import { readDriftingKeys } from '../../state/drift/read-drift.js';
import { mendDrift, writeDrift } from '../../state/drift/write-drift.js';
import { listOwners } from '../../state/records/read/owners.js';
import type { Stream } from '../../streams/stream.js';
import { findOwners } from '../object/compare-objects.js';
import {
  addTally,
  emptyTally,
  isOutdated,
  judge,
  judgeByExternalId,
  record,
  type Judged,
  type Pass,
  type Tally,
} from './verify-pass.js';

/** Records walked through at once, and asked for in one request. */
const AT_ONCE = 1000;

/** The part of a type that is verified. */
interface TypeRequest {
  type: string;
  /** The streams of the type that are verified. */
  streams: readonly Stream[];
  /** Objects that are nobody's record are written down; they are counted always. */
  extras: boolean;
}

/**
 * Counts by stream. Objects that are nobody's record count with the first stream of their type that is configured,
 * and only where that one is verified.
 */
export type Tallies = Map<string, Tally>;

/** Reads a type back, compares it and writes down what drifts. Throws what the sides throw, or the signal's reason. */
export async function readTypeBack(pass: Pass, request: TypeRequest): Promise<Tallies> {
  const { met, tallies } = await readObjects(pass, request);
  for (const stream of request.streams)
    addTally(tallyOf(tallies, stream), await lookForUnmet(pass, stream, met));
  return tallies;
}

/** Compares the objects of the type page by page. */
async function readObjects(
  pass: Pass,
  request: TypeRequest,
): Promise<{ met: Set<string>; tallies: Tallies }> {
  const { destination, clock, pace, signal } = pass;
  /** When each page was asked for that was not answered yet, in the order of the pages. */
  let asked: number[] = [];
  const pacing = async () => {
    asked.push(clock());
    await pace(signal);
  };
  const context = { lane: 'verify', signal } as const;
  return destination.readType(
    request.type,
    context,
    async (pages) => {
      // A reading that is repeated starts from nothing.
      asked = [];
      const met = new Set<string>();
      const tallies: Tallies = new Map();
      for await (const objects of pages) {
        signal?.throwIfAborted();
        const askedAt = asked.shift() ?? -Infinity;
        for (const { extId } of objects) if (extId !== undefined) met.add(extId);
        await comparePage(pass, request, { objects, askedAt }, tallies);
        await pass.progress(objects.length);
      }
      return { met, tallies };
    },
    { pace: pacing },
  );
}

async function comparePage(
  pass: Pass,
  { type, streams, extras }: TypeRequest,
  { objects, askedAt }: { objects: readonly FoundObject[]; askedAt: number },
  tallies: Tallies,
): Promise<void> {
  const judged = new Map<Stream, Judged[]>(streams.map((stream) => [stream, []]));
  const unsure = new Map<Stream, Judged['record'][]>();
  const unowned: FoundObject[] = [];
  for (const { object, owner } of await findOwners(pass, objects)) {
    if (!owner) {
      unowned.push(object);
      continue;
    }
    const { stream } = owner;
    // An object that is of another type than its record's is met when the record is asked for.
    const into = stream.type === type ? judged.get(stream) : undefined;
    if (!into) continue;
    if (!owner.record) {
      addTally(tallyOf(tallies, stream), { ...emptyTally(), waiting: 1 });
      continue;
    }
    const compared = { ...owner, record: owner.record };
    const sure = judge(compared, object, isOutdated(pass, owner.record, askedAt));
    if (sure) into.push(sure);
    else unsure.set(stream, [...(unsure.get(stream) ?? []), owner.record]);
  }
  for (const [stream, records] of unsure)
    for (const one of await judgeByExternalId(pass, stream, records)) judged.get(stream)?.push(one);
  for (const [stream, all] of judged) addTally(tallyOf(tallies, stream), await record(pass, stream, all));
  const first = [...pass.streams.values()].find((stream) => stream.type === type);
  if (!first || !streams.includes(first) || unowned.length === 0) return;
  addTally(tallyOf(tallies, first), { ...emptyTally(), extra: unowned.length });
  const source = { runId: pass.runId, stream: first.name };
  // Who does not ask for them keeps what was said of them, as long as it is true.
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

/** Asks for the objects of a stream's records that the reading has not met. */
async function lookForUnmet(pass: Pass, stream: Stream, met: ReadonlySet<string>): Promise<Tally> {
  const { state, signal } = pass;
  const tally = emptyTally();
  let unmet: Judged['record'][] = [];
  const look = async () => {
    addTally(tally, await record(pass, stream, await judgeByExternalId(pass, stream, unmet)));
    unmet = [];
  };
  for (let after: string | undefined; ;) {
    signal?.throwIfAborted();
    const block = await listOwners(state.db, stream.name, after, AT_ONCE);
    const fine: string[] = [];
    for (const standing of block) {
      if (met.has(standing.externalId)) continue;
      // The object of a retired record may be absent. A record that a sync has to send is not judged.
      if (standing.status === 'retired') fine.push(standing.localKey);
      else if (standing.status !== 'synced' || !standing.isSettled) tally.waiting++;
      else if (unmet.push(standing) >= AT_ONCE) await look();
    }
    await mendDrift(state.db, { runId: pass.runId, stream: stream.name }, { keys: fine });
    await pass.progress(0);
    after = block.at(-1)?.localKey;
    if (block.length < AT_ONCE || after === undefined) break;
  }
  await look();
  return tally;
}

function tallyOf(tallies: Tallies, { name }: Stream): Tally {
  const tally = tallies.get(name) ?? emptyTally();
  tallies.set(name, tally);
  return tally;
}
