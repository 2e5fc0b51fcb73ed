// Links: the object that a record represents, where its template does not say. A link belongs to the key, not to the record:
// it is there before the record and outlives it.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import type { LinkedBy } from '../schema.js';
import type { RecordKey } from './outcome-types.js';

export interface Link extends RecordKey {
  /** The external id of the object; one that it does not have yet when `assignsId`. */
  externalId: string;
  /** The service's number of the object when it was linked. */
  destinationId: string | null;
  /** The object has no external id yet: the first write names its number and assigns one. */
  assignsId: boolean;
  linkedBy: LinkedBy;
  /** The fields that named the object; null: an operator did. */
  fields: string[] | null;
  linkedAt: Date;
}

/** The links of these keys, by key. */
export async function readLinks(db: Queries, stream: string, keys: readonly string[]) {
  if (keys.length === 0) return new Map<string, Link>();
  const links = await selectLinks(db, sql`stream = ${stream} AND local_key = ${anyOf(keys)}`);
  return new Map(links.map((link) => [link.localKey, link]));
}

/** The links to objects with these external ids, by external id: whichever row the template names, it does not have them. */
export async function readLinksTo(db: Queries, externalIds: readonly string[]) {
  if (externalIds.length === 0) return new Map<string, Link>();
  const links = await selectLinks(db, sql`external_id = ${anyOf(externalIds)}`);
  return new Map(links.map((link) => [link.externalId, link]));
}

/** Both in one statement: the links of these keys, and those to objects with these external ids. */
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

/** The links to objects with these numbers of the service, by number. */
export async function readLinksToNumbers(db: Queries, numbers: readonly string[]) {
  if (numbers.length === 0) return new Map<string, Link>();
  const links = await selectLinks(db, sql`destination_id = ${anyOf(numbers)}`);
  return new Map(links.map((link) => [link.destinationId ?? '', link]));
}

const selectLinks = (db: Queries, condition: SQL) =>
  query<Link>(db)`
    SELECT stream, local_key AS "localKey", external_id AS "externalId", destination_id AS "destinationId",
      assigns_id AS "assignsId", linked_by AS "linkedBy", fields, linked_at AS "linkedAt"
    FROM slotsync.links WHERE ${condition}`;

/**
 * Links keys to objects. Returns those that were linked: not a key that has a link already, nor an object that another key
 * is linked to. Look afterwards whether a record has the object meanwhile, and undo the link then: whoever writes notes the
 * external id before it looks for links.
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

/** Deletes the links of these keys; returns what they were. */
export async function deleteLinks(db: Queries, stream: string, keys: readonly string[]): Promise<Link[]> {
  if (keys.length === 0) return [];
  const links = [...(await readLinks(db, stream, keys)).values()];
  await query(db)`DELETE FROM slotsync.links WHERE stream = ${stream} AND local_key = ${anyOf(keys)}`;
  return links;
}

/** The statement that notes that the objects of these links have their external ids now. */
export const notingAssigned = (stream: string, keys: readonly string[]): SQL => sql`
  UPDATE slotsync.links SET assigns_id = false
  WHERE stream = ${stream} AND local_key = ${anyOf(keys)} AND assigns_id`;
