// Invariants, checked against the objects at the service. The mirror is asked by external id, not the state by key.
import { createObject, hashObject } from '../../src/streams/destination-object.js';
import type { Actor } from './actor.js';
import type { Edits } from './edits.js';
import { ownershipFaults, type OwnedRow } from '../support/ownership.js';
import type { Room, ThingRow } from './room.js';
import type { Observer, SentObject } from './service.js';

/** Watches the requests of one schedule. */
export function createWatch() {
  const faults: string[] = [];
  /** Actors with an unanswered write, by external id. */
  const underWay = new Map<string, Actor>();
  /** External ids that rows of the mirror give now; and gave when an actor read the mirror last. */
  let present: ReadonlySet<string> = new Set();
  const seenBy = new Map<Actor, ReadonlySet<string>>();
  /** External ids that were sent. */
  const sent = new Set<string>();
  /** An actor was frozen past its claim, or killed: then two writes may meet, and are followed up. */
  let isInterrupted = false;
  /** Operators have frozen the streams; and actors that began their batch while they were. */
  let isFrozen = false;
  let begunFrozen = new Set<Actor>();
  const each = (objects: readonly SentObject[], look: (object: SentObject) => void) => objects.forEach(look);

  const observer: Observer = {
    arrived: (actor, objects) =>
      each(objects, ({ extId, active }) => {
        const other = underWay.get(extId);
        if (other && other !== actor && other.isAlive() && !isInterrupted)
          faults.push(`guarantee 4: ${actor.name} and ${other.name} write ${extId} at the same time`);
        underWay.set(extId, actor);
        sent.add(extId);
        if (begunFrozen.has(actor))
          faults.push(`guarantee 6: ${actor.name} sends ${extId} of a stream that was frozen before`);
        if (active === false && seenBy.get(actor)?.has(extId))
          faults.push(
            `guarantee 6: ${actor.name} retires ${extId}, which had a row when it read the mirror last`,
          );
      }),
    answered: (actor, objects) =>
      each(objects, ({ extId }) => underWay.get(extId) === actor && underWay.delete(extId)),
  };
  return {
    faults,
    observer,
    sent,
    read: (actor: Actor) => seenBy.set(actor, present),
    interrupted: () => (isInterrupted = true),
    begins: (actor: Actor) => {
      begunFrozen.delete(actor);
      if (isFrozen) begunFrozen.add(actor);
    },
    freeze: (isOn: boolean) => {
      isFrozen = isOn;
      if (!isOn) begunFrozen = new Set();
    },
    mirrorChanged: (externalIds: ReadonlySet<string>) => (present = externalIds),
  };
}

/** Returns the external ids that the rows of the mirror have. A link takes precedence. */
export async function readPresent(room: Room): Promise<Set<string>> {
  return new Set((await readGiven(room)).values());
}

/**
 * Changes have stopped: what is open is worked to its end, and a sync runs, after which another one has nothing to send.
 * If the sync lets an object go, a worker retires the object in one more sync. Returns what had to be done beside that.
 */
export async function bringToRest(room: Room): Promise<string[]> {
  const faults = await room.finish();
  const settle = async () => {
    await room.plain.sync();
    faults.push(...(await room.finish()));
  };
  await settle();
  if (await room.isDueForGoneRows()) await settle();
  const given = await readGiven(room);
  const present = new Set(given.values());
  for (const { stream, localKey, externalId } of await room.listChangedIds()) {
    const rowId = given.get(`${stream} ${localKey}`);
    const name = `the record of ${stream} '${localKey}'`;
    if (present.has(externalId))
      faults.push(`guarantee 4: ${name} is given up and keeps ${externalId}, which another row has`);
    else if (rowId !== undefined && room.service.object(rowId))
      faults.push(`guarantee 4: ${name} is given up, and its row has ${rowId}, an object of ours`);
  }
  if ((await room.retryChangedIds()).length > 0) await settle();
  room.service.clearArrivals();
  await room.plain.sync();
  const writes = room.service.arrivals().filter(({ method }) => method === 'PUT');
  if (writes.length > 0) faults.push(`guarantee 5: another sync sends ${writes.length} writes`);
  return faults;
}

/** Returns the external ids of the rows by stream and key. */
async function readGiven(room: Room): Promise<Map<string, string>> {
  return new Map((await readNamed(room)).map(({ name, extId }) => [name, extId]));
}

/** Returns the notes that rows give to objects, by external id. */
export async function readNotes(room: Room): Promise<Map<string, string>> {
  const named = await readNamed(room);
  return new Map(named.flatMap(({ extId, row: { note } }) => (note ? [[extId, note] as const] : [])));
}

async function readNamed(room: Room): Promise<{ name: string; extId: string; row: ThingRow }[]> {
  const links = await room.readLinks();
  const rows = room.shapes.map(async (shape) =>
    (await room.rowsOf(shape.table)).map((row) => {
      const name = `${room.nameOf(shape.table)} ${row.id}`;
      return { name, extId: links.get(name) ?? room.extIdOf(shape, row), row };
    }),
  );
  return (await Promise.all(rows)).flat();
}

/** Exceptions that a scenario permits when everything is quiet. */
interface Allowed {
  /** External ids that may stay active although no row has them. */
  left?: readonly string[] | undefined;
  /** Codes with which records may end unsent. Their rows own no object. */
  refused?: readonly string[] | undefined;
  /** Notes that people entered. */
  edits?: Edits | undefined;
}

