// Records whose row is gone from the mirror: since when, where the stream waits some days before it retires, and the end of
// those the service never had.
import { and, eq, isNull, lte, sql, type SQL } from 'drizzle-orm';
import { anyOf, type Queries } from '../database.js';
import { records } from '../schema.js';

const areThese = (stream: string, keys: readonly string[]): SQL | undefined =>
  and(eq(records.stream, stream), sql`${records.localKey} = ${anyOf(keys)}`);

/** Notes that the rows of these keys are gone, those for which it was not noted yet. */
export async function noteGone(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  await db
    .update(records)
    .set({ goneSince: sql`now()` })
    .where(and(areThese(stream, keys), isNull(records.goneSince)));
}

/** Notes that the rows of these keys are back: the days are counted anew when they are gone again. */
export async function noteBack(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  await db.update(records).set({ goneSince: null }).where(areThese(stream, keys));
}

/** Those of the keys whose rows have been gone for so many days. */
export async function readLongGone(
  db: Queries,
  stream: string,
  keys: readonly string[],
  days: number,
): Promise<Set<string>> {
  const latest = sql`now() - make_interval(secs => ${days * 24 * 60 * 60})`;
  const rows = await db
    .select({ localKey: records.localKey })
    .from(records)
    .where(and(areThese(stream, keys), lte(records.goneSince, latest)));
  return new Set(rows.map(({ localKey }) => localKey));
}

/** Deletes records that the service never had and no batch has claimed. */
export async function forgetRecords(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  await db
    .delete(records)
    .where(
      and(
        areThese(stream, keys),
        isNull(records.objectHash),
        isNull(records.claimedBy),
        eq(records.inDoubt, false),
      ),
    );
}
