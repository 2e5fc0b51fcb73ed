// Decides, before the write, whether each record of a batch may own the object of its row's external id. If another
// record owns the object, the mirror decides: the object passes on if the other record's row no longer has the external
// id. Needs the claims.
import type { Unreadable } from '../../destination/destination.js';
import { findExceptions } from '../../state/exceptions.js';
import { queryTogether, type Queries } from '../../state/database.js';
import { letGo, transferObjects, type Transfer } from '../../state/records/transfer-objects.js';
import type { ClaimedRecord } from '../../state/records/claims.js';
import { recordName, type Outcome, type RecordKey } from '../../state/records/outcome-types.js';
import type { Stream } from '../../streams/stream.js';
import { findLettingGo } from '../identity/changed-ids.js';
import { findReferrers } from '../identity/referrers.js';
import { mayBecome, whoHas, type Holder } from '../identity/who-has.js';
import * as outcome from '../object/decide-outcome.js';
import type { Write } from '../object/decide-outcome.js';
import type { Identified, Rendered } from '../object/render.js';
import type { SyncDeps } from '../run/sync-deps.js';
import type { BatchClaim, BatchWork } from './batch-claim.js';

/** Returns the outcome of a record that may not own its row's object. */
export type Obstacle = (write: Write) => Outcome;

interface Wanting {
  record: ClaimedRecord;
  result: Identified;
  /** True if the row can be written. False if it waits for a referenced record. */
  isWritten: boolean;
}

/**
 * Assigns records the objects of their rows' external ids. A record loses the object that it owned before only if
 * another row has that object, or if a record already has the new one; otherwise an operator decides. Rows that share
 * an external id get no object. Returns why records may not own their row's object, by key.
 */
export async function ownObjects(
  deps: SyncDeps,
  { stream, claim, context }: BatchWork,
  rendered: ReadonlyMap<string, Rendered>,
  isShared: (key: string) => boolean,
): Promise<Map<string, Obstacle>> {
  const { destination, streams } = deps;
  const obstacles = new Map<string, Obstacle>();
  const wanting = [...claim.records.values()].flatMap((record): Wanting[] => {
    const result = rendered.get(record.localKey);
    if (!result || !('extId' in result) || result.extId === record.externalId) return [];
    if (isShared(record.localKey)) return [];
    return [{ record, result, isWritten: 'object' in result }];
  });
  if (wanting.length === 0) return obstacles;
  const extIds = wanting.map(({ result }) => result.extId);
  const holderOf = await whoHas(deps, extIds, { ownerRows: true });
  const owners = extIds.flatMap((extId) => holderOf(extId).record ?? []);
  const exceptions = await findExceptions(deps.state.db, owners);
  const isExcepted = (owner: RecordKey | undefined) =>
    owner !== undefined && exceptions.has(recordName(owner));
  const nameOf = ({ localKey }: ClaimedRecord) => ({ stream: stream.name, localKey });
  const givenUp = await chooseGivenUp(deps, stream, wanting, holderOf, isExcepted);
  // Searches for objects whose type the stream may not have. Such an object stays with its record.
  const foreign = wanting.flatMap(({ result: { extId }, isWritten }) => {
    const { record: owner } = holderOf(extId);
    if (!isWritten || !owner?.mayBeAtService) return [];
    return mayBecome(destination, owner, streams.get(owner.stream)?.objectTypes, stream) ? [] : extId;
  });
  const unreadable: Unreadable = new Map();
  const standing = await destination.findObjects(foreign, stream.type, context, unreadable);
  const takings = wanting.flatMap(({ record, result, isWritten }): Transfer[] => {
    const { extId } = result;
    const { record: owner, link, ownerRow } = holderOf(extId);
    const isOwnLink = link?.stream === stream.name && link.localKey === record.localKey;
    const [error, there] = [unreadable.get(extId), standing.get(extId)];
    const refuse = (obstacle: Obstacle) => void obstacles.set(record.localKey, obstacle);
    if (link && !isOwnLink) refuse((write) => outcome.externalIdLinked(write, link));
    else if (owner && ownerRow === 'same' && owner.mayBeAtService)
      refuse((write) => outcome.externalIdShared(write, owner));
    else if (owner?.mayBeAtService && isExcepted(owner))
      refuse((write) => outcome.ownerExcepted(write, owner));
    else if (error) refuse((write) => outcome.objectUnreadable(write, error));
    else if (owner && there && !stream.objectTypes.has(there.typeId))
      refuse((write) =>
        outcome.externalIdTaken(write, there.typeId, `; it is that of ${owner.stream} '${owner.localKey}'`),
      );
    else if (isWritten && (givenUp.has(record) || !ownsAnother(record, result))) {
      const isInBatch = owner?.stream === stream.name && claim.records.has(owner.localKey);
      const isFormerGone = ownerRow === 'gone' && !isInBatch;
      return [{ ...nameOf(record), externalId: extId, from: owner, isFormerGone }];
    }
    return [];
  });
  const isTaken = new Set(takings.map(({ externalId }) => externalId));
  const lettingGo = [...givenUp].flatMap(({ localKey, externalId }) =>
    externalId === null || isTaken.has(externalId)
      ? []
      : letGo({ stream: stream.name, localKey, externalId }),
  );
  await commit(deps, claim, { lettingGo, takings });
  return obstacles;
}

