// Claims a batch's records, and their objects where the external id does not follow from the key alone. Keys that
// another batch has claimed are left out. The claim is renewed while the batch works, and checked again just before
// each write.
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
  /** Id of this process in `processes`. It lets other processes detect claims of a process that has ended. */
  processId?: string | undefined;
  /** Returns milliseconds of a monotonic clock. */
  clock?: () => number;
}

const SECOND = 1000;
const UNIQUE_VIOLATION = '23505';
/** Validity of a claim, in addition to the request timeout. */
const BEYOND_REQUEST_MS = 30 * SECOND;
/** Minimum remaining validity of a claim after the request timeout. Otherwise the claim is renewed before a write. */
const MARGIN_MS = 10 * SECOND;

/** Milliseconds after which a batch checks again whether it may be sent. */
const SEEN_JUST_NOW_MS = 2 * SECOND;

/** Claims the records of a batch that no other batch has, and renews the claim until `stopRenewing`. */
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
      // Another batch just took one of these objects. The claim without external ids lets the owner be checked later.
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
  /** True if the stream's external ids follow from its keys. */
  ownsIds: boolean;
  batchId: number;
  idsOfKeys: ReadonlyMap<string, string>;
  claimed: Awaited<ReturnType<typeof claimRecords>>;
  /** Keys not claimed, because an operator's exception protects the records. */
  excepted: readonly string[];
}

export class BatchClaim {
  readonly right: Claim;
  private readonly parts: ClaimParts;
  /** All claimed records. `writable` has only those whose objects no other batch has claimed. */
  private readonly claimed: ReadonlyMap<string, ClaimedRecord>;
  private readonly writable: Map<string, ClaimedRecord>;
  /** Keys whose external ids come from links instead of the keys. */
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

  /** Claims the objects of the records, and starts the renewals. */
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

  /** Records that this batch may write, by key. */
  get records(): ReadonlyMap<string, ClaimedRecord> {
    return this.writable;
  }

  /** Keys of the batch that exceptions protect from writes. */
  get excepted(): readonly string[] {
    return this.parts.excepted;
  }

  /** Claims the objects of these rows' external ids. Returns the keys with a new claim; see `claimIds`. */
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

  /** Returns true if this claim permits a write of the record's object. */
  covers(record: ClaimedRecord, { extId, link }: Identified): boolean {
    return (!link || this.linked.has(record.localKey)) && this.idsToClaim(record, extId).length === 0;
  }

  /** Reads records again after their objects changed owner. A record lost meanwhile is left to a later attempt. */
  async refresh(keys: readonly string[]): Promise<void> {
    const mine = keys.filter((key) => this.writable.has(key));
    const current = asWished(await readClaimed(this.parts.db, this.right, mine));
    for (const key of mine) {
      const record = current.get(key);
      if (record) this.writable.set(key, record);
      else this.writable.delete(key);
    }
  }

  /** Notes that the record now owns this object, of which no acceptance is known. */
  noteOwned(key: string, externalId: string): void {
    const record = this.writable.get(key);
    if (record) this.writable.set(key, { ...record, externalId });
  }

  /** Removes a record from this attempt. A later attempt writes it. */
  leave(key: string): void {
    this.writable.delete(key);
  }

  /**
   * Checks the claim when a write has its slot, and renews it if it could expire during the request. Throws
   * `claim_lost` if another batch has taken records over, `run_stopped` if the run or the stream may not send.
   */
  async confirm(): Promise<void> {
    const { db, clock, requestTimeoutMs, takenAt, batchId } = this.parts;
    if (this.until - clock() < requestTimeoutMs + MARGIN_MS && !(await this.renew())) throw claimLost();
    // The batch was checked when it was taken. Later requests, or a late slot, need another check.
    const isSeenJustNow = this.confirmations++ === 0 && clock() - takenAt < SEEN_JUST_NOW_MS;
    if (!isSeenJustNow && !(await isToBeSent(db, batchId, this.right.token)))
      throw new SlotsyncError(
        'run_stopped',
        'its run was paused or cancelled, its stream frozen, or an exception made of a record, so no more of the batch is sent',
      );
  }

  /** Notes that a write of these keys was sent without a known answer. */
  doubt(keys: readonly string[]): Promise<void> {
    return doubtRecords(this.parts.db, this.right, keys);
  }

  /**
   * Stops renewals, and waits for the one in progress. An unreleased claim expires, and the next batch that claims its
   * records puts them in doubt.
   */
  async stopRenewing(): Promise<void> {
    this.closing.abort();
    await this.renewals?.ended;
  }

  /** Returns statements that release the claims on all objects, and on the records of these keys. */
  releasing(open: readonly string[]) {
    const claimed = open.filter((key) => this.claimed.has(key));
    return [...releasingClaim(this.right, claimed), ...releasingObjects(this.right.token, [...this.objects])];
  }

  /** Runs one renewal at a time. Two that lock the same rows in different orders could deadlock. */
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

  /** Returns external ids of a record that the claim does not cover yet. `rowId`: external id of its row. */
  private idsToClaim({ localKey, externalId }: ClaimedRecord, rowId?: string): string[] {
    const { ownsIds, idsOfKeys } = this.parts;
    const ownIds = ownsIds && !this.linked.has(localKey) ? [rowId, idsOfKeys.get(localKey)] : [];
    return [externalId, rowId].filter(
      (known): known is string =>
        typeof known === 'string' && !ownIds.includes(known) && !this.objects.has(known),
    );
  }

  /**
   * Claims the objects of the records. Records with an object that another batch has become unwritable. Returns the
   * keys with newly claimed objects.
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

/** Marks records of a repair as in doubt, so that their objects are read whatever was accepted last. */
const asWished = (records: ReadonlyMap<string, ClaimedRecord>): Map<string, ClaimedRecord> =>
  new Map(
    [...records].map(([key, record]) => [
      key,
      record.resend === 'repair' ? { ...record, inDoubt: true } : record,
    ]),
  );

/** True if the record is sent even though its object is unchanged. */
export const isWanted = ({ resend }: Pick<ClaimedRecord, 'resend'>): boolean => resend === 'forced';

/** Makes the error for a claim that was lost before the batch sent anything under it. */
export function claimLost(): SlotsyncError {
  return new SlotsyncError('claim_lost', 'another batch took these records over');
}

export interface BatchWork {
  batch: Batch;
  stream: Stream;
  claim: BatchClaim;
  context: Context;
  note: NoteOutcome;
  refusals: Refusals;
  /** Answers about the batch's objects that the state has not counted yet. */
  answers: Answers;
}
