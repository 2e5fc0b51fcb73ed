// Claims the records of a batch, so that no other batch writes them. Also claims their objects, if the external ids do
// not follow from the keys. Renews the claim while the batch works, and checks it just before each write.
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
  claimObjects,
  releasingObjects,
  renewObjectClaims,
} from '../../state/records/claims.js';
import { listExceptions } from '../../state/exceptions.js';
import { requireBinding } from '../../state/destination-binding.js';
import type { Stream } from '../../streams/stream.js';
import type { Identified } from '../object/render.js';
import type { SyncDeps } from '../run/sync-deps.js';
import type { Context } from '../../destination/client.js';
import type { Answers, Refusals } from '../limits/refusals.js';
import type { NoteOutcome } from '../object/decide-outcome.js';

export interface ClaimDeps extends SyncDeps {
  /** Id of this process in the table `processes`. It shows whether the process that holds a claim has ended. */
  processId?: string | undefined;
  /** Returns milliseconds of a monotonic clock. */
  clock?: () => number;
}

const SECOND = 1000;
const UNIQUE_VIOLATION = '23505';
/** Milliseconds by which a claim is valid longer than a request may take. */
const BEYOND_REQUEST_MS = 30 * SECOND;
/** Milliseconds by which a claim must still be valid beyond the request timeout when a write is sent. */
const MARGIN_MS = 10 * SECOND;

/** Milliseconds until a batch checks again whether its run was paused or cancelled. */
const SEEN_JUST_NOW_MS = 2 * SECOND;

/** Claims the records that no other batch has claimed, and renews the claim until `stopRenewing` is called. */
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
      // Another batch just took one of these objects. Claims the records without the objects; owners are checked later.
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
  /** True if the external ids of the stream follow from its keys. */
  ownsIds: boolean;
  batchId: number;
  idsOfKeys: ReadonlyMap<string, string>;
  claimed: Awaited<ReturnType<typeof claimRecords>>;
  /** Keys that were not claimed, because an operator excepted their records from sending. */
  excepted: readonly string[];
}

export class BatchClaim {
  readonly right: Claim;
  private readonly parts: ClaimParts;
  /** Records that were claimed. `writable`: those of them whose objects no other batch has claimed. */
  private readonly claimed: ReadonlyMap<string, ClaimedRecord>;
  private readonly writable: Map<string, ClaimedRecord>;
  /** Keys whose objects are determined by links, not by the keys. */
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

  /** Claims the objects of the records, and starts to renew the claim. */
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

  /** Keys of the batch whose records an operator excepted from sending. */
  get excepted(): readonly string[] {
    return this.parts.excepted;
  }

  /** Claims the objects of rows by their external ids. Returns the keys whose objects were claimed just now. */
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

  /** Returns true if the claim includes the object of this external id. */
  covers(record: ClaimedRecord, { extId, link }: Identified): boolean {
    return (!link || this.linked.has(record.localKey)) && this.idsToClaim(record, extId).length === 0;
  }

  /** Reads records again after objects passed to other records. A record that was lost is left to a later attempt. */
  async refresh(keys: readonly string[]): Promise<void> {
    const mine = keys.filter((key) => this.writable.has(key));
    const current = asWished(await readClaimed(this.parts.db, this.right, mine));
    for (const key of mine) {
      const record = current.get(key);
      if (record) this.writable.set(key, record);
      else this.writable.delete(key);
    }
  }

  /** Notes that a record owns an object now. The service has not accepted anything of the object yet. */
  noteOwned(key: string, externalId: string): void {
    const record = this.writable.get(key);
    if (record) this.writable.set(key, { ...record, externalId });
  }

  /** Leaves a record to a later attempt of the batch. */
  leave(key: string): void {
    this.writable.delete(key);
  }

  /**
   * Call this when a write has its slot. Renews the claim if it could expire before the answer. Throws `claim_lost` if
   * another batch has taken over records, and `run_stopped` if the run was paused or cancelled, or the stream frozen.
   */
  async confirm(): Promise<void> {
    const { db, clock, requestTimeoutMs, takenAt, batchId } = this.parts;
    if (this.until - clock() < requestTimeoutMs + MARGIN_MS && !(await this.renew())) throw claimLost();
    // The run was checked when the batch was taken. Checks it again for later requests, or if the slot came late.
    const isSeenJustNow = this.confirmations++ === 0 && clock() - takenAt < SEEN_JUST_NOW_MS;
    if (!isSeenJustNow && !(await isToBeSent(db, batchId, this.right.token)))
      throw new SlotsyncError(
        'run_stopped',
        'its run was paused or cancelled, its stream frozen, or an exception made of a record, so no more of the batch is sent',
      );
  }

  /** Puts records in doubt, because a write of their objects was sent and the answer is unknown. */
  doubt(keys: readonly string[]): Promise<void> {
    return doubtRecords(this.parts.db, this.right, keys);
  }

  /**
   * Stops renewing the claim, and waits for a renewal in progress. A claim that is not released expires. Its records
   * are then in doubt.
   */
  async stopRenewing(): Promise<void> {
    this.closing.abort();
    await this.renewals?.ended;
  }

  /** Returns SQL statements that release the claims on all objects, and on the records with these keys. */
  releasing(open: readonly string[]) {
    const claimed = open.filter((key) => this.claimed.has(key));
    return [...releasingClaim(this.right, claimed), ...releasingObjects(this.right.token, [...this.objects])];
  }

  /** Renews only once at a time. Two renewals that lock the same rows in different order could deadlock. */
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

  /** Returns the external ids of a record that must still be claimed. `rowId`: external id of the record's row. */
  private idsToClaim({ localKey, externalId }: ClaimedRecord, rowId?: string): string[] {
    const { ownsIds, idsOfKeys } = this.parts;
    const ownIds = ownsIds && !this.linked.has(localKey) ? [rowId, idsOfKeys.get(localKey)] : [];
    return [externalId, rowId].filter(
      (known): known is string =>
        typeof known === 'string' && !ownIds.includes(known) && !this.objects.has(known),
    );
  }

  /**
   * Claims objects by external id. A record becomes unwritable if another batch has one of its objects. Returns the
   * keys whose objects were claimed just now.
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

/** Marks records to repair as in doubt, so that their objects are read before the write. */
const asWished = (records: ReadonlyMap<string, ClaimedRecord>): Map<string, ClaimedRecord> =>
  new Map(
    [...records].map(([key, record]) => [
      key,
      record.resend === 'repair' ? { ...record, inDoubt: true } : record,
    ]),
  );

/** Returns true if an operator ordered to send the record even if its object is unchanged. */
export const isWanted = ({ resend }: Pick<ClaimedRecord, 'resend'>): boolean => resend === 'forced';

/** Returns the error for a claim that another batch has taken over. */
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
  /** Answers for objects of the batch that are not yet added to the stream's totals. */
  answers: Answers;
}
