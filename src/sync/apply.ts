// A batch becomes accepted objects: claim the records, read the rows as they are now, map them, drop what the
// service already holds, read what the mapping does not own whole, write once, and settle every record with
// its outcome in one transaction. Nothing is recorded as accepted that the service did not accept.
import { randomUUID } from 'node:crypto';
import type { Destination, ObjectThere, PutResult } from '../destination/destination.js';
import type { Context } from '../destination/client.js';
import type { Lane } from '../destination/quota/limiter.js';
import { messageOf, SlotsyncError } from '../errors.js';
import type { Logger } from '../logger.js';
import type { Mirror, MirrorRow } from '../mirror/mirror.js';
import { settleBatch, type Batch } from '../state/batches.js';
import type { State } from '../state/database.js';
import * as records from '../state/records.js';
import type { ClaimedRecord, Outcome } from '../state/records.js';
import { mapRow, toObject, type MappedRow } from '../streams/mapping.js';
import {
  createObject,
  hashObject,
  isSameObject,
  mergeObject,
  type DestinationObject,
} from '../streams/object.js';
import type { Stream } from '../streams/streams.js';
import { putHalving } from './put.js';

export interface ApplyDeps {
  mirror: Mirror;
  destination: Destination;
  state: State;
  streams: ReadonlyMap<string, Stream>;
  log: Logger;
  now?: () => number;
}

/** A record on its way: what would be sent, and what its acceptance would mean. */
interface Candidate {
  localKey: string;
  record: ClaimedRecord;
  /** The mapped object; for a retirement only its external id counts. */
  object: DestinationObject;
  sourceHash: string;
  objectHash: string;
  retires: boolean;
}

const DAY = 24 * 60 * 60 * 1000;
/** A claim is renewed before each write; a write may take this long, in milliseconds. */
const WRITE_WITHIN = (records.CLAIM_SECONDS - 10) * 1000;

/**
 * Applies one batch. Returns the batches its run queues next. Throws SlotsyncError when records remain without an
 * outcome; those that have one are settled all the same. Try again with the same batch.
 */
export async function applyBatch(
  deps: ApplyDeps,
  batch: Batch,
  signal?: AbortSignal,
): Promise<{ queue: number[] }> {
  const { state, log } = deps;
  const stream = deps.streams.get(batch.stream);
  if (!stream) {
    throw new SlotsyncError('configuration', `the configuration has no stream '${batch.stream}' any more`, {
      disposition: 'dead',
      remedy: 'Put it back, or let the run end and start another.',
    });
  }
  const token = `batch ${batch.id} ${randomUUID()}`;
  const outcomes = new Map<string, Outcome>();
  const attempt = { sent: false };
  let failure: unknown;
  const claimed = await records.claimRecords(state.db, {
    token,
    stream: stream.name,
    keys: batch.keys,
    runId: batch.runId,
  });
  try {
    await settleInto(outcomes, deps, stream, batch, claimed, { token, attempt, signal });
  } catch (error) {
    failure = error;
  }
  const settled = await settleBatch(state, batch, { token, outcomes: [...outcomes.values()] });
  await records.releaseClaim(state.db, token, attempt.sent);

  if (settled.remaining.length === 0) {
    log.info({ ...records.countOutcomes(outcomes.values()) }, 'batch applied');
    return { queue: settled.queue };
  }
  if (failure !== undefined) throw failure;
  if (claimed.size < batch.keys.length) {
    throw new SlotsyncError('claimed', 'another batch is writing some of these records', {
      disposition: 'defer',
    });
  }
  throw new SlotsyncError('answer_incomplete', 'the service said nothing final of some objects', {
    disposition: 'retry',
    facts: { objects: settled.remaining.length },
  });
}

