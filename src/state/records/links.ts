// Links assign an object to a key if the external id template does not determine the object. A link may exist before
// the record and remains after the record is deleted.
//
// A concurrent link and write of the same object must not both succeed. A batch stores the external id before it looks
// for links. Whoever creates a link commits the link before looking for records. So the batch sees the link, or the
// creator of the link sees the record. Until that check is over, the object stays claimed, so that no batch writes it
// because of a link that may be undone.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, type Queries, type RowOf, type State } from '../database.js';
import { columnList, links } from '../schema.js';
import { type RecordKey, recordName } from './outcome-types.js';
import { transferObjects } from './transfer-objects.js';
import { whileClaimed } from './claims.js';
import { checkAgain, EXTERNAL_ID_CHANGED, IS_FORMER, MAY_BE_AT_SERVICE } from './record-state.js';
import { wakeSharers } from './wake-waiting.js';

export type Link = RowOf<typeof links>;

const LINK = columnList(links);

const selectLinks = (db: Queries, condition: SQL) =>
  query<Link>(db)`SELECT ${LINK} FROM slotsync.links WHERE ${condition}`;

const indexBy = (name: 'localKey' | 'externalId' | 'destinationId', links: readonly Link[]) =>
  new Map(links.map((link) => [link[name] ?? '', link]));

export const readLinks = async (db: Queries, stream: string, keys: readonly string[]) =>
  indexBy('localKey', keys.length > 0 ? await selectLinks(db, isOfKeys(stream, keys)) : []);

/** Returns the links to objects with these external ids, by external id. A link has priority over the template. */
export const readLinksTo = async (db: Queries, ids: readonly string[]) =>
  indexBy('externalId', ids.length > 0 ? await selectLinks(db, sql`external_id = ${anyOf(ids)}`) : []);

/** Returns the links to objects with these service ids, by service id. */
export const readLinksToNumbers = async (db: Queries, numbers: readonly string[]) =>
  indexBy(
    'destinationId',
    numbers.length > 0 ? await selectLinks(db, sql`destination_id = ${anyOf(numbers)}`) : [],
  );

/** Returns the links of these keys and the links to objects with these external ids, with a single query. */
export async function readLinksOfAndTo(
  db: Queries,
  stream: string,
  keys: readonly string[],
  externalIds: readonly string[],
) {
  const links = await selectLinks(
    db,
    sql`(${isOfKeys(stream, keys)}) OR external_id = ${anyOf(externalIds)}`,
  );
  const ofStream = links.filter((link) => link.stream === stream);
  return { ofKeys: indexBy('localKey', ofStream), to: indexBy('externalId', links) };
}

const isOfKeys = (stream: string, keys: readonly string[]) =>
  sql`stream = ${stream} AND local_key = ${anyOf(keys)}`;

/** SQL for a list of links as rows `l`. */
const linkSet = (links: readonly NewLink[]) => sql`
  jsonb_to_recordset(${JSON.stringify(links)}::jsonb) AS l(stream text, "localKey" text, "externalId" text,
    "destinationId" text, "assignsId" boolean, "linkedBy" text, fields text[])`;

/**
 * Inserts links and returns the inserted ones. Skips a key or an object that is linked already. The caller must check
 * afterwards that no other record owns the object, and otherwise undo the link, because writers store the external id
 * before they look for links.
 */
export async function insertLinks(db: Queries, links: readonly NewLink[]): Promise<RecordKey[]> {
  if (links.length === 0) return [];
  return query<RecordKey>(db)`
    INSERT INTO slotsync.links (stream, local_key, external_id, destination_id, assigns_id, linked_by, fields)
    SELECT stream, "localKey", "externalId", "destinationId", "assignsId", "linkedBy", fields
    FROM ${linkSet(links)}
    ON CONFLICT DO NOTHING RETURNING stream, local_key AS "localKey"`;
}

export const deleteLinks = (db: Queries, stream: string, keys: readonly string[]) => query<Link>(db)`
  DELETE FROM slotsync.links WHERE stream = ${stream} AND local_key = ${anyOf(keys)} RETURNING ${LINK}`;

/** Returns the statement that marks the external ids of linked objects as assigned. */
export const notingAssigned = (stream: string, keys: readonly string[]): SQL => sql`
  UPDATE slotsync.links SET assigns_id = false
  WHERE stream = ${stream} AND local_key = ${anyOf(keys)} AND assigns_id`;

export type NewLink = Omit<Link, 'linkedAt'>;

/** Link that was not made. `reason` is written as the end of a sentence. */
export interface RefusedLink {
  link: NewLink;
  reason: string;
}