/** Returns true if the service may have accepted an object of this record under another external id. */
export function ownsAnother(
  { externalId, objectHash, inDoubt }: ClaimedRecord,
  { extId, link }: Identified,
): boolean {
  // Before anything is sent, a link may still change the record's external id.
  const isFirst = objectHash === null && (!inDoubt || link !== undefined);
  return !isFirst && externalId !== null && externalId !== extId;
}

/** Returns the records that may give up the objects that they own. */
async function chooseGivenUp(
  deps: SyncDeps,
  stream: Stream,
  wanting: readonly Wanting[],
  holderOf: (externalId: string) => Holder,
  isExcepted: (owner: RecordKey | undefined) => boolean,
): Promise<Set<ClaimedRecord>> {
  const owners = wanting.filter(
    ({ record, result }) => ownsAnother(record, result) && !isExcepted(holderOf(result.extId).record),
  );
  const changed = owners.map(({ record: { localKey, externalId }, result }) => ({
    localKey,
    former: externalId ?? '',
    now: result.extId,
  }));
  const lettingGo = await findLettingGo(deps, stream, changed, holderOf);
  return new Set(owners.flatMap(({ record }) => (lettingGo.has(record.localKey) ? record : [])));
}

async function commit(
  deps: SyncDeps,
  claim: BatchClaim,
  { lettingGo, takings }: { lettingGo: readonly Transfer[]; takings: readonly Transfer[] },
): Promise<void> {
  const { state, streams } = deps;
  const keyed = [...streams.values()].flatMap(({ ownsIds, name }) => (ownsIds ? name : []));
  const transfers = [...lettingGo, ...takings];
  const transferAll = (tx: Queries) => transferObjects(tx, transfers, { ...claim.right, keyed });
  const changing = transfers.flatMap(({ from }) => from ?? []);
  const referrers = await findReferrers(deps, changing);
  const taken =
    changing.length === 0
      ? await transferAll(state.db)
      : await state.db.transaction(async (tx) => {
          const all = await transferAll(tx);
          await queryTogether(tx, referrers.checks);
          return all;
        });
  await referrers.checkLater();
  const isTaken = new Set(taken);
  const changed = changing.filter(({ stream }) => stream === claim.right.stream);
  for (const one of takings)
    if (!isTaken.has(one)) claim.leave(one.localKey);
    else if (one.from) changed.push(one);
    else claim.noteOwned(one.localKey, one.externalId);
  if (changed.length > 0) await claim.refresh([...new Set(changed.map(({ localKey }) => localKey))]);
}
