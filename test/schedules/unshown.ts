// Finds objects that differ from their rows although nothing shows them as waiting.
import type { Room, ThingRow } from './room.js';

/** Facts that count as shown beside a held key, a failure, and a key in the inbox. */
export interface Shown {
  /** True if any due stream counts as shown, because a worker will begin its sync. Otherwise only if an operator cancelled it. */
  isDueEnough: boolean;
  /** Changes without a notification, as `stream key`, since which no whole sync has begun. */
  unnoticed: ReadonlySet<string>;
}

interface Facts {
  streams: Record<string, { due: string | null; isFrozen: boolean; hasProblem: boolean; isBusy: boolean }>;
  keys: string[];
  owners: Record<string, string>;
  former: string[];
}

/** Reads which streams and keys are shown as waiting, for any reason. */
async function readFacts({ sql, names }: Room, { isDueEnough }: Shown): Promise<Facts> {
  const [facts] = await sql<Facts[]>`
    SELECT (SELECT jsonb_object_agg(name, jsonb_build_object('due', s.due_reason, 'hasProblem', s.problem IS NOT NULL,
          'isFrozen', EXISTS (SELECT FROM slotsync.freezes AS f WHERE f.begins_at <= now() AND f.ends_at > now()
            AND (name = ANY (f.streams) OR f.streams IS NULL AND name <> ALL (f.except_streams))),
          'isBusy', EXISTS (SELECT FROM slotsync.runs AS r WHERE r.finished_at IS NULL AND name = ANY (r.streams))))
        FROM unnest(${names}::text[]) AS name LEFT JOIN slotsync.streams AS s ON s.stream = name) AS streams,
      coalesce((SELECT jsonb_agg(stream || ' ' || local_key) FROM (
        SELECT stream, local_key FROM slotsync.held UNION SELECT stream, local_key FROM slotsync.changes
        UNION SELECT stream, local_key FROM slotsync.drift
        UNION SELECT stream, local_key FROM slotsync.exceptions
        UNION SELECT stream, local_key FROM slotsync.records
          WHERE status IN ('failed', 'dead', 'deferred') OR resend IS NOT NULL OR ${isDueEnough}
            AND (status = 'pending' OR in_doubt OR check_after IS NOT NULL)
      ) AS shown WHERE stream = ANY (${names})), '[]') AS keys,
      coalesce((SELECT jsonb_object_agg(external_id, stream || ' ' || local_key) FROM slotsync.records
        WHERE stream = ANY (${names}) AND external_id IS NOT NULL), '{}') AS owners,
      coalesce((SELECT jsonb_agg(external_id) FROM slotsync.records
        WHERE stream = ANY (${names}) AND former_key IS NOT NULL), '[]') AS former`;
  if (!facts) throw new Error('the state answered no row');
  return facts;
}

/** Lists the objects that differ from their rows without being shown. */
export async function findUnshown(room: Room, shown: Shown): Promise<string[]> {
  const { service } = room;
  const facts = await readFacts(room, shown);
  const keys = new Set(facts.keys);
  const isStreamShown = (stream: string) => {
    const { due, isFrozen, hasProblem, isBusy } = facts.streams[stream] ?? {};
    return (
      isFrozen || hasProblem || isBusy || (shown.isDueEnough ? typeof due === 'string' : due === 'cancelled')
    );
  };
  const isShown = (name: string | undefined) =>
    name !== undefined &&
    (keys.has(name) || shown.unnoticed.has(name) || isStreamShown(name.split(' ')[0] ?? ''));
  const rows = new Map<string, ThingRow[]>();
  for (const { table } of room.shapes) rows.set(table, await room.rowsOf(table));
  const faults: string[] = [];
  const given = new Set<string>();
  for (const shape of room.shapes) {
    const parentShape = room.shapes.find(({ table }) => table === shape.parent);
    for (const row of rows.get(shape.table) ?? []) {
      const extId = room.extIdOf(shape, row);
      given.add(extId);
      const parentRow = rows.get(shape.parent ?? '')?.find(({ id }) => id === row.parent);
      const parent = parentShape && parentRow && room.extIdOf(parentShape, parentRow);
      const object = service.object(extId);
      const valueOf = (field: string) =>
        object?.fields.find(({ fieldId }) => fieldId === field)?.values.join();
      const isRight = object?.active && valueOf('thing.name') === row.name;
      if (isRight && valueOf('thing.parent') === parent) continue;
      const ownKey = `${room.nameOf(shape.table)} ${row.id}`;
      const parentKey = shape.parent && `${room.nameOf(shape.parent)} ${row.parent}`;
      const isParents = isRight && parentKey !== undefined && isShown(parentKey);
      if (!isParents && !isShown(ownKey) && !isShown(facts.owners[extId]))
        faults.push(
          `${ownKey} says '${row.name}'${parent ? ` of ${parent}` : ''}, ${extId} is ${object ? `'${valueOf('thing.name')}' of ${valueOf('thing.parent')}${object.active ? '' : ', inactive'}` : 'not there'}, and nothing tells why`,
        );
    }
  }
  const isOfRoom = (extId: string) => extId.includes(`_${room.name}_`);
  for (const { extId, active } of service.objects())
    if (
      active &&
      isOfRoom(extId) &&
      !given.has(extId) &&
      !facts.former.includes(extId) &&
      !isShown(facts.owners[extId])
    )
      faults.push(`${extId} is active without a row, and nothing tells why`);
  return faults;
}
