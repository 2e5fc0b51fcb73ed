// Who owns an object, when everything is quiet: one record for each external id, and for each row that of its own key.
import type postgres from 'postgres';

/** A row of the mirror, and its external id. */
export interface OwnedRow {
  stream: string;
  localKey: string;
  externalId: string;
}

/** The faults of the records, in words. `streams`: of these alone; by default all. */
export async function ownershipFaults(
  sql: postgres.Sql,
  rows: readonly OwnedRow[],
  streams?: readonly string[],
): Promise<string[]> {
  const records = await sql<
    (OwnedRow & { externalId: string | null; status: string; code: string | null })[]
  >`
    SELECT stream, local_key AS "localKey", external_id AS "externalId", status, error_code AS code
    FROM slotsync.records WHERE ${streams ? sql`stream = ANY (${[...streams]})` : sql`true`}
    ORDER BY stream, local_key`;
  const nameOf = ({ stream, localKey }: Omit<OwnedRow, 'externalId'>) => `${stream} '${localKey}'`;
  const owners = new Map<string, (typeof records)[number][]>();
  for (const record of records)
    if (record.externalId !== null)
      owners.set(record.externalId, [...(owners.get(record.externalId) ?? []), record]);
  const shared = [...owners].flatMap(([externalId, found]) =>
    found.length > 1 ? [`${externalId} has ${found.length} records: ${found.map(nameOf).join(', ')}`] : [],
  );
  const wrong = rows.flatMap((row) => {
    const found = owners.get(row.externalId) ?? [];
    const owner = found.find((one) => one.status === 'synced') ?? found[0];
    if (!owner) return [`${row.externalId} has no record, and is that of ${nameOf(row)}`];
    if (nameOf(owner) !== nameOf(row))
      return [`${row.externalId} is the object of ${nameOf(owner)}, and its row is ${nameOf(row)}`];
    return owner.status === 'synced'
      ? []
      : [`${row.externalId} is the object of ${nameOf(owner)}, which is ${owner.status} (${owner.code})`];
  });
  return [...shared, ...wrong];
}
