// Predicts which rows a batch will not send because of their external id: a row whose external id has changed since its
// object was accepted, or a row that shares its external id. `plan` and `check --rows` show these rows.
import type { RecordKey } from '../../state/records/outcome-types.js';
import { readOwnersByKey } from '../../state/records/read/owners.js';
import { mayCollide } from '../../streams/external-id.js';
import type { Stream } from '../../streams/stream.js';
import { readIdsOfKeys, type IdentityDeps } from './row-ids.js';
import { whoHas, type Holder } from './who-has.js';

/** A record that owns an object, but whose row has a different external id now. */
interface ChangedId {
  localKey: string;
  /** External id of the object that the record owns. */
  former: string;
  /** External id that the row has now. */
  now: string;
}

/**
 * Returns the keys whose records may give up their objects after a change of the external id. This is safe if another
 * row has the old object now, or if a record already owns the new object. In all other cases an operator must decide.
 */
export async function findLettingGo(
  deps: IdentityDeps,
  stream: Stream,
  changed: readonly ChangedId[],
  holderOf: (externalId: string) => Holder,
): Promise<Set<string>> {
  const isOurs = ({ now }: ChangedId) => {
    const { record, link, ownerRow } = holderOf(now);
    return record?.mayBeAtService && !link && ownerRow !== 'same';
  };
  const others = changed.filter((one) => !isOurs(one));
  const formerHolderOf = await whoHas(
    deps,
    others.map(({ former }) => former),
    { rows: 'all' },
  );
  const isGiven = ({ former, localKey }: ChangedId) =>
    formerHolderOf(former).rows.some((row) => row.stream !== stream.name || row.localKey !== localKey);
  return new Set(changed.flatMap((one) => (isOurs(one) || isGiven(one) ? one.localKey : [])));
}

/** An object that passes, with its bookings, from one record to the row of another key. */
export interface Handover {
  externalId: string;
  from: RecordKey;
  to: string;
}

export interface ForeseenIds {
  /** Reasons why a sync would not send a row, by key. */
  problems: Map<string, { code: 'external_id_changed' | 'external_id_shared'; message: string }>;
  handovers: Handover[];
}

/** Predicts what a sync will do with rows whose external id is new or shared. Throws errors of mirror and state. */
export async function foreseeIds(
  deps: IdentityDeps,
  stream: Stream,
  keys: readonly string[],
  readIds = (some: readonly string[]) => readIdsOfKeys(deps, stream, some),
): Promise<ForeseenIds> {
  const foreseen: ForeseenIds = { problems: new Map(), handovers: [] };
  const owners = await readOwnersByKey(deps.state.db, stream.name, keys);
  const accepted = new Map(
    owners.flatMap((owner) => (owner.objectHash === null ? [] : [[owner.localKey, owner.externalId]])),
  );
  const mayMeet = [...deps.streams.values()].some(
    (other) => other.name !== stream.name && mayCollide(other.externalId, stream.externalId),
  );
  const ids = await readIds(mayMeet ? keys : keys.filter((key) => accepted.has(key)));
  const wanting = [...ids].filter(([key, id]) => accepted.get(key) !== id);
  if (wanting.length === 0) return foreseen;
  const rowsOf = { ownerRows: true, ...(mayMeet && { rows: 'where unowned' as const }) };
  const holderOf = await whoHas(deps, [...new Set(wanting.map(([, id]) => id))], rowsOf);
  const changed = wanting.flatMap(([localKey, now]): ChangedId[] => {
    const former = accepted.get(localKey);
    return former === undefined ? [] : [{ localKey, former, now }];
  });
  const lettingGo = await findLettingGo(deps, stream, changed, holderOf);
  for (const { localKey, former, now } of changed)
    if (!lettingGo.has(localKey))
      foreseen.problems.set(localKey, {
        code: 'external_id_changed',
        message: describeChangedId({ former, now }),
      });
  for (const [key, externalId] of wanting) {
    if (foreseen.problems.has(key)) continue;
    const isOther = (one: RecordKey) => one.stream !== stream.name || one.localKey !== key;
    const { record, link, ownerRow, rows } = holderOf(externalId);
    const shares = (message: string) => foreseen.problems.set(key, { code: 'external_id_shared', message });
    const rival = rows.find(({ stream: other }) => other !== stream.name);
    if (link && isOther(link)) shares(describeLinkedId(externalId, link));
    else if (record?.mayBeAtService && isOther(record) && ownerRow === 'same')
      shares(describeSharedId(externalId, record));
    else if (rival) shares(`${describeSharedId(externalId, rival)}; ${FIRST_WINS}`);
    else if (record?.mayBeAtService && isOther(record) && ownerRow === 'other' && accepted.has(key))
      foreseen.handovers.push({ externalId, from: record, to: key });
  }
  return foreseen;
}

const FIRST_WINS = 'only the row that is sent first will be accepted';

export const describeChangedId = ({ former, now }: Pick<ChangedId, 'former' | 'now'>): string =>
  `the service knows this record as '${former}', but its row now has '${now}'`;

export const describeSharedId = (externalId: string, { stream, localKey }: RecordKey): string =>
  `external id '${externalId}' is also that of ${stream} '${localKey}'`;

export const describeLinkedId = (externalId: string, { stream, localKey }: RecordKey): string =>
  `the object '${externalId}' is linked to ${stream} '${localKey}'`;
