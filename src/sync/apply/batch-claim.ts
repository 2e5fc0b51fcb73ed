// The right of a batch to write: the records of its keys and, where an external id does not follow from the key alone, the
// objects. Whatever another batch has is left to it. A claim is renewed while its batch lives, and looked at once more with
// the slot of a write in hand.
import { randomUUID } from 'node:crypto';
import { SlotsyncError } from '../../errors/errors.js';
import { repeat } from '../../process/lifecycle.js';
import type { Queries } from '../../state/database.js';
import { isToBeSent, type Batch } from '../../state/runs/batches.js';
import {
  claimRecords,
  doubtRecords,
  readClaimed,
  releasingClaim,
  renewClaim,
  type Claim,
  type ClaimedRecord,
} from '../../state/records/claim-records.js';
import { listExceptions } from '../../state/exceptions.js';
import { requireBinding } from '../../state/destination-binding.js';
import { claimObjects, releasingObjects, renewObjectClaims } from '../../state/records/claim-objects.js';
import type { Stream } from '../../streams/stream.js';
import type { Identified } from '../object/render.js';
import type { SyncDeps } from '../run/sync-deps.js';
import type { Context } from '../../destination/client.js';
import type { Answers, Refusals } from '../limits/refusals.js';
import type { NoteOutcome } from '../object/decide-outcome.js';

export interface ClaimDeps extends SyncDeps {
  /** Id of the process that has the claim, as in `processes`: so the claim of a process that has ended is recognized. */
  processId?: string | undefined;
  /** Milliseconds since any moment, never going back. */
  clock?: () => number;
}

const SECOND = 1000;
const UNIQUE_VIOLATION = '23505';
/** A claim is valid for so much longer than a request may take. */
const BEYOND_REQUEST_MS = 30 * SECOND;
/** A write is sent only while its claim is valid for so much longer than the request may take. */
const MARGIN_MS = 10 * SECOND;

/** Whether a batch may be sent is asked again after this time. */
const SEEN_JUST_NOW_MS = 2 * SECOND;

/** Claims what of a batch no other batch has, and renews the claim until it is stopped. */
export async function claimBatch(deps: ClaimDeps, stream: Stream, batch: Batch): Promise<BatchClaim> {
  const { mirror, destination, state, processId = 'unnamed', clock = () => performance.now() } = deps;
  const { id, runId, keys } = batch;
  const validMs = destination.requestTimeoutMs + BEYOND_REQUEST_MS;
  const right: Claim = {
    token: `${processId} batch ${id} ${randomUUID()}`,
    stream: stream.name,
    seconds: validMs / SECOND,
    lateSeconds: destination.lateWriteMs / SECOND,
  };
  const takenAt = clock();
  const idsOfKeys = await mirror.readExternalIdsOfKeys(stream, keys);
  const wanted = { ...right, keys, runId, binding: destination.binding };
  const claimed = await claimRecords(state.db, { ...wanted, externalIds: idsOfKeys }).catch(
    (error: unknown) => {
      // Another batch came to own one of these objects at the same moment: which record does is seen under the claim.
      if (!(error instanceof SlotsyncError) || error.facts['sqlstate'] !== UNIQUE_VIOLATION) throw error;
      return claimRecords(state.db, wanted);
    },
  );
  if (claimed.size === 0) await requireBinding(state, destination.binding);
  const unclaimed = keys.filter((key) => !claimed.has(key));
  const excepted =
    unclaimed.length > 0 ? await listExceptions(state.db, { stream: stream.name, keys: unclaimed }) : [];
  const given = { db: state.db, clock, requestTimeoutMs: destination.requestTimeoutMs, validMs, takenAt };
  const claim = new BatchClaim(right, {
    ...given,
    ownsIds: stream.ownsIds,
    batchId: id,
    idsOfKeys,
    claimed,
    excepted: excepted.map(({ localKey }) => localKey),
  });
  await claim.begin();
  return claim;
}

interface ClaimParts {
  db: Queries;
  clock: () => number;
  requestTimeoutMs: number;
  validMs: number;
  takenAt: number;
  /** The external ids of the stream follow from its keys. */
  ownsIds: boolean;
  batchId: number;
  idsOfKeys: ReadonlyMap<string, string>;
  claimed: Awaited<ReturnType<typeof claimRecords>>;
  /** Keys that were not claimed because an exception leaves them as they are. */
  excepted: readonly string[];
}