/** Maximum number of links in one statement. The statement must end long before the claims on the objects expire. */
const AT_ONCE = 1000;

/**
 * Links keys to objects. Returns the links made and the links refused. A link is refused if the key has another link or
 * may own another object. It is also refused if another key is linked to the object, owns the object or is writing it.
 *
 * Must not run within a transaction, because other processes must see a link before the second check for conflicts.
 * `token` is the claim of a batch that has claimed the keys and objects, and has found no object under the keys'
 * previous external ids.
 */
export async function linkRecords(
  { db }: Pick<State, 'db'>,
  links: readonly NewLink[],
  token?: string,
): Promise<{ linked: RecordKey[]; refused: RefusedLink[] }> {
  const linked: RecordKey[] = [];
  const refused: RefusedLink[] = [];
  for (let start = 0; start < links.length; start += AT_ONCE) {
    const block = links.slice(start, start + AT_ONCE);
    const made = token === undefined ? await claimAndLink(db, block) : await linkBlock(db, block, token);
    for (const link of made.linked) linked.push(link);
    for (const link of made.refused) refused.push(link);
  }
  return { linked, refused };
}

async function claimAndLink(db: State['db'], links: readonly NewLink[]) {
  const wanted = links.map(({ externalId }) => externalId);
  return whileClaimed(db, 'link', wanted, async (claimed, token) => {
    const isFree = ({ externalId }: NewLink) => claimed.has(externalId);
    const made = await linkBlock(db, links.filter(isFree), token);
    const refused = links.flatMap((link) =>
      isFree(link) ? [] : { link, reason: 'a batch is writing the object' },
    );
    return { ...made, refused: [...made.refused, ...refused] };
  });
}

async function linkBlock(db: State['db'], links: readonly NewLink[], token: string) {
  const refused: RefusedLink[] = [];
  const refuse = (reasons: ReadonlyMap<string, string>) => (link: NewLink) => {
    const reason = reasons.get(recordName(link));
    if (reason !== undefined) refused.push({ link, reason });
    return reason === undefined;
  };
  const free = links.filter(refuse(await findObstacles(db, links, token)));
  const inserted = await db.transaction(async (tx) => {
    const names = new Set((await insertLinks(tx, free)).map(recordName));
    const made = free.filter((link) => names.has(recordName(link)));
    await noteLinked(tx, made, token);
    return made;
  });
  const isInserted = new Set(inserted);
  const stopped = free.filter((link) => !isInserted.has(link));
  stopped.filter(refuse(await explainConflicts(db, stopped)));

  const reasons = await findObstacles(db, inserted, token);
  await undoLinks(
    db,
    inserted.filter((link) => reasons.has(recordName(link))),
  );
  const kept = inserted.filter(refuse(reasons));
  return { linked: kept.map(({ stream, localKey }) => ({ stream, localKey })), refused };
}

/** Returns the objections to links, by record name: the key may own another object, or another key owns the object. */
async function findObstacles(db: Queries, links: readonly NewLink[], token: string) {
  if (links.length === 0) return new Map<string, string>();
  const rows = await query<RecordKey & { owner: RecordKey; externalId: string; isOwn: boolean }>(db)`
    WITH wanted AS MATERIALIZED (
      SELECT * FROM ${linkSet(links)}
    ), own AS (
      SELECT w.stream, w."localKey", r.stream AS owner, r.local_key AS key, r.external_id, true AS is_own
      FROM wanted AS w CROSS JOIN LATERAL (
        SELECT * FROM slotsync.records AS r WHERE r.stream = w.stream AND r.local_key = w."localKey" OFFSET 0) AS r
      WHERE (w."assignsId" OR r.external_id IS DISTINCT FROM w."externalId")
        AND (r.object_hash IS NOT NULL OR r.claimed_by <> ${token} OR (r.claimed_by IS NULL AND r.in_doubt))
    ), others AS (
      SELECT w.stream, w."localKey", r.stream, r.local_key, r.external_id, false
      FROM wanted AS w CROSS JOIN LATERAL (
        SELECT * FROM slotsync.records AS r WHERE r.external_id = w."externalId" OFFSET 0) AS r
      WHERE (r.stream, r.local_key) IS DISTINCT FROM (w.stream, w."localKey")
        AND ${MAY_BE_AT_SERVICE} AND NOT (r.status = 'retired' AND r.claimed_by IS NULL AND NOT r.in_doubt)
        AND NOT ${IS_FORMER}
    )
    SELECT stream, "localKey", jsonb_build_object('stream', owner, 'localKey', key) AS owner,
      external_id AS "externalId", is_own AS "isOwn" FROM (TABLE others UNION ALL TABLE own) AS o(stream, "localKey", owner, key, external_id, is_own)`;
  return new Map(
    rows.map(({ owner, externalId, isOwn, ...record }) => [
      recordName(record),
      isOwn
        ? `its record owns the object '${externalId}', or a batch is writing the record`
        : `${owner.stream} '${owner.localKey}' owns the object '${externalId}'`,
    ]),
  );
}

