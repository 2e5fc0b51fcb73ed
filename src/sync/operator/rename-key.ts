// Lets an object follow its row to another key, so that it keeps its number, bookings and external id. Otherwise it
// would be deactivated and created again. Checks the rows; state/records/move-record.ts changes the records.
import { messageWithDetail, UsageError } from '../../errors/errors.js';
import { whileClaimed } from '../../state/records/claims.js';
import { moveRecord, type Renamed, type RenameRefusal } from '../../state/records/move-record.js';
import { readOwnersByKey } from '../../state/records/read/owners.js';
import { shortenKey } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import { findReferrers } from '../identity/referrers.js';
import { externalIdOfRow, type IdentityDeps } from '../identity/row-ids.js';

const AGAIN = 'Run the command again when that batch has ended: slotsync status';

/** Moves an object from one key to another. Throws UsageError if it must not be moved; then nothing has changed. */
export async function renameKey(
  deps: IdentityDeps,
  stream: Stream,
  names: { from: string; to: string },
): Promise<Renamed & { templateId: string | undefined }> {
  const { mirror, state } = deps;
  const { db } = state;
  const [from, to] = [shortenKey(names.from), shortenKey(names.to)];
  const nameOf = (key: string) => `${stream.name} '${key}'`;
  if (from === to) throw new UsageError(`both keys are '${from}'`);
  const { rows, unreadable } = await mirror.readRows(stream, [from, to]);
  for (const [key, error] of unreadable)
    throw new UsageError(`the row of ${nameOf(key)} cannot be read: ${messageWithDetail(error)}`);
  const row = rows.get(to)?.row;
  if (rows.has(from))
    throw new UsageError(
      `the row of ${nameOf(from)} is still in the mirror${row ? `, and so is that of '${to}'` : ''}`,
      { remedy: 'Rename a record when its row is in the mirror under the new key only.' },
    );
  if (!row)
    throw new UsageError(`${nameOf(to)} has no row in the mirror`, {
      remedy: `A composite key is written as one text, as slotsync failures prints it: 'a|b'.`,
    });

  const externalIds = (await readOwnersByKey(db, stream.name, [from, to])).map(
    ({ externalId }) => externalId,
  );
  return whileClaimed(db, 'rename', externalIds, async (claimed, _, renewClaims) => {
    if (externalIds.some((id) => !claimed.has(id)))
      throw refusal({ refused: 'claimed' }, stream.name, { from, to });
    const templateId = externalIdOfRow(stream, row);
    const both = [from, to].map((localKey) => ({ stream: stream.name, localKey }));
    const referrers = await findReferrers(deps, both);
    const renaming = { stream: stream.name, from, to, templateId };
    const renamed = await moveRecord(db, renaming, { renewClaims, checks: referrers.checks });
    if ('refused' in renamed) throw refusal(renamed, stream.name, { from, to });
    await referrers.checkLater();
    return { ...renamed, templateId };
  });
}

function refusal(
  refused: RenameRefusal,
  stream: string,
  { from, to }: { from: string; to: string },
): UsageError {
  const [former, renamed] = [from, to].map((key) => `${stream} '${key}'`);
  switch (refused.refused) {
    case 'claimed':
      return new UsageError('a batch is writing one of the records, or the object', { remedy: AGAIN });
    case 'never_accepted':
      return new UsageError(`${former} has no object: the service has accepted nothing of it`, {
        remedy: `What is known of it: slotsync explain ${stream} '${from}'`,
      });
    case 'has_object':
      return new UsageError(
        `${renamed} has an object of its own, '${refused.externalId}', from a time when the row of '${from}' was there too`,
        { remedy: 'Two objects cannot become one: remove the one that is not wanted at the service.' },
      );
    case 'linked':
      return new UsageError(`${renamed} is linked to '${refused.externalId}'`, {
        remedy: 'Undo that link first: slotsync match --unlink',
      });
    case 'in_doubt':
      return new UsageError(`a write of ${renamed} may have been sent, and its answer was lost`, {
        remedy: `Let a run find out what became of it, and run the command again: slotsync sync ${stream}`,
      });
    case 'taken':
      return new UsageError(
        `the object '${refused.externalId}' belongs to ${refused.other.stream} '${refused.other.localKey}' by now`,
      );
  }
}
