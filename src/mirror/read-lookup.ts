// Reads lookups that are tables of the mirror: all codes with their values.
import { messageOf, SlotsyncError } from '../errors/errors.js';
import { ROW_LIMIT_MEGABYTES } from '../streams/source.js';
import { MOST_CODES, type LookupContent, type LookupTable } from '../streams/lookups.js';
import { mappedText } from './mapped-text.js';
import { read } from './mirror-errors.js';
import type { ReadOnlySessions } from './read-only-sessions.js';
import { column, relation } from './source-sql.js';
import { findAbsent, type NamedColumn, type SourceReader } from './source-reader.js';

/**
 * Returns the content of a lookup. Throws SlotsyncError `mirror_source` with the place in the configuration if the table
 * or a column does not exist, a code repeats, or the table is too large.
 */
export async function readLookup(
  sessions: ReadOnlySessions,
  reader: SourceReader,
  name: string,
  { source, key, value }: LookupTable,
): Promise<LookupContent> {
  const refuse = (fault: string): never => {
    throw new SlotsyncError('mirror_source', `lookups.${name}.${fault}`);
  };
  const named: readonly NamedColumn[] = [
    ['key', key],
    ['value', value],
  ];
  const [fault] = await reader.check({ source }, (found) => findAbsent(named, found));
  if (fault !== undefined) refuse(fault);
  const { types } = await reader.describedAs({ source });
  const text = (of: string) => mappedText(column(of), types.get(of) ?? 'text');
  const rows = await read(() =>
    sessions.query<{ code: string; value: string | null; fits: boolean }>(
      `SELECT CASE WHEN fits THEN code END AS code, CASE WHEN fits THEN value END AS value, fits
      FROM (SELECT code, value, sum(coalesce(octet_length(code), 0) + coalesce(octet_length(value), 0))
          OVER (ROWS UNBOUNDED PRECEDING) <= ${ROW_LIMIT_MEGABYTES * 1024 * 1024} AS fits
        FROM (SELECT ${text(key)} AS code, ${text(value)} AS value FROM ${relation(source)}
          WHERE ${column(key)} IS NOT NULL LIMIT ${MOST_CODES + 1}) AS read) AS counted`,
      source,
    ),
  ).catch((error: unknown) => {
    if (!(error instanceof SlotsyncError) || error.disposition !== 'dead') throw error;
    return refuse(`from: ${messageOf(error)}`);
  });
  if (rows.length > MOST_CODES)
    refuse(`from: the table has more than ${MOST_CODES} codes, too many for a lookup`);
  if (rows.some(({ fits }) => !fits))
    refuse(
      `from: the codes and values of the table are larger than ${ROW_LIMIT_MEGABYTES} MB, too large for a lookup`,
    );
  const content = new Map<string, string | null>();
  for (const row of rows) {
    if (content.has(row.code)) refuse(`key: a code is in several rows, such as '${row.code}'`);
    content.set(row.code, row.value);
  }
  return content;
}