/** Returns why links could not be inserted: the key has a link, or another key is linked to the object. */
async function explainConflicts(db: Queries, links: readonly NewLink[]) {
  const reasons = new Map<string, string>();
  for (const stream of new Set(links.map((link) => link.stream))) {
    const inStream = links.filter((link) => link.stream === stream);
    const [keys, ids] = [inStream.map((link) => link.localKey), inStream.map((link) => link.externalId)];
    const { ofKeys, to } = await readLinksOfAndTo(db, stream, keys, ids);
    for (const link of inStream) {
      const [other, owner] = [ofKeys.get(link.localKey), to.get(link.externalId)];
      const reason = other
        ? `the key is already linked to '${other.externalId}'`
        : owner
          ? `${owner.stream} '${owner.localKey}' is already linked to '${link.externalId}'`
          : `another record is linked to the object with number ${link.destinationId ?? 'unknown'}`;
      reasons.set(recordName(link), reason);
    }
  }
  return reasons;
}

/**
 * Makes each linked record that was never accepted the owner of its object. Copies the facts of the object from a
 * retired or former record that owned it. Skips records that a batch is writing.
 */
async function noteLinked(tx: Queries, links: readonly NewLink[], token: string): Promise<void> {
  const linked = await query<RecordKey & { externalId: string; owner: RecordKey | null }>(tx)`
    SELECT r.stream, r.local_key AS "localKey", l."externalId",
      CASE WHEN o.local_key IS NOT NULL THEN jsonb_build_object('stream', o.stream, 'localKey', o.local_key) END AS owner
    FROM slotsync.records AS r
    JOIN ${linkSet(links)}
      ON r.stream = l.stream AND r.local_key = l."localKey"
    LEFT JOIN slotsync.records AS o ON o.external_id = l."externalId"
    WHERE r.object_hash IS NULL AND r.external_id IS DISTINCT FROM l."externalId"
      AND (r.claimed_by = ${token} OR (r.claimed_by IS NULL AND NOT r.in_doubt))
    ORDER BY r.stream, r.local_key FOR UPDATE OF r`;
  const transfers = linked.map(({ owner, ...record }) => ({
    ...record,
    from: owner ?? undefined,
    isFormerGone: owner !== null,
  }));
  await transferObjects(tx, transfers, { token, lateSeconds: 0 });
  // Lets the next run send records that were given up because they had no link.
  await query(tx)`
    UPDATE slotsync.records AS r SET status = 'failed', refused_hash = NULL
    FROM ${linkSet(links)}
    WHERE r.stream = l.stream AND r.local_key = l."localKey" AND r.status = 'dead' AND r.external_id = l."externalId"
      AND (r.object_hash IS NULL OR r.error_code = ${EXTERNAL_ID_CHANGED}) AND r.claimed_by IS NULL`;
}

/**
 * Deletes the links of these keys and returns them. The next run checks records whose objects were accepted, and finds
 * that their rows have other external ids.
 */
export async function unlinkRecords(db: Queries, stream: string, keys: readonly string[]): Promise<Link[]> {
  return db.transaction(async (tx) => {
    const links = await deleteLinks(tx, stream, keys);
    await takeBack(tx, links, sql`NOT ${MAY_BE_AT_SERVICE}`);
    await checkAgain(tx, { stream, keys: links.map(({ localKey }) => localKey) });
    return links;
  });
}

/** Undoes links that were made just now, by which nothing was written. */
export async function undoLinks(db: State['db'], links: readonly NewLink[]): Promise<void> {
  if (links.length === 0) return;
  await db.transaction(async (tx) => {
    for (const { stream, localKey } of links) await deleteLinks(tx, stream, [localKey]);
    await takeBack(tx, links, sql`r.object_hash IS NULL`);
  });
}

/**
 * Takes the objects of undone links from their records where `isUnsent`, and wakes records that were refused because of such a link.
 */
async function takeBack(tx: Queries, links: readonly NewLink[], isUnsent: SQL): Promise<void> {
  await query(tx)`
    UPDATE slotsync.records AS r SET external_id = NULL
    FROM ${linkSet(links)}
    WHERE r.stream = l.stream AND r.local_key = l."localKey" AND r.external_id = l."externalId" AND ${isUnsent}`;
  await wakeSharers(
    tx,
    links.map(({ externalId }) => externalId),
  );
}
