// Links assign an object to a key if the external id template does not determine the object. A link may exist before
// the record and remains after the record is deleted.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import type { LinkedBy } from '../schema.js';
import type { RecordKey } from './outcome-types.js';

export interface Link extends RecordKey {
  /** External id of the object. If `assignsId` is true, the first write will assign it. */
  externalId: string;
  destinationId: string | null;
  /**
   * True if the object has no external id yet. The first write uses the service's own id and assigns the external id.
   */
  assignsId: boolean;
  linkedBy: LinkedBy;
  /** Fields whose values identified the object. Null if an operator chose the object. */
  fields: string[] | null;
  linkedAt: Date;
}

export async function readLinks(db: Queries, stream: string, keys: readonly string[]) {
  if (keys.length === 0) return new Map<string, Link>();
  const links = await selectLinks(db, sql`stream = ${stream} AND local_key = ${anyOf(keys)}`);
  return new Map(links.map((link) => [link.localKey, link]));
}

/** Returns the links to objects with these external ids, by external id. A link has priority over the template. */
export async function readLinksTo(db: Queries, externalIds: readonly string[]) {
  if (externalIds.length === 0) return new Map<string, Link>();
  const links = await selectLinks(db, sql`external_id = ${anyOf(externalIds)}`);
  return new Map(links.map((link) => [link.externalId, link]));
}

/** Returns the links of these keys and the links to objects with these external ids, with a single query. */
export async function readLinksOfAndTo(
  db: Queries,
  stream: string,
  keys: readonly string[],
  externalIds: readonly string[],
) {
  const links = await selectLinks(
    db,
    sql`(stream = ${stream} AND local_key = ${anyOf(keys)}) OR external_id = ${anyOf(externalIds)}`,
  );
  return {
    ofKeys: new Map(
      links.flatMap((link) => (link.stream === stream ? [[link.localKey, link] as const] : [])),
    ),
    to: new Map(links.map((link) => [link.externalId, link])),
  };
}

/** Returns the links to objects with these service ids, by service id. */
export async function readLinksToNumbers(db: Queries, numbers: readonly string[]) {
  if (numbers.length === 0) return new Map<string, Link>();
  const links = await selectLinks(db, sql`destination_id = ${anyOf(numbers)}`);
  return new Map(links.map((link) => [link.destinationId ?? '', link]));
}

const LINK = sql`stream, local_key AS "localKey", external_id AS "externalId", destination_id AS "destinationId",
  assigns_id AS "assignsId", linked_by AS "linkedBy", fields, linked_at AS "linkedAt"`;

const selectLinks = (db: Queries, condition: SQL) =>
  query<Link>(db)`SELECT ${LINK} FROM slotsync.links WHERE ${condition}`;

/**
 * Inserts links and returns the inserted ones. Skips a key or an object that is linked already. The caller must check
 * afterwards that no other record owns the object, and otherwise undo the link, because writers store the external id
 * before they look for links.
 */
export async function insertLinks(
  db: Queries,
  links: readonly Omit<Link, 'linkedAt'>[],
): Promise<RecordKey[]> {
  if (links.length === 0) return [];
  return query<RecordKey>(db)`
    INSERT INTO slotsync.links (stream, local_key, external_id, destination_id, assigns_id, linked_by, fields)
    SELECT stream, "localKey", "externalId", "destinationId", "assignsId", "linkedBy", fields
    FROM jsonb_to_recordset(${JSON.stringify(links)}::jsonb) AS l(stream text, "localKey" text, "externalId" text,
      "destinationId" text, "assignsId" boolean, "linkedBy" text, fields text[])
    ON CONFLICT DO NOTHING RETURNING stream, local_key AS "localKey"`;
}

export async function deleteLinks(db: Queries, stream: string, keys: readonly string[]): Promise<Link[]> {
  return query<Link>(db)`
    DELETE FROM slotsync.links WHERE stream = ${stream} AND local_key = ${anyOf(keys)} RETURNING ${LINK}`;
}

/** Returns the statement that marks the external ids of linked objects as assigned. */
export const notingAssigned = (stream: string, keys: readonly string[]): SQL => sql`
  UPDATE slotsync.links SET assigns_id = false
  WHERE stream = ${stream} AND local_key = ${anyOf(keys)} AND assigns_id`;
