// Finds the rows that have an external id now, and the rows that refer to a record. The mirror, not what the state
// recorded, decides which objects are written, deactivated or sent again.
import { SlotsyncError } from '../errors/errors.js';
import { arrayLiteral, quoteLiteral } from '../text/sql-text.js';
import { isIdentifiedByKey, mayGive } from '../streams/external-id.js';
import { MAX_ID_BYTES } from '../streams/local-key.js';
import type { DeclaredSource, Stream } from '../streams/stream.js';
import { keyColumns } from './column-values.js';
import { isJson, isList, isSingleValue, mappedText, mappedTexts, mayBeText } from './mapped-text.js';
import { column, joinedText, keyExpression, type Described } from './source-sql.js';
import { collect, type SourceReader } from './source-reader.js';
import * as sourceSql from './source-sql.js';

/** An external id that several rows have, with the number of rows and the first of their keys. */
export interface SharedExternalId {
  externalId: string;
  count: number;
  keys: string[];
}

/** Maximum number of shared external ids. More of them mean that the template is wrong, not a few rows. */
const MOST_SHARED = 1000;
/** Maximum number of keys that are returned for one external id, so that a message can name some rows. */
const MOST_KEYS = 6;

type Identified = Pick<DeclaredSource, 'source' | 'key' | 'externalId'>;

export type KeyFinder = ReturnType<typeof createKeyFinder>;

/** Creates the queries that find keys. They throw SlotsyncError `mirror_…`. */
export function createKeyFinder(reader: SourceReader) {
  /** Returns the keys of rows that have an external id now. `isNarrowed`: tries a condition with an index first. */
  async function keysOf(
    declared: Identified,
    ids: readonly string[],
    isNarrowed: boolean,
  ): Promise<Map<string, string[]>> {
    const blocks = reader.select<Identified, { externalId: string; keys: string[] }>(
      declared,
      (described) => [
        ...(isNarrowed ? sourceSql.narrowToColumn(described, ids) : []).map((one) =>
          selectKeys(described, ids, one),
        ),
        selectKeys(described, ids),
      ],
    );
    return new Map((await collect(blocks)).map(({ externalId, keys }) => [externalId, keys]));
  }

  return {
    /** Returns, for each external id that rows have now, up to six of their keys in byte order. */
    async findKeysByExternalId(
      declared: Identified,
      externalIds: readonly string[],
    ): Promise<Map<string, string[]>> {
      const wanted = externalIds.filter((id) => !id.includes('\0') && mayGive(declared.externalId, id));
      return wanted.length === 0 ? new Map() : keysOf(declared, wanted, true);
    },

    /**
     * Returns external ids that several rows have. Throws if there are more than 1000. Ignores overlong external ids,
     * because their rows are refused anyway. `place` names the declaration in messages. Reads the whole source, unless
     * the template cannot produce duplicates.
     */
    async findShared(place: string, declared: DeclaredSource): Promise<SharedExternalId[]> {
      if (isIdentifiedByKey(declared.key, declared.externalId)) return [];
      const shared = await collect(
        reader.select<DeclaredSource, Omit<SharedExternalId, 'keys'>>(declared, (described) => [
          `SELECT ext AS "externalId", count(*)::int AS count FROM ${keysAndIds(described)}
            WHERE octet_length(ext) <= ${MAX_ID_BYTES} GROUP BY ext HAVING count(*) > 1 ORDER BY ext
            LIMIT ${MOST_SHARED + 1}`,
        ]),
      );
      if (shared.length > MOST_SHARED)
        throw new SlotsyncError(
          'external_ids_not_unique',
          `${place}: more than ${MOST_SHARED} external ids belong to several rows each, such as '${shared[0]?.externalId}'`,
          { remedy: `Name the columns that identify a row in ${place}.externalId.` },
        );
      if (shared.length === 0) return [];
      const ids = shared.map(({ externalId }) => externalId);
      const named = await keysOf(declared, ids, false);
      return shared.map((one) => ({ ...one, keys: named.get(one.externalId) ?? [] }));
    },

    /** Returns keys of the child stream's rows that refer to one of these records of the parent stream. */
    async findReferrers(child: Stream, parent: string, parentKeys: readonly string[]): Promise<string[]> {
      const found = new Set<string>();
      const wanted = parentKeys.filter((key) => !key.includes('\0'));
      if (wanted.length === 0) return [];
      // Each reference has its own query, because each reference may have its own index.
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

const keysAndIds = (described: Described<Identified>, condition = 'true') =>
  `(SELECT ${sourceSql.externalIdExpression(described)} AS ext, ${keyExpression(described)} AS k
    FROM ${sourceSql.relation(described.source)} WHERE ${condition}) AS ids`;

function selectKeys(described: Described<Identified>, ids: readonly string[], condition?: string): string {
  return `SELECT ext AS "externalId", array_to_json(array_agg(k ORDER BY place)) AS keys
    FROM (SELECT ext, k, row_number() OVER (PARTITION BY ext ORDER BY k COLLATE "C") AS place
      FROM ${keysAndIds(described, condition)}
      WHERE ext = ANY (${quoteLiteral(arrayLiteral(ids))}::text[]) AND k IS NOT NULL) AS placed
    WHERE place <= ${MOST_KEYS} GROUP BY ext`;
}

/**
 * Returns conditions for rows that refer to one of these keys, as streams/map-row.ts reads them, the fastest first.
 */
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