async function settleInto(
  outcomes: Map<string, Outcome>,
  deps: ApplyDeps,
  stream: Stream,
  batch: Batch,
  claimed: ReadonlyMap<string, ClaimedRecord>,
  run: { token: string; attempt: { sent: boolean }; signal: AbortSignal | undefined },
): Promise<void> {
  const context: Context = { lane: batch.lane as Lane, signal: run.signal };
  const settle = (outcome: Outcome) => outcomes.set(outcome.localKey, outcome);

  const rows = await deps.mirror.readRows(stream, [...claimed.keys()]);
  const mapped = mapRows(stream, claimed, rows, settle);
  const linked = await linkReferences(deps, stream, mapped, settle);
  const own = await refuseSharedIds(deps, stream, linked, settle);
  const retiring = [...claimed.values()].flatMap((record) =>
    rows.has(record.localKey) ? [] : (retire(stream, batch, record, settle) ?? []),
  );
  const open = [...own.filter((candidate) => !isAccepted(candidate, settle)), ...retiring];
  if (open.length === 0) return;

  const toWrite = await mergeWithThere(deps, stream, open, context, settle);
  if (toWrite.length === 0) return;

  const results = new Map<string, PutResult>();
  const write = async (objects: readonly DestinationObject[]) => {
    const open = toWrite.filter(({ object }) => !results.has(object.extId));
    const renewed = open.map(({ candidate, object }) => ({
      localKey: candidate.localKey,
      externalId: object.extId,
    }));
    if (!(await records.renewClaim(deps.state.db, run.token, stream.name, renewed))) {
      throw new SlotsyncError('claim_lost', 'another batch took these records over', {
        disposition: 'retry',
      });
    }
    const within = AbortSignal.timeout(WRITE_WITHIN);
    const signal = run.signal ? AbortSignal.any([run.signal, within]) : within;
    run.attempt.sent = true;
    return deps.destination.putObjects(objects, { ...context, signal });
  };
  try {
    await putHalving(
      write,
      toWrite.map(({ object }) => object),
      results,
    );
  } finally {
    for (const { candidate } of toWrite) {
      const result = results.get(candidate.object.extId);
      const outcome = result && toOutcome(candidate, result);
      if (outcome) settle(outcome);
    }
  }
}

