// The record of a stream that an operator names: by its key, by the parts of a composite key, by the external id of its
// object, or by the service's number of it.
import type { FoundObject } from '../../destination/destination.js';
import { UsageError } from '../../errors/errors.js';
import { readRecordKeys } from '../../state/records/read/record-details.js';
import { listKeysByNumber } from '../../state/records/read/owners.js';
import { keyOf } from '../../streams/external-id-rule.js';
import { joinKey, shortenKey } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import { whoHas } from '../identity/who-has.js';
import type { SyncDeps } from '../run/sync-deps.js';

type NameDeps = Pick<SyncDeps, 'mirror' | 'destination' | 'state' | 'streams'>;

/**
 * `key`: of a row or a record of the stream. `object`: nobody's in the stream; the service has it. Neither: nothing is
 * named so.
 */
export type NamedRecord = { key: string } | { object: FoundObject } | undefined;

const CONTEXT = { lane: 'incremental' } as const;

/**
 * Finds what is named. A key comes first: a key that reads like a number or an external id is a key. Throws UsageError when
 * the parts are not those of the stream's key.
 */
export async function findRecordByName(
  deps: NameDeps,
  stream: Stream,
  parts: readonly string[],
): Promise<NamedRecord> {
  const [only = ''] = parts;
  if (parts.length > 1 && parts.length !== stream.key.length) {
    throw new UsageError(`a key of ${stream.name} has ${stream.key.length} parts, not ${parts.length}`, {
      remedy: `Name one value for each of: ${stream.key.join(', ')}.`,
    });
  }
  const key = parts.length === 1 ? only : joinKey(parts);
  if (await isKey(deps, stream, shortenKey(key))) return { key: shortenKey(key) };
  if (parts.length > 1) return undefined;
  return (await findByExternalId(deps, stream, only)) ?? findByNumber(deps, stream, only);
}

async function isKey(
  { mirror, state }: NameDeps,
  { name, ...stream }: Stream,
  key: string,
): Promise<boolean> {
  const known = await readRecordKeys(state.db, name, [key]);
  if (known.size > 0) return true;
  const { rows, unreadable } = await mirror.readRows({ name, ...stream }, [key]);
  return rows.size + unreadable.size > 0;
}

async function findByExternalId(deps: NameDeps, stream: Stream, named: string): Promise<NamedRecord> {
  const extId = keyOf(stream.externalId.rule, named);
  const { record, link, rows } = (await whoHas(deps, [extId], { rows: 'all' }))(extId);
  // The record of a former object is that of the key which had it.
  const ownRecord = record && { ...record, localKey: record.formerKey ?? record.localKey };
  const owner = [ownRecord, link, ...rows].find((holder) => holder?.stream === stream.name);
  if (owner) return { key: owner.localKey };
  const object = (await deps.destination.findObjects([extId], stream.type, CONTEXT)).get(extId);
  return object && { object };
}

async function findByNumber(deps: NameDeps, stream: Stream, named: string): Promise<NamedRecord> {
  const number = named.startsWith('#') ? named.slice(1) : named;
  const [key] = await listKeysByNumber(deps.state.db, stream.name, number);
  if (key !== undefined) return { key };
  // A service with numbers may refuse to look for another text.
  if (number === named && !/^\d+$/.test(named)) return undefined;
  const object = (await deps.destination.findObjectsByNumber([number], stream.type, CONTEXT)).get(number);
  if (object?.extId === undefined) return object && { object };
  return (await findByExternalId(deps, stream, object.extId)) ?? { object };
}
