// Reads lookups that are tables of the mirror: all codes with their values.
import { messageOf, SlotsyncError } from '../errors/errors.js';
import { ROW_LIMIT_MEGABYTES } from '../streams/source.js';
import { MOST_CODES, type LookupContent, type LookupTable } from '../streams/lookups.js';
import { mappedText } from './mapped-text.js';
import { read } from './mirror-errors.js';
import type { ReadOnlySessions } from './read-only-sessions.js';
import { column, type ColumnTypes, relation } from './source-sql.js';
import { findAbsent, type SourceReader } from './source-reader.js';

export function createLookupReader(sessions: ReadOnlySessions, reader: SourceReader) {
  return {
    /**
     * Returns the content of a lookup. Throws SlotsyncError `mirror_source` with the place in the configuration if the
     * table or a column does not exist, a code repeats, or the table is too large.
     */
    async readLookup(name: string, { source, key, value }: LookupTable): Promise<LookupContent> {
      const refuse = (fault: string): never => {
        throw new SlotsyncError('mirror_source', `lookups.${name}.${fault}`);
      };
      let types: ColumnTypes = new Map();
      const [fault] = await reader.check({ source }, (found) => {
        types = found;
        return findAbsent(
          [
            ['key', key],
            ['value', value],
          ] as const,
          found,
        );
      });
      if (fault !== undefined) refuse(fault);
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
        refuse(`from: it has more than ${MOST_CODES} codes, too many for a lookup`);
      if (rows.some(({ fits }) => !fits))
        refuse(
          `from: its codes and values are larger than ${ROW_LIMIT_MEGABYTES} MB, too large for a lookup`,
        );
      const content = new Map(rows.map((row) => [row.code, row.value]));
      if (content.size < rows.length) {
        const codes = new Set<string>();
        const repeated = rows.find(({ code }) => codes.size === codes.add(code).size);
        refuse(`key: a code is in several rows, such as '${repeated?.code}'`);
      }
      return content;
    },
  };
}
