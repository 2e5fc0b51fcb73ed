// Facts for `slotsync failures` and its page: causes, single records that are not in sync, and held keys. Records and
// keys are read in pages, because all of them may not fit in memory.
import { type Queries, inSnapshot } from '../state/database.js';
import { countDrift, isDrift } from '../state/drift.js';
import { countExceptions } from '../state/exceptions.js';
import { countUnsettled } from '../state/records/read/count-records.js';
import { countFormerObjects } from '../state/records/read/owners.js';
import { listRenamedRows } from '../state/records/gone-rows.js';
import { readKnowledge } from '../state/records/read/unsent-records.js';
import { type FailureFilter, listFailures, type Failure } from '../state/records/read/failures.js';
import { recordName, type RecordKey } from '../state/records/outcome-types.js';
import { isApprovable, readGates } from '../state/gates/gates.js';
import { listHeldKeys, type HeldKey } from '../state/gates/held.js';
import { describeReason } from '../sync/limits/hold-reason.js';
import { isConfigured, isNamedBy, listCauses } from './causes.js';
import { readChains, type Chain } from './chains.js';

/** A record that is not in sync. `chain`: records that it waits for. `isConfigured`: null if not known. */
export type FailureInChain = Failure & { chain?: Chain | undefined; isConfigured?: boolean | null };

export interface HeldRecord extends HeldKey {
  /** Number of the run that closed the gate, or of the last whole sync that kept the gate closed. */
  runId: number;
  /** Reason why the gate is closed, without the command that opens the gate. */
  sentence: string;
  approvable: boolean;
}

const PAGE = 1000;

export type FailuresFacts = Awaited<ReturnType<typeof readFailuresFacts>>;

/** `narrows`: options that select records within a stream, as text. `configured`: names of all configured streams. */
export async function readFailuresFacts(
  db: Queries,
  filter: FailureFilter,
  { narrows = '', configured }: { narrows?: string; configured?: readonly string[] | undefined },
) {
  const { stream, status } = filter;
  const total = await countUnsettled(db, filter);
  const drift = (await countDrift(db))
    // Objects without a record are not drift, because the service never accepted them from slotsync.
    .filter(({ kind, stream: of }) => isDrift(kind) && (stream ?? of) === of)
    .reduce((sum, { count }) => sum + count, 0);
  return {
    stream,
    status,
    narrows,
    /** `total`: number of records not in sync that match the filter. `all`: number for the whole stream. */
    total,
    all: narrows === '' ? total : await countUnsettled(db, { stream }),
    known: await readKnowledge(db, { stream, configured }),
    causes: await listCauses(db, filter, configured),
    exceptions: await countExceptions(db, stream),
    formerObjects: await countFormerObjects(db, stream),
    renamed: await listRenamedRows(db, stream),
    /** Number of objects that differed at the service in the last verify. */
    drift,
  };
}

/** Yields pages of records that match the filter, ordered by stream and key, up to `limit` records in total. */
export async function* eachFailure(
  db: Queries,
  filter: FailureFilter,
  limit = Infinity,
  configured?: readonly string[],
): AsyncGenerator<FailureInChain[]> {
  let after: RecordKey | undefined;
  for (let left = limit; left > 0;) {
    const chosen = { ...filter, after, limit: Math.min(left, PAGE) };
    const page = await listFailuresInChains(db, chosen, configured);
    if (page.length === 0) return;
    yield page;
    after = page.at(-1);
    left -= page.length;
  }
}

/** Returns one page of records that match the filter, ordered by stream and key, after the record `after`. */
export function listFailuresInChains(
  db: Queries,
  chosen: FailureFilter & { limit: number; after?: RecordKey | undefined },
  configured?: readonly string[],
): Promise<FailureInChain[]> {
  return inSnapshot(db, async (tx) => {
    const page = await listFailures(tx, chosen);
    const waitedFor = page.flatMap(({ waitsFor }) => waitsFor ?? []);
    const chains = await readChains(tx, waitedFor);
    return page.map((one) => {
      const found = one.waitsFor ? chains.get(recordName(one.waitsFor)) : undefined;
      const chain = found && {
        ...found,
        end: { ...found.end, isConfigured: isConfigured(found.end, configured) },
      };
      return { ...one, chain, isConfigured: isConfigured(one, configured) };
    });
  });
}

/** Yields pages of held keys that match the filter, up to `limit` keys in total. */
export async function* eachHeld(
  db: Queries,
  filter: FailureFilter,
  limit = Infinity,
): AsyncGenerator<HeldRecord[]> {
  let left = limit;
  for (const gate of await readGates(db)) {
    if (!isNamedBy(filter, gate)) continue;
    const ofGate = { runId: gate.runId, sentence: describeReason(gate), approvable: isApprovable(gate) };
    let after: string | undefined;
    while (left > 0) {
      const page = await listHeldKeys(db, gate, { after, limit: Math.min(left, PAGE) });
      if (page.length === 0) break;
      yield page.map((key) => ({ ...key, ...ofGate }));
      left -= page.length;
      after = page.at(-1)?.localKey;
    }
  }
}