/** Rows that map become candidates without their references; the others are dead with the reason. */
function mapRows(
  stream: Stream,
  claimed: ReadonlyMap<string, ClaimedRecord>,
  rows: ReadonlyMap<string, MirrorRow>,
  settle: (outcome: Outcome) => void,
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
  { state, now = Date.now }: ApplyDeps,
  stream: Stream,
  mapped: readonly { record: ClaimedRecord; mapped: MappedRow; sourceHash: string }[],
  settle: (outcome: Outcome) => void,
): Promise<Candidate[]> {
  const externalIdOf = await records.readExternalIds(
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

/** One external id belongs to one row: where two would share it, neither is sent from here. */
async function refuseSharedIds(
  { state, mirror, streams }: ApplyDeps,
  stream: Stream,
  candidates: readonly Candidate[],
  settle: (outcome: Outcome) => void,
): Promise<Candidate[]> {
  const owners = await records.readOwners(
    state.db,
    candidates.map(({ object }) => object.extId),
  );
  const accepted: Candidate[] = [];
  for (const candidate of candidates) {
    const { localKey, object } = candidate;
    const inBatch = candidates
      .filter((other) => other !== candidate && other.object.extId === object.extId)
      .map((other) => ({ stream: stream.name, localKey: other.localKey }));
    const elsewhere = (owners.get(object.extId) ?? []).filter(
      (owner) => owner.stream !== stream.name || owner.localKey !== localKey,
    );
    const [other] = [...inBatch, ...(await keepLiving(mirror, streams, elsewhere))];
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
function retire(
  stream: Stream,
  batch: Batch,
  record: ClaimedRecord,
  settle: (outcome: Outcome) => void,
): Candidate | undefined {
  const { localKey, externalId, sourceHash, objectHash } = record;
  const mayBeThere = objectHash !== null || record.inDoubt;
  if (!mayBeThere || externalId === null) {
    settle({ localKey, outcome: 'gone' });
    return undefined;
  }
  // Only what a plan has put up for retirement is retired: a table may be empty because it is being reloaded.
  if (stream.retire === 'deactivate' && batch.retires) {
    const object = createObject(externalId, stream.type, false, []);
    return { localKey, record, object, sourceHash: sourceHash ?? '0', objectHash: '', retires: true };
  }
  settle({ localKey, outcome: 'left' });
  return undefined;
}

/** Whether the service accepted exactly this object already; then it is settled without a request. */
function isAccepted(candidate: Candidate, settle: (outcome: Outcome) => void): boolean {
  const { record, localKey, objectHash, sourceHash, object } = candidate;
  if (record.inDoubt || record.objectHash !== objectHash) return false;
  settle({ localKey, externalId: object.extId, outcome: 'unchanged', sourceHash, objectHash });
  return true;
}

/** What is really written: the mapped object over what stands there, where the mapping does not own it whole. */
async function mergeWithThere(
  deps: ApplyDeps,
  stream: Stream,
  candidates: readonly Candidate[],
  context: Context,
  settle: (outcome: Outcome) => void,
): Promise<{ candidate: Candidate; object: DestinationObject }[]> {
  const toRead = candidates.filter(({ retires }) => retires || stream.owns === 'fields');
  const extIds = toRead.map(({ object }) => object.extId);
  const there: Map<string, ObjectThere> =
    extIds.length === 0 ? new Map() : await deps.destination.findObjects(extIds, stream.type, context);
  const heirs = await findHeirs(deps, stream, candidates);

  return candidates.flatMap((candidate) => {
    const { localKey, object, record } = candidate;
    const found = there.get(object.extId);
    if (found && found.typeId !== stream.type) {
      const message = `'${object.extId}' exists at the service as a ${found.typeId}, not a ${stream.type}`;
      settle({
        localKey,
        outcome: 'dead',
        code: 'external_id_taken',
        message,
        sourceHash: candidate.sourceHash,
      });
      return [];
    }
    if (!candidate.retires) {
      const merged = stream.owns === 'object' ? object : mergeObject(object, found, stream.owned);
      if (found && !record.inDoubt && isSameObject(merged, found)) {
        settle({ ...accepted(candidate, found.id), outcome: 'unchanged' });
        return [];
      }
      return [{ candidate, object: merged }];
    }
    if (!found || heirs.has(localKey)) {
      settle({ localKey, outcome: 'gone' });
      return [];
    }
    const kept = found.fields.map(({ fieldId, values }) => [fieldId, values] as const);
    const inactive = createObject(found.extId, found.typeId, false, kept);
    const retired = { ...candidate, objectHash: hashObject(inactive) };
    if (!found.active) {
      settle({ ...accepted(retired, found.id), outcome: 'unchanged' });
      return [];
    }
    return [{ candidate: retired, object: inactive }];
  });
}

/**
 * Keys of retiring records whose external id a living row stands for under another key: the object is that row's now,
 * whether or not it was accepted yet.
 */
async function findHeirs(
  { state, mirror, streams }: ApplyDeps,
  stream: Stream,
  candidates: readonly Candidate[],
): Promise<Set<string>> {
  const retiring = candidates.filter(({ retires }) => retires);
  if (retiring.length === 0) return new Set();
  const extIds = retiring.map(({ object }) => object.extId);
  const owners = await records.readOwners(state.db, extIds, 'all');
  const inherited = new Set<string>();
  for (const { localKey, object } of retiring) {
    const others = (owners.get(object.extId) ?? []).filter(
      (owner) => owner.stream !== stream.name || owner.localKey !== localKey,
    );
    if ((await keepLiving(mirror, streams, others)).length > 0) inherited.add(localKey);
  }
  return inherited;
}

function accepted(
  { localKey, object, sourceHash, objectHash, retires }: Candidate,
  destinationId: number | undefined,
) {
  return { localKey, externalId: object.extId, destinationId, sourceHash, objectHash, retired: retires };
}

/** An item the service would take later (408, 425, 429, 5xx) has no outcome yet: the batch is tried again. */
function toOutcome(candidate: Candidate, result: PutResult): Outcome | undefined {
  if (result.accepted) return { ...accepted(candidate, result.id), outcome: 'synced' };
  const { status, message } = result;
  if (status >= 500 || status === 408 || status === 425 || status === 429) return undefined;
  const { localKey, object, sourceHash } = candidate;
  return {
    localKey,
    externalId: object.extId,
    outcome: 'dead',
    code: `refused_${status}`,
    message,
    sourceHash,
  };
}