export class BatchClaim {
  readonly right: Claim;
  private readonly parts: ClaimParts;
  /** The records that were claimed, and those of them whose object no other batch has. */
  private readonly claimed: ReadonlyMap<string, ClaimedRecord>;
  private readonly writable: Map<string, ClaimedRecord>;
  /** Keys whose objects do not follow from them. */
  private readonly linked: Set<string>;
  private readonly objects = new Set<string>();
  private readonly closing = new AbortController();
  private renewals: ReturnType<typeof repeat> | undefined;
  private renewing: Promise<boolean> | undefined;
  private until: number;
  private confirmations = 0;

  constructor(right: Claim, parts: ClaimParts) {
    this.right = right;
    this.parts = parts;
    this.claimed = asWished(parts.claimed);
    this.writable = new Map(this.claimed);
    this.until = parts.takenAt + parts.validMs;
    const linked = [...parts.claimed.values()].filter(({ isLinked }) => isLinked);
    this.linked = new Set(linked.map(({ localKey }) => localKey));
  }

  /** Claims the objects of the records, and begins to renew. */
  async begin(): Promise<void> {
    const { validMs } = this.parts;
    await this.claimIds(new Map([...this.claimed].map(([key, record]) => [key, this.idsToClaim(record)])));
    this.renewals = repeat(async () => void (await this.renew()), {
      everyMs: validMs / 3,
      firstAfterMs: validMs / 3,
      signal: this.closing.signal,
      onError: () => undefined, // whoever is to send renews it again, and throws
    });
  }

  /** The records that may be written, by key. */
  get records(): ReadonlyMap<string, ClaimedRecord> {
    return this.writable;
  }

  /** The keys of the batch that exceptions leave as they are. */
  get excepted(): readonly string[] {
    return this.parts.excepted;
  }

  /** Claims the objects that rows give, by key; see `claimIds`. */
  claimRowIds(rowIds: ReadonlyMap<string, Identified>): Promise<string[]> {
    for (const [key, { link }] of rowIds) if (link) this.linked.add(key);
    return this.claimIds(
      new Map(
        [...rowIds].flatMap(([key, { extId }]) => {
          const record = this.writable.get(key);
          return record ? [[key, this.idsToClaim(record, extId)] as const] : [];
        }),
      ),
    );
  }

  /** Whether an object may be written under this claim. */
  covers(record: ClaimedRecord, { extId, link }: Identified): boolean {
    return (!link || this.linked.has(record.localKey)) && this.idsToClaim(record, extId).length === 0;
  }

  /** Reads these records again, after objects have changed hands. One that was lost meanwhile is left to a later attempt. */
  async refresh(keys: readonly string[]): Promise<void> {
    const mine = keys.filter((key) => this.writable.has(key));
    const current = asWished(await readClaimed(this.parts.db, this.right, mine));
    for (const key of mine) {
      const record = current.get(key);
      if (record) this.writable.set(key, record);
      else this.writable.delete(key);
    }
  }

  /** The record owns this object from here on, of which nothing was known. */
  noteOwned(key: string, externalId: string): void {
    const record = this.writable.get(key);
    if (record) this.writable.set(key, { ...record, externalId });
  }

  /** Leaves a record to a later attempt. */
  leave(key: string): void {
    this.writable.delete(key);
  }

  /**
   * To be called with the slot of a write in hand: however long the quota was waited for, the claim outlives the request.
   * Throws `claim_lost` when another batch has taken something over, `run_stopped` when its run stands still or its stream is frozen.
   */
  async confirm(): Promise<void> {
    const { db, clock, requestTimeoutMs, takenAt, batchId } = this.parts;
    if (this.until - clock() < requestTimeoutMs + MARGIN_MS && !(await this.renew())) throw claimLost();
    // Whether it may be sent was seen when the batch was taken; the slot may come later, and the rest of it.
    const isSeenJustNow = this.confirmations++ === 0 && clock() - takenAt < SEEN_JUST_NOW_MS;
    if (!isSeenJustNow && !(await isToBeSent(db, batchId, this.right.token)))
      throw new SlotsyncError(
        'run_stopped',
        'its run was paused or cancelled, its stream frozen, or an exception made of a record, so no more of the batch is sent',
      );
  }

