// Finds which rows have an external id now, and which refer to a record: what is written, retired and sent again is decided
// by the mirror, not by what the state remembers.
import { arrayLiteral, quoteLiteral } from '../text/sql-text.js';
import { mayGive } from '../streams/external-id.js';
import type { DeclaredSource, Stream } from '../streams/stream.js';
import { keyColumns } from './column-values.js';
import { isJson, isList, isSingleValue, mappedText, mappedTexts, mayBeText } from './mapped-text.js';
import { column, joinedText, keyExpression, type Described } from './source-sql.js';
import { collect, type SourceReader } from './source-reader.js';
import * as sourceSql from './source-sql.js';

/** Keys named for one external id: enough to say which rows share it. */
const MOST_KEYS = 6;

/** Errors are SlotsyncError `mirror_…`. */
export function createKeyFinder(reader: SourceReader) {
  return {
    /**
     * For each external id the keys of rows that have it now, at most six, in the byte order of the keys. An id that no
     * row has is not in the answer.
     */
    async findKeysByExternalId(
      declared: Pick<DeclaredSource, 'source' | 'key' | 'externalId'>,
      externalIds: readonly string[],
    ): Promise<Map<string, string[]>> {
      const wanted = externalIds.filter((id) => !id.includes('\0') && mayGive(declared.externalId, id));
      if (wanted.length === 0) return new Map();
      const found = new Map<string, string[]>();
      const blocks = reader.select<typeof declared, { externalId: string; keys: string[] }>(
        declared,
        (described) =>
          [...sourceSql.narrowToColumn(described, wanted), 'true'].map((condition) =>
            selectKeysByExternalId(described, wanted, condition),
          ),
      );
      for await (const rows of blocks) for (const { externalId, keys } of rows) found.set(externalId, keys);
      return found;
    },

    /** Keys of rows of the child stream that refer to one of these records of the parent stream. */
    async findReferrers(child: Stream, parent: string, parentKeys: readonly string[]): Promise<string[]> {
      const found = new Set<string>();
      const wanted = parentKeys.filter((key) => !key.includes('\0'));
      if (wanted.length === 0) return [];
      // Each reference has a reading of its own, since each may have an index of its own.
      for (const { key } of child.references.filter(({ stream }) => stream === parent)) {
        const blocks = reader.select<Stream, { key: string }>(child, (described) =>
          matchReference({ key, types: described.types }, wanted).map(
            (condition) => `SELECT ${keyExpression(described)} AS key FROM ${sourceSql.relation(child.source)}
            WHERE ${condition} AND ${keyExpression(described)} IS NOT NULL`,
          ),
        );
        for (const { key: referrer } of await collect(blocks)) found.add(referrer);
      }
      return [...found];
    },
  };
}

function selectKeysByExternalId(
  described: Described<Pick<DeclaredSource, 'source' | 'key' | 'externalId'>>,
  wanted: readonly string[],
  condition: string,
): string {
  return `SELECT ext AS "externalId", array_to_json(array_agg(k ORDER BY k COLLATE "C")) AS keys
    FROM (SELECT ext, k, row_number() OVER (PARTITION BY ext ORDER BY k COLLATE "C") AS place
      FROM (SELECT ${sourceSql.externalIdExpression(described)} AS ext, ${keyExpression(described)} AS k
        FROM ${sourceSql.relation(described.source)} WHERE ${condition}) AS ids
      WHERE ext = ANY (${quoteLiteral(arrayLiteral(wanted))}::text[]) AND k IS NOT NULL) AS placed
    WHERE place <= ${MOST_KEYS} GROUP BY ext`;
}

/** Rows whose reference columns name one of these keys, as streams/map-row.ts reads them. The fastest condition first. */
function matchReference(
  { key: columns, types }: Pick<Described<Stream>, 'key' | 'types'>,
  keys: readonly string[],
): string[] {
  const typeOf = (name: string) => types.get(name) ?? 'text';
  const wanted = `${quoteLiteral(arrayLiteral(keys))}::text[]`;
  const [only] = columns;
  const type = typeOf(only ?? '');
  if (only !== undefined && columns.length === 1 && (isList(type) || isJson(type))) {
    const names = `EXISTS (SELECT FROM (${mappedTexts(column(only), type)}) AS slotsync_items
      WHERE slotsync_text = ANY (${wanted}))`;
    const element = type.slice(0, -2);
    if (!isList(type) || !isSingleValue(element)) return [names];
    const values = arrayLiteral(keys.filter((key) => mayBeText(key, element)));
    const overlap = `${column(only)} && ${quoteLiteral(values)}::text[]::${type}`;
    return [`${overlap} AND ${names}`, names];
  }
  const texts = columns.map((name) => mappedText(column(name), typeOf(name)));
  const named = `(${joinedText(texts)}) COLLATE "C" = ANY (${wanted})`;
  if (!columns.every((name) => isSingleValue(typeOf(name)))) return [named];
  const arrays = keyColumns({ key: columns, types }, keys);
  return [`${sourceSql.matchKeys({ key: columns, types }, arrays)} AND ${named}`, named];
}
