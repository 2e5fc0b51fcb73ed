// The output of `forget`.
import { lines } from '../text/format.js';
import type { Forgotten } from '../state/records/forget-key.js';

export function describeForgotten(stream: string, { deleted, externalIds }: Forgotten): string[] {
  const tables = Object.entries(deleted).map(([table, count]) => `${table} ${count}`);
  return lines(
    `Deleted what the state held of this key of ${stream}: ${tables.join(', ')}.`,
    externalIds.length > 0 &&
      `The service may still hold ${externalIds.join(', ')}. Delete it there: slotsync deletes no objects.`,
  );
}