  /** Notes that a write of these keys was sent whose answer is not known. */
  doubt(keys: readonly string[]): Promise<void> {
    return doubtRecords(this.parts.db, this.right, keys);
  }

  /**
   * Resolves when no renewal is under way any more. A claim that is not released is taken over when it has expired, and its
   * records are in doubt then.
   */
  async stopRenewing(): Promise<void> {
    this.closing.abort();
    await this.renewals?.ended;
  }

  /** Statements that release the claims on objects, and those on the records of these keys. */
  releasing(open: readonly string[]) {
    const claimed = open.filter((key) => this.claimed.has(key));
    return [...releasingClaim(this.right, claimed), ...releasingObjects(this.right.token, [...this.objects])];
  }

  /** Renewals come one at a time: two that lock the same rows, each in its own order, may wait for each other. */
  private renew(): Promise<boolean> {
    return (this.renewing ??= this.renewNow().finally(() => (this.renewing = undefined)));
  }

  private async renewNow(): Promise<boolean> {
    const { db, clock, validMs } = this.parts;
    const next = clock() + validMs;
    const isOurs =
      (await renewClaim(db, this.right, [...this.writable.keys()])) &&
      (await renewObjectClaims(db, this.right, [...this.objects]));
    if (isOurs) this.until = next;
    return isOurs;
  }

  /** The external ids of a record that its claim does not cover. `rowId`: its row's. */
  private idsToClaim({ localKey, externalId }: ClaimedRecord, rowId?: string): string[] {
    const { ownsIds, idsOfKeys } = this.parts;
    const ownIds = ownsIds && !this.linked.has(localKey) ? [rowId, idsOfKeys.get(localKey)] : [];
    return [externalId, rowId].filter(
      (known): known is string =>
        typeof known === 'string' && !ownIds.includes(known) && !this.objects.has(known),
    );
  }

  /**
   * Claims the objects of the records, and leaves those records out of whose objects another batch has one. Returns the
   * keys for which an object was claimed just now.
   */
  private async claimIds(idsByKey: ReadonlyMap<string, readonly string[]>): Promise<string[]> {
    const { db } = this.parts;
    const { writable, objects } = this;
    const wanted = [...idsByKey.values()].flat();
    if (wanted.length === 0) return [];
    const claimed = await claimObjects(db, this.right, wanted);
    for (const externalId of claimed.keys()) objects.add(externalId);
    for (const [key, ids] of idsByKey) if (ids.some((one) => !objects.has(one))) writable.delete(key);
    const doubtful = [...idsByKey].flatMap(([key, ids]) =>
      writable.has(key) && ids.some((one) => claimed.get(one)?.isTakenOver) ? [key] : [],
    );
    await doubtRecords(db, this.right, doubtful);
    for (const key of doubtful) {
      const record = writable.get(key);
      if (record) writable.set(key, { ...record, inDoubt: true, isCheckPending: true });
    }
    return [...idsByKey].flatMap(([key, ids]) => (ids.length > 0 && writable.has(key) ? [key] : []));
  }
}

/** A repair reads the object, whatever was accepted last. */
const asWished = (records: ReadonlyMap<string, ClaimedRecord>): Map<string, ClaimedRecord> =>
  new Map(
    [...records].map(([key, record]) => [
      key,
      record.resend === 'repair' ? { ...record, inDoubt: true } : record,
    ]),
  );

/** It is sent although the service holds it as it is. */
export const isWanted = ({ resend }: Pick<ClaimedRecord, 'resend'>): boolean => resend === 'forced';

/** Before anything of it was sent. */
export function claimLost(): SlotsyncError {
  return new SlotsyncError('claim_lost', 'another batch took these records over');
}

export interface BatchWork {
  batch: Batch;
  stream: Stream;
  claim: BatchClaim;
  /** Lane and signal of its requests. */
  context: Context;
  note: NoteOutcome;
  refusals: Refusals;
  /** Answers about its objects that were not counted yet. */
  answers: Answers;
}
