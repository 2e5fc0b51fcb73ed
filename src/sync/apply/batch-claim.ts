// Claims the records of a batch, so that no other batch writes them. Also claims their objects, if the external ids do
// not follow from the keys. Renews the claim while the batch works, and checks it just before each write.
import { randomUUID } from 'node:crypto';
import { SlotsyncError } from '../../errors/errors.js';
import { repeat } from '../../process/lifecycle.js';
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

export type BatchClaim = Awaited<ReturnType<typeof claimBatch>>;

/** Claims the records that no other batch has claimed, and renews the claim until `stopRenewing` is called. */
export async function claimBatch(deps: ClaimDeps, stream: Stream, batch: Batch) {
  const { mirror, destination, state, processId = 'unnamed', clock = () => performance.now() } = deps;
  const { db } = state;
  const { keys } = batch;
  const { requestTimeoutMs, binding } = destination;
  const validMs = requestTimeoutMs + BEYOND_REQUEST_MS;
  const right: Claim = {
    token: `${processId} batch ${batch.id} ${randomUUID()}`,
    stream: stream.name,
    seconds: validMs / SECOND,
    lateSeconds: destination.lateWriteMs / SECOND,
  };
  const takenAt = clock();
  const idsOfKeys = await mirror.readExternalIdsOfKeys(stream, keys);
  const wanted = { ...right, keys, runId: batch.runId, binding };
  const taken = await claimRecords(db, { ...wanted, externalIds: idsOfKeys }).catch((error: unknown) => {
    // Another batch just took one of these objects. Claims the records without the objects; owners are checked later.
    if (!(error instanceof SlotsyncError) || error.facts['sqlstate'] !== UNIQUE_VIOLATION) throw error;
    return claimRecords(db, wanted);
  });
  if (taken.size === 0) await requireBinding(state, binding);
  const unclaimed = keys.filter((key) => !taken.has(key));
  const exceptions =
    unclaimed.length > 0 ? await listExceptions(db, { stream: stream.name, keys: unclaimed }) : [];
  /** Records that were claimed. `records`: those of them whose objects no other batch has claimed. */
  const claimed = asWished(taken);
  const records = new Map(claimed);
  /** Keys whose objects are determined by links, not by the keys. */
  const linked = new Set([...taken.values()].flatMap((one) => (one.isLinked ? one.localKey : [])));
  const objects = new Set<string>();
  let renewing: Promise<boolean> | undefined;
  let until = takenAt + validMs;
  let confirmations = 0;

  const doubt = (doubtful: readonly string[]) => doubtRecords(db, right, doubtful);

  function change(key: string, to: Partial<ClaimedRecord>): void {
    const record = records.get(key);
    if (record) records.set(key, { ...record, ...to });
  }

  /** Renews only once at a time. Two renewals that lock the same rows in different order could deadlock. */
  const renew = () => (renewing ??= renewNow().finally(() => (renewing = undefined)));

  async function renewNow(): Promise<boolean> {
    const next = clock() + validMs;
    const isOurs =
      (await renewClaim(db, right, [...records.keys()])) &&
      (await renewObjectClaims(db, right, [...objects]));
    if (isOurs) until = next;
    return isOurs;
  }

  /** Returns the external ids of a record that must still be claimed. `rowId`: external id of the record's row. */
  function idsToClaim({ localKey, externalId }: ClaimedRecord, rowId?: string): string[] {
    const ownIds = stream.ownsIds && !linked.has(localKey) ? [rowId, idsOfKeys.get(localKey)] : [];
    return [externalId, rowId].filter(
      (known): known is string => typeof known === 'string' && !ownIds.includes(known) && !objects.has(known),
    );
  }

  /**
   * Claims objects by external id. A record becomes unwritable if another batch has one of its objects. Returns the
   * keys whose records can still be written and have objects to claim.
   */
  async function claimIds(idsByKey: ReadonlyMap<string, readonly string[]>): Promise<string[]> {
    const ids = [...idsByKey.values()].flat();
    if (ids.length === 0) return [];
    const claimedIds = await claimObjects(db, right, ids);
    for (const externalId of claimedIds.keys()) objects.add(externalId);
    for (const [key, own] of idsByKey) if (own.some((one) => !objects.has(one))) records.delete(key);
    const doubtful = [...idsByKey].flatMap(([key, own]) =>
      records.has(key) && own.some((one) => claimedIds.get(one)?.isTakenOver) ? [key] : [],
    );
    await doubt(doubtful);
    for (const key of doubtful) change(key, { inDoubt: true, isCheckPending: true });
    return [...idsByKey].flatMap(([key, own]) => (own.length > 0 && records.has(key) ? [key] : []));
  }

  await claimIds(new Map([...claimed].map(([key, record]) => [key, idsToClaim(record)])));
  const renewals = repeat(async () => void (await renew()), {
    everyMs: validMs / 3,
    firstAfterMs: validMs / 3,
    onError: () => undefined, // whoever is to send renews it again, and throws
  });

  return {
    right,
    /** Records that this batch may write, by key. */
    records: records as ReadonlyMap<string, ClaimedRecord>,
    /** Keys of the batch whose records an operator excepted from sending. */
    excepted: exceptions.map(({ localKey }) => localKey),

    /** Claims the objects of rows by their external ids. Returns the keys whose objects were claimed just now. */
    claimRowIds(rowIds: ReadonlyMap<string, Identified>): Promise<string[]> {
      for (const [key, { link }] of rowIds) if (link) linked.add(key);
      return claimIds(
        new Map(
          [...rowIds].flatMap(([key, { extId }]) => {
            const record = records.get(key);
            return record ? [[key, idsToClaim(record, extId)] as const] : [];
          }),
        ),
      );
    },

    /** Returns true if the claim includes the object of this external id. */
    covers: (record: ClaimedRecord, { extId, link }: Identified): boolean =>
      (!link || linked.has(record.localKey)) && idsToClaim(record, extId).length === 0,

    /** Reads records again after objects passed to other records. A record that was lost is left to a later attempt. */
    async refresh(changed: readonly string[]): Promise<void> {
      const mine = changed.filter((key) => records.has(key));
      const current = asWished(await readClaimed(db, right, mine));
      for (const key of mine) {
        const record = current.get(key);
        if (record) records.set(key, record);
        else records.delete(key);
      }
    },

    /** Notes that a record owns an object now. The service has not accepted anything of the object yet. */
    noteOwned: (key: string, externalId: string) => change(key, { externalId }),

    /** Leaves a record to a later attempt of the batch. */
    leave: (key: string) => void records.delete(key),

    /**
     * Call this when a write has its slot. Renews the claim if it could expire before the answer. Throws `claim_lost` if
     * another batch has taken over records, and `run_stopped` if the run was paused or cancelled, or the stream frozen.
     */
    async confirm(): Promise<void> {
      if (until - clock() < requestTimeoutMs + MARGIN_MS && !(await renew()))
        throw new SlotsyncError('claim_lost', 'another batch has taken over some of the records');
      // The run was checked when the batch was taken. Checks it again for later requests, or if the slot came late.
      const isSeenJustNow = confirmations++ === 0 && clock() - takenAt < SEEN_JUST_NOW_MS;
      if (!isSeenJustNow && !(await isToBeSent(db, batch.id, right.token)))
        throw new SlotsyncError(
          'run_stopped',
          'the rest of the batch is not sent: its run was paused or cancelled, its stream was frozen, or a record became an exception',
        );
    },

    /** Puts records in doubt, because a write of their objects was sent and the answer is unknown. */
    doubt,

    /**
     * Stops renewing the claim, and waits for a renewal in progress. A claim that is not released expires. Its records
     * are then in doubt.
     */
    stopRenewing: renewals.end,

    /** Returns SQL statements that release the claims on all objects, and on the records with these keys. */
    releasing: (open: readonly string[]) => [
      ...releasingClaim(
        right,
        open.filter((key) => claimed.has(key)),
      ),
      ...releasingObjects(right.token, [...objects]),
    ],
  };
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
