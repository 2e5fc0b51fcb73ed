// Follows chains of records that wait for each other, up to the record at the end of each chain.
import { sql } from 'drizzle-orm';
import { arrayLiteral } from '../../../text/sql-text.js';
import { query, type Queries } from '../../database.js';
import type { RecordStatus } from '../../schema.js';
import { UNSETTLED, waitsFor } from '../record-state.js';
import { recordName, type RecordKey } from '../outcome-types.js';

export interface ChainLink extends RecordKey {
  /** Null if the state has no record of the key. */
  status: RecordStatus | null;
  code: string | null;
  message: string | null;
  waitsFor: RecordKey | null;
}

/** Looks up each record separately, because a join would read the whole table. */
const RECORD_OF_KEY = sql`LATERAL (SELECT * FROM slotsync.records AS waited
  WHERE waited.stream = w.stream AND waited.local_key = w.local_key LIMIT 1) AS r`;

/** Returns these records and, once each, all records for which they wait directly or indirectly. */
export async function readChainLinks(db: Queries, records: readonly RecordKey[]): Promise<ChainLink[]> {
  if (records.length === 0) return [];
  const streams = arrayLiteral(records.map(({ stream }) => stream));
  const keys = arrayLiteral(records.map(({ localKey }) => localKey));
  return query<ChainLink>(db)`
    WITH RECURSIVE wanted (stream, local_key) AS (
      SELECT stream, local_key COLLATE "C" FROM unnest(${streams}::text[], ${keys}::text[]) AS w(stream, local_key)
      UNION
      SELECT r.waits_for::jsonb->>0, (r.waits_for::jsonb->>1) COLLATE "C"
      FROM wanted AS w, ${RECORD_OF_KEY}
      WHERE r.${UNSETTLED} AND r.waits_for IS NOT NULL
    )
    SELECT w.stream, w.local_key AS "localKey", r.status, r.error_code AS code, r.error_message AS message,
      ${waitsFor('r')} AS "waitsFor"
    FROM wanted AS w LEFT JOIN ${RECORD_OF_KEY} ON true`;
}

export type Waiting = Awaited<ReturnType<typeof readWaiting>>;

/** Counts the records that wait for this key, by stream, largest number first. `example` is the key of one record. */
export const readWaiting = (db: Queries, key: RecordKey) =>
  query<{ stream: string; records: number; since: Date | null; example: string }>(db)`
    SELECT r.stream, count(*)::int AS records, min(r.waits_since) AS since, min(r.local_key) AS example
    FROM slotsync.records AS r WHERE r.waits_for = ${recordName(key)} AND r.${UNSETTLED}
    GROUP BY r.stream ORDER BY records DESC, r.stream`;

/** Record at the end of chains of waiting records. */
export interface End extends RecordKey {
  /** `absent`: the state has no record of the key. `cycle`: records wait for each other, including this record. */
  status: RecordStatus | 'absent' | 'cycle';
  code: string | null;
  members: readonly RecordKey[];
}

type Link = Omit<ChainLink, 'message'>;

/** Returns a function that finds the end of a record's chain and the steps to it. Throws if `links` lacks a record. */
export function createFollower(links: readonly Link[]) {
  const byName = new Map(links.map((link) => [recordName(link), link]));
  const places = new Map<string, { end: End; steps: number }>();
  return (record: RecordKey) => {
    const from = recordName(record);
    const found = places.get(from);
    if (found) return found;
    const path = new Set<string>();
    let name: string | undefined = from;
    while (name !== undefined && !places.has(name) && !path.has(name)) {
      path.add(name);
      const waitsFor: RecordKey | null | undefined = byName.get(name)?.waitsFor;
      name = waitsFor ? recordName(waitsFor) : undefined;
    }
    const known = name === undefined ? undefined : places.get(name);
    const passed = [...path];
    const isCycle = name !== undefined && !known;
    const last = known ? [] : passed.splice(name === undefined ? -1 : passed.indexOf(name));
    let place = known ?? {
      end: endAt(
        last.flatMap((one) => byName.get(one) ?? []),
        isCycle,
      ),
      steps: 0,
    };
    for (const one of last) places.set(one, place);
    for (const one of passed.toReversed()) {
      place = { end: place.end, steps: place.steps + 1 };
      places.set(one, place);
    }
    return place;
  };
}

function endAt(members: readonly Link[], isCycle: boolean): End {
  const [first] = members.toSorted((a, b) => (recordName(a) < recordName(b) ? -1 : 1));
  if (!first) throw new Error('a record is missing in a chain of waiting records');
  const { stream, localKey, code, status } = first;
  if (isCycle) return { stream, localKey, status: 'cycle', code: null, members };
  return { stream, localKey, status: status ?? 'absent', code, members };
}
