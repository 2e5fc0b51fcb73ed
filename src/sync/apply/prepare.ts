// Which records of a batch go on their way, and which have their outcome before anything is sent: rows that do not map,
// references that are not there yet, external ids that two rows share, rows that are gone.
import { messageOf, SlotsyncError } from '../../errors.js';
import type { Mirror, MirrorRow } from '../../mirror/mirror.js';
import type { State } from '../../state/database.js';
import { noteExternalIds, type Claim, type ClaimedRecord } from '../../state/records/claims.js';
import { readExternalIds, readOwners } from '../../state/records/external-ids.js';
import type { Outcome } from '../../state/records/outcomes.js';
import type { Batch } from '../../state/runs/batches.js';
import { mapRow, toObject, type MappedRow } from '../../streams/map-row.js';
import { createObject, hashObject, type DestinationObject } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';

export interface CandidateDeps {
  mirror: Mirror;
  state: State;
  streams: ReadonlyMap<string, Stream>;
  now?: () => number;
}

/** Gives a record its outcome. */
export type Settle = (outcome: Outcome) => void;

/** A record on its way: what would be sent, and what its acceptance would mean. */
export interface Candidate {
  localKey: string;
  record: ClaimedRecord;
  /** The mapped object; for a retirement only its external id counts. */
  object: DestinationObject;
  sourceHash: string;
  objectHash: string;
  retires: boolean;
}

const DAY = 24 * 60 * 60 * 1000;

/** The records of a batch that may be sent; the others are settled. Sends nothing. */
export async function chooseCandidates(
  deps: CandidateDeps,
  stream: Stream,
  batch: Batch,
  claim: Claim & { records: ReadonlyMap<string, ClaimedRecord> },
  settle: Settle,
): Promise<Candidate[]> {
  const { records } = claim;
  const rows = await deps.mirror.readRows(stream, [...records.keys()]);
  const mapped = mapRows(stream, records, rows, settle);
  const linked = await linkReferences(deps, stream, mapped, settle);
  await noteNewIds(deps, claim, linked);
  const own = await refuseSharedIds(deps, stream, linked, settle);
  const retiring = [...records.values()].flatMap((record) =>
    rows.has(record.localKey) ? [] : (retire(stream, batch, record, settle) ?? []),
  );
  const open = batch.isForced ? own : own.filter((candidate) => !isAccepted(candidate, settle));
  return [...open, ...retiring];
}

/** Rows that map become candidates without their references; the others are dead with the reason. */
function mapRows(
  stream: Stream,
  claimed: ReadonlyMap<string, ClaimedRecord>,
  rows: ReadonlyMap<string, MirrorRow>,
  settle: Settle,
): { record: ClaimedRecord; mapped: MappedRow; sourceHash: string }[] {
  return [...claimed.values()].flatMap((record) => {
    const found = rows.get(record.localKey);
    if (!found) return [];
    const { localKey } = record;
    const dead = (code: string, message: string) =>
      settle({ localKey, outcome: 'dead', code, message, sourceHash: found.hash });
    try {
      const mapped = mapRow(stream, found.row);
      const before = record.objectHash === null && !record.inDoubt ? null : record.externalId;
      if (before !== null && before !== mapped.extId) {
        dead(
          'external_id_changed',
          `the service knows this record as '${before}', but its row now gives '${mapped.extId}'; ` +
            'retry lets go of the former and creates the latter',
        );
        return [];
      }
      return [{ record, mapped, sourceHash: found.hash }];
    } catch (error) {
      dead('mapping_failed', messageOf(error));
      return [];
    }
  });
}

/** Fills in the external ids of references; a record whose reference is not at the service yet waits. */
async function linkReferences(
  { state, now = Date.now }: CandidateDeps,
  stream: Stream,
  mapped: readonly { record: ClaimedRecord; mapped: MappedRow; sourceHash: string }[],
  settle: Settle,
): Promise<Candidate[]> {
  const externalIdOf = await readExternalIds(
    state.db,
    mapped.flatMap(({ mapped: { references } }) => references),
  );
  return mapped.flatMap(({ record, mapped: row, sourceHash }) => {
    const { localKey } = record;
    const linked = toObject(stream, row, externalIdOf);
    if ('object' in linked) {
      const { object } = linked;
      return [{ localKey, record, object, sourceHash, objectHash: hashObject(object), retires: false }];
    }
    const { fieldId, stream: parent, localKey: parentKey } = linked.missing;
    const waitsFor = { stream: parent, localKey: parentKey };
    const message = `${fieldId} refers to ${parent} '${parentKey}', which is not at the service yet`;
    const waited = record.waitsSince ? now() - new Date(record.waitsSince).getTime() : 0;
    const shared = { localKey, externalId: row.extId, message, waitsFor };
    settle(
      waited > stream.waitDays * DAY
        ? { ...shared, outcome: 'dead', code: 'reference_never_came', sourceHash }
        : { ...shared, outcome: 'deferred', code: 'reference_missing' },
    );
    return [];
  });
}

