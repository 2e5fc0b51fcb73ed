// Types read back whole: each of their objects beside the record that owns it, and then each record whose object was not met,
// asked for by its external id. Memory grows with the type by the external ids alone: 56 MB for a million.
import type { FoundObject } from '../../destination/destination.js';
import { readDriftingKeys } from '../../state/drift/read-drift.js';
import { mendDrift, writeDrift } from '../../state/drift/write-drift.js';
import { listOwners } from '../../state/records/read/owners.js';
import type { Stream } from '../../streams/stream.js';
import { readBeside, type ObjectBeside } from '../object/compare-objects.js';
import { judgeObject } from './judge-object.js';
import { count, isOutdated, record, type Judged, type Pass, type Tallies } from './verify-pass.js';

/** Records walked through at once, and asked for in one request. */
const AT_ONCE = 1000;

/** Types that are read back together. */
interface TypeRequest {
  types: ReadonlySet<string>;
  /** The streams of these types that are verified. */
  streams: readonly Stream[];
  /** Objects that are nobody's record are written down; they are counted always. */
  extras: boolean;
}

/**
 * Reads types back, compares them and writes down what drifts. Objects that are nobody's record count with the first stream of
 * these types that is configured, and only where that one is verified. Throws what the sides throw, or the signal's reason.
 */
export async function readTypesBack(pass: Pass, request: TypeRequest): Promise<Tallies> {
  const { clock, signal } = pass;
  const { met, tallies } = await readBeside(
    pass,
    { types: request.types, context: { lane: 'verify', signal }, pace: () => pass.pace(signal), clock },
    () => ({ met: new Set<string>(), tallies: new Map() as Tallies }),
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
    // An object that is of another type than its record's is met when the record is asked for.
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
async function lookForUnmet(
  pass: Pass,
  stream: Stream,
  met: ReadonlySet<string>,
  tallies: Tallies,
): Promise<void> {
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
      // The object of a retired record may be absent. A record that a sync has to send is not judged.
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
