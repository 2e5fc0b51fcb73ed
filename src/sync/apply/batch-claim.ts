// The right of a batch to write: the records of its keys and, where an external id does not follow from the key alone, the
// objects. Whatever another batch has is left to it. A claim is renewed while its batch lives, and looked at once more with
// the slot of a write in hand.
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
} from '../../state/records/claim-records.js';
import { requireBinding } from '../../state/destination-binding.js';
import { claimObjects, releasingObjects, renewObjectClaims } from '../../state/records/claim-objects.js';
import type { Stream } from '../../streams/stream.js';
import type { Identified } from '../object/render.js';
import type { SyncDeps } from '../run/sync-deps.js';
import type { Context } from '../../destination/client.js';
import type { Answers, Refusals } from '../limits/refusals.js';
import type { Settle } from '../object/outcome-reasons.js';

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

export type BatchClaim = Awaited<ReturnType<typeof claimBatch>>;

/** Claims what of a batch no other batch has. */
export async function claimBatch(deps: ClaimDeps, stream: Stream, { id, runId, keys }: Batch) {
  const { mirror, destination, state, processId = 'unnamed', clock = () => performance.now() } = deps;
  const { db } = state;
  const validMs = destination.requestTimeoutMs + BEYOND_REQUEST_MS;
  const claim: Claim = {
    token: `${processId} batch ${id} ${randomUUID()}`,
    stream: stream.name,
    seconds: validMs / SECOND,
    lateSeconds: destination.lateWriteMs / SECOND,
  };
  const takenAt = clock();
  let until = takenAt + validMs;
  let confirmations = 0;
  const idsOfKeys = await mirror.readExternalIdsOfKeys(stream, keys);
  const wanted = { ...claim, keys, runId, binding: destination.binding };
  const claimed = await claimRecords(db, { ...wanted, externalIds: idsOfKeys }).catch((error: unknown) => {
    // Another batch came to own one of these objects at the same moment: which record does is seen under the claim.
    if (!(error instanceof SlotsyncError) || error.facts['sqlstate'] !== UNIQUE_VIOLATION) throw error;
    return claimRecords(db, wanted);
  });
  if (claimed.size === 0) await requireBinding(state, destination.binding);
  /** Keys whose objects do not follow from them. */
  const linked = new Set(
    [...claimed.values()].flatMap(({ localKey, isLinked }) => (isLinked ? localKey : [])),
  );
  const records = asWished(claimed);
  /** Records without those whose object another batch has. */
  const writable = new Map(records);
  const objects = new Set<string>();
  const closing = new AbortController();

  /** Renewals come one at a time: two that lock the same rows, each in its own order, may wait for each other. */
  let renewing: Promise<boolean> | undefined;
  const renew = () => (renewing ??= renewNow().finally(() => (renewing = undefined)));

  async function renewNow(): Promise<boolean> {
    const next = clock() + validMs;
    const isOurs =
      (await renewClaim(db, claim, [...writable.keys()])) &&
      (await renewObjectClaims(db, claim, [...objects]));
    if (isOurs) until = next;
    return isOurs;
  }

  /** The external ids of a record that its claim does not cover. `rowId`: its row's. */
  function idsToClaim(record: ClaimedRecord, rowId?: string): string[] {
    const { localKey } = record;
    const ownIds = stream.ownsIds && !linked.has(localKey) ? [rowId, idsOfKeys.get(localKey)] : [];
    return [record.externalId, rowId].filter(
      (known): known is string => typeof known === 'string' && !ownIds.includes(known) && !objects.has(known),
    );
  }

  /**
   * Claims the objects of the records, and leaves those records out of whose objects another batch has one. Returns the
   * keys for which an object was claimed just now.
   */
  async function claimIds(idsByKey: ReadonlyMap<string, readonly string[]>): Promise<string[]> {
    const wanted = [...idsByKey.values()].flat();
    if (wanted.length === 0) return [];
    const claimed = await claimObjects(db, claim, wanted);
    for (const externalId of claimed.keys()) objects.add(externalId);
    for (const [key, ids] of idsByKey) if (ids.some((one) => !objects.has(one))) writable.delete(key);
    const doubtful = [...idsByKey].flatMap(([key, ids]) =>
      writable.has(key) && ids.some((one) => claimed.get(one)?.isTakenOver) ? [key] : [],
    );
    await doubtRecords(db, claim, doubtful);
    for (const key of doubtful) {
      const record = writable.get(key);
      if (record) writable.set(key, { ...record, inDoubt: true, isCheckPending: true });
    }
    return [...idsByKey].flatMap(([key, ids]) => (ids.length > 0 && writable.has(key) ? [key] : []));
  }

  await claimIds(new Map([...records].map(([key, record]) => [key, idsToClaim(record)])));
  const renewals = repeat(async () => void (await renew()), {
    everyMs: validMs / 3,
    firstAfterMs: validMs / 3,
    signal: closing.signal,
    onError: () => undefined, // whoever is to send renews it again, and throws
  });

  return {
    ...claim,
    /** The records that may be written, by key. */
    records: writable as ReadonlyMap<string, ClaimedRecord>,

    /** Claims the objects that rows give, by key; see `claimIds`. */
    claimRowIds(rowIds: ReadonlyMap<string, Identified>): Promise<string[]> {
      for (const [key, { link }] of rowIds) if (link) linked.add(key);
      return claimIds(
        new Map(
          [...rowIds].flatMap(([key, { extId }]) => {
            const record = writable.get(key);
            return record ? [[key, idsToClaim(record, extId)] as const] : [];
          }),
        ),
      );
    },

    /** Whether an object may be written under this claim. */
    covers: (record: ClaimedRecord, { extId, link }: Identified): boolean =>
      (!link || linked.has(record.localKey)) && idsToClaim(record, extId).length === 0,

    /** Reads these records again, after objects have changed hands. One that was lost meanwhile is left to a later attempt. */
    async refresh(keys: readonly string[]): Promise<void> {
      const mine = keys.filter((key) => writable.has(key));
      const read = await readClaimed(db, claim, mine);
      const current = asWished(read);
      for (const key of mine) {
        const record = current.get(key);
        if (record) writable.set(key, record);
        else writable.delete(key);
      }
    },

    /** The record owns this object from here on, of which nothing was known. */
    noteOwned(key: string, externalId: string): void {
      const record = writable.get(key);
      if (record) writable.set(key, { ...record, externalId });
    },

    /** Leaves a record to a later attempt. */
    leave: (key: string): void => void writable.delete(key),

    /**
     * To be called with the slot of a write in hand: however long the quota was waited for, the claim outlives the request.
     * Throws `claim_lost` when another batch has taken something over, `run_stopped` when its run stands still or its stream is frozen.
     */
    async confirm(): Promise<void> {
      if (until - clock() < destination.requestTimeoutMs + MARGIN_MS && !(await renew())) throw claimLost();
      // Whether it may be sent was seen when the batch was taken; the slot may come later, and the rest of it.
      const isSeenJustNow = confirmations++ === 0 && clock() - takenAt < SEEN_JUST_NOW_MS;
      if (!isSeenJustNow && !(await isToBeSent(db, id)))
        throw new SlotsyncError(
          'run_stopped',
          'its run was paused or cancelled, or its stream frozen, so no more of the batch is sent',
        );
    },

    /** Notes that a write of these keys was sent whose answer is not known. */
    doubt: (keysInDoubt: readonly string[]) => doubtRecords(db, claim, keysInDoubt),

    /**
     * Resolves when no renewal is under way any more. A claim that is not released is taken over when it has expired, and its
     * records are in doubt then.
     */
    stopRenewing: async (): Promise<void> => {
      closing.abort();
      await renewals.ended;
    },

    /** Statements that release the claims on objects, and those on the records of these keys. */
    releasing: (open: readonly string[]) => [
      ...releasingClaim(
        claim,
        open.filter((key) => records.has(key)),
      ),
      ...releasingObjects(claim.token, [...objects]),
    ],
  };
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
  settle: Settle;
  refusals: Refusals;
  /** Answers about its objects that were not counted yet. */
  answers: Answers;
}
