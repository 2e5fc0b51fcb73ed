// What was last said of one object that drifted.
import { and, eq } from 'drizzle-orm';
import type { Queries } from '../database.js';
import { drift } from '../schema.js';

export type DriftRow = typeof drift.$inferSelect;

/** Undefined: as it should be, or never compared. */
export async function readDriftOf(
  db: Queries,
  stream: string,
  localKey: string,
): Promise<DriftRow | undefined> {
  const isThis = and(eq(drift.stream, stream), eq(drift.localKey, localKey));
  const [row] = await db.select().from(drift).where(isThis);
  return row;
}