/** So that the state knows each object by its external id before it is sent, whatever happens then. */
async function noteNewIds(
  { state }: CandidateDeps,
  claim: Claim,
  candidates: readonly Candidate[],
): Promise<void> {
  const unnoted = candidates.filter(({ record, object }) => record.externalId !== object.extId);
  const externalIds = new Map(unnoted.map(({ localKey, object }) => [localKey, object.extId]));
  if (!(await noteExternalIds(state.db, claim, externalIds))) throw claimLost();
}

/** Before anything of it was sent. */
export function claimLost(): SlotsyncError {
  return new SlotsyncError('claim_lost', 'another batch took these records over');
}

/**
 * One external id belongs to one row: where two would share it, neither is sent from here. What another batch is
 * writing for the first time counts as well. Both have noted their ids before they look here: of two that write at
 * once, one sees the other, or each does.
 */
async function refuseSharedIds(
  { state, mirror, streams }: CandidateDeps,
  stream: Stream,
  candidates: readonly Candidate[],
  settle: Settle,
): Promise<Candidate[]> {
  const owners = await readOwners(
    state.db,
    candidates.map(({ object }) => object.extId),
  );
  const inBatch = new Map<string, Candidate[]>();
  for (const candidate of candidates) {
    const { extId } = candidate.object;
    inBatch.set(extId, [...(inBatch.get(extId) ?? []), candidate]);
  }
  const accepted: Candidate[] = [];
  for (const candidate of candidates) {
    const { localKey, object, record } = candidate;
    const isAccepted = record.objectHash !== null;
    const besides = (inBatch.get(object.extId) ?? [])
      .filter((other) => other !== candidate)
      .map((other) => ({ stream: stream.name, localKey: other.localKey }));
    const elsewhere = (owners.get(object.extId) ?? []).filter(
      (owner) =>
        (owner.stream !== stream.name || owner.localKey !== localKey) &&
        (owner.isAccepted || (owner.isWritten && !isAccepted)),
    );
    const [other] = [...besides, ...(await keepLiving(mirror, streams, elsewhere))];
    if (!other) {
      accepted.push(candidate);
      continue;
    }
    const message = `external id '${object.extId}' is also that of ${other.stream} '${other.localKey}'`;
    settle({ localKey, externalId: object.extId, outcome: 'failed', code: 'external_id_shared', message });
  }
  return accepted;
}

/**
 * Owners whose row is still there. A row that came back under another key takes its object over, and so does a stream
 * that was renamed.
 */
async function keepLiving(
  mirror: Mirror,
  streams: ReadonlyMap<string, Stream>,
  owners: readonly { stream: string; localKey: string }[],
): Promise<{ stream: string; localKey: string }[]> {
  const living: { stream: string; localKey: string }[] = [];
  for (const owner of owners) {
    const stream = streams.get(owner.stream);
    if (stream && (await mirror.readRows(stream, [owner.localKey])).has(owner.localKey)) living.push(owner);
  }
  return living;
}

/** A record whose row is gone: a candidate for retirement, or settled as it is. */
function retire(stream: Stream, batch: Batch, record: ClaimedRecord, settle: Settle): Candidate | undefined {
  const { localKey, externalId, sourceHash, objectHash } = record;
  const mayBeThere = objectHash !== null || record.inDoubt;
  if (!mayBeThere || externalId === null) {
    settle({ localKey, outcome: 'forgotten' });
    return undefined;
  }
  // Only what a plan has put up for retirement is retired: a table may be empty because it is being reloaded.
  if (stream.retire === 'deactivate' && batch.operation === 'retire') {
    const object = createObject(externalId, stream.type, false, []);
    return { localKey, record, object, sourceHash: sourceHash ?? '0', objectHash: '', retires: true };
  }
  settle({ localKey, outcome: 'skipped' });
  return undefined;
}

/** Whether the service accepted exactly this object already; then it is settled without a request. */
function isAccepted(candidate: Candidate, settle: Settle): boolean {
  const { record, localKey, objectHash, sourceHash, object } = candidate;
  if (record.inDoubt || record.objectHash !== objectHash) return false;
  settle({ localKey, externalId: object.extId, outcome: 'unchanged', sourceHash, objectHash });
  return true;
}

/**
 * Keys of retiring records whose external id a living row stands for under another key: the object is that row's now,
 * whether or not it was accepted yet.
 */
export async function findNewOwners(
  { state, mirror, streams }: CandidateDeps,
  stream: Stream,
  candidates: readonly Candidate[],
): Promise<Set<string>> {
  const retiring = candidates.filter(({ retires }) => retires);
  if (retiring.length === 0) return new Set();
  const extIds = retiring.map(({ object }) => object.extId);
  const owners = await readOwners(state.db, extIds);
  const inherited = new Set<string>();
  for (const { localKey, object } of retiring) {
    const others = (owners.get(object.extId) ?? []).filter(
      (owner) => owner.stream !== stream.name || owner.localKey !== localKey,
    );
    if ((await keepLiving(mirror, streams, others)).length > 0) inherited.add(localKey);
  }
  return inherited;
}
