// What people read of a stream each batch of which reads the whole source: what is read, and what helps.
import type { CostlyReading } from '../mirror/mirror.js';
import type { Stream } from '../streams/stream.js';

/** A costly reading, and how many batches read so. */
export interface CostlyBatches extends CostlyReading {
  batches: number;
}

/** `each of 400 batches scans all 2 000 000 rows of campus.rooms`. */
export function explainReading({ batches, scan, isComputed }: CostlyBatches): string {
  const rows = scan && `${inGroups(scan.rows)} rows of ${scan.relation}`;
  const each = `each of ${inGroups(batches)} batches`;
  if (rows === undefined) return `${each} runs the whole query`;
  return isComputed ? `${each} queries all ${rows}` : `${each} scans all ${rows}`;
}

/** What would make it cheap: statements for the mirror's database, or sentences. */
export function findReadingRemedies(
  { key }: Pick<Stream, 'key'>,
  { indexes, joined }: CostlyReading,
): string[] {
  const remedies = [
    ...indexes,
    ...joined.map((name) => `Index the columns of ${name} by which it is joined.`),
  ];
  if (remedies.length > 0) return remedies;
  return [`Read a table or materialized view with a unique index on ${key.join(', ')}.`];
}

const inGroups = (value: number) => Math.round(value).toLocaleString('en-US').replaceAll(',', ' ');