/**
 * Returns true for the record of an object that no row has any more, and about which an operator has not decided. Until then
 * nobody reads the object, so a doubt stays.
 */
const isFormer = (record: { status: string; former_key: string | null; source_hash: string | null }) =>
  record.former_key !== null && record.source_hash === null && record.status !== 'retired';

/** Returns the faults when everything is quiet. */
export async function findFaults(
  room: Room,
  sent: ReadonlySet<string>,
  { left = [], refused = [], edits }: Allowed,
): Promise<string[]> {
  const faults: string[] = [];
  const links = await room.readLinks();
  const records = await room.sql<
    {
      stream: string;
      local_key: string;
      external_id: string;
      status: string;
      error_code: string;
      former_key: string | null;
      source_hash: string | null;
      object_hash: string;
      in_doubt: boolean;
    }[]
  >`SELECT * FROM slotsync.records WHERE stream = ANY (${room.names}) ORDER BY stream, local_key`;
  const isRefused = ({ status, error_code }: { status: string; error_code: string }) =>
    (status === 'dead' || status === 'failed') && refused.includes(error_code);
  const unsentKeys = new Set(
    records.filter(isRefused).map(({ stream, local_key }) => `${stream} ${local_key}`),
  );
  /** By external id, what the object must be, and the row that has it. */
  const expected = new Map<string, { name: string; note?: string; parent?: string; row: OwnedRow }>();
  const rows = new Map<string, ThingRow[]>();
  for (const { table } of room.shapes) rows.set(table, await room.rowsOf(table));
  for (const shape of room.shapes) {
    const parentShape = room.shapes.find(({ table }) => table === shape.parent);
    for (const row of rows.get(shape.table) ?? []) {
      const parent = rows.get(shape.parent ?? '')?.find(({ id }) => id === row.parent);
      const key = `${room.nameOf(shape.table)} ${row.id}`;
      if (unsentKeys.has(key)) continue;
      const externalId = links.get(key) ?? room.extIdOf(shape, row);
      expected.set(externalId, {
        name: row.name,
        ...(shape.hasNotes && row.note ? { note: row.note } : {}),
        row: { stream: room.nameOf(shape.table), localKey: row.id, externalId },
        ...(parentShape && parent ? { parent: room.extIdOf(parentShape, parent) } : {}),
      });
    }
  }
  for (const [extId, { name, note, parent }] of expected) {
    const object = room.service.object(extId);
    const valueOf = (field: string) => object?.fields.find(({ fieldId }) => fieldId === field)?.values.join();
    if (!object) faults.push(`guarantee 3: ${extId} is not at the service`);
    else if (!object.active) faults.push(`guarantee 6: ${extId} is inactive, and has a row`);
    else if (valueOf('thing.name') !== name)
      faults.push(`guarantee 4: ${extId} is '${valueOf('thing.name')}', and its row says '${name}'`);
    else if (valueOf('thing.parent') !== parent)
      faults.push(`guarantee 7: ${extId} refers to ${valueOf('thing.parent')}, and its row to ${parent}`);
    else if (note !== undefined) faults.push(...(edits?.judge(extId, note) ?? []));
  }
  /** Its row is gone, and nothing is done for it. */
  const isKept = (stream: string, key: string) =>
    room.shapes.some(
      ({ table, retire }) =>
        retire === 'keep' && room.nameOf(table) === stream && !rows.get(table)?.some(({ id }) => id === key),
    );
  const former = new Set(records.filter(isFormer).map(({ external_id: extId }) => extId));
  for (const extId of sent)
    if (
      !expected.has(extId) &&
      !left.includes(extId) &&
      !former.has(extId) &&
      room.service.object(extId)?.active
    )
      faults.push(`guarantee 3: ${extId} is active, and no row has it`);

  for (const record of records) {
    const { stream, local_key: key, external_id: extId, status, error_code, object_hash } = record;
    const name = `the record of ${stream} '${key}'`;
    if (isKept(stream, key) || isFormer(record)) continue;
    if (record.in_doubt) faults.push(`guarantee 3: ${name} is left in doubt`);
    if (isRefused(record)) continue;
    if (status !== 'synced' && status !== 'retired') {
      faults.push(`guarantee 3: ${name} is left ${status} (${error_code})`);
      continue;
    }
    // A retired record whose external id another row has by now says nothing of the object any more.
    if (status === 'retired' && expected.has(extId)) continue;
    const object = room.service.object(extId);
    // The accepted hash is that of the mapped object, also where a field keeps another value at the service.
    const note = status === 'synced' ? expected.get(extId)?.note : undefined;
    const fields = new Map(object?.fields.map(({ fieldId, values }) => [fieldId, values] as const));
    if (note !== undefined) fields.set('thing.note', [note]);
    const hash = object && hashObject(createObject(object.extId, object.typeId, object.active, fields));
    if (hash !== object_hash)
      faults.push(`guarantee 2: ${name} is ${status}, and the service holds another ${extId}`);
  }
  const given = [...expected.values()].map(({ row }) => row);
  for (const fault of await ownershipFaults(room.sql, given, room.names))
    faults.push(`guarantee 4: ${fault}`);
  const unsent = await room.sql`
    SELECT b.id FROM slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = b.run_id
    WHERE b.stream = ANY (${room.names}) AND b.state IN ('planned', 'queued') AND r.finished_at IS NOT NULL`;
  if (unsent.length > 0)
    faults.push(`guarantee 3: ${unsent.length} batches are left unsent in a run that has ended`);
  return faults;
}
