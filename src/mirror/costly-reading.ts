// Finds out whether reading a few keys costs as much as reading the whole source: where PostgreSQL cannot narrow a query to
// the keys (DISTINCT ON, a window, a key that is computed), or has no index for it. Every batch would then read all of it.
// The plans of the statements are compared, and nothing is read: of a view with a missing index even one key may take minutes.
import type { Stream } from '../streams/stream.js';
import { isShortenedKey } from '../streams/local-key.js';
import { makeKeys } from './made-up-keys.js';
import { findMissingIndex, selectRelations, type ScannedRelation } from './missing-index.js';
import { findScans, parsePlan, usesKeys, type PlanNode, type Scan } from './query-plan.js';
import { read } from './mirror-errors.js';
import type { ReadOnlySessions } from './read-only-sessions.js';
import { hashExpression, keyExpression } from './row-key-and-hash.js';
import type { Described } from './source-columns.js';
import { collect, keyConditions, withFallback, type SourceReader } from './source-reader.js';
import * as sourceSql from './source-sql.js';

/** Which readings are costly. */
export interface CostBounds {
  /** Of the cost of reading the whole source: from here on, a reading by keys costs nearly as much. */
  share: number;
  /**
   * What reading every key of the source costs, from which on it is worth a word; as PostgreSQL estimates costs, where a page
   * read in order is 1 and a second about 200 000.
   */
  cost: number;
}

/**
 * With an index, a thousand keys of a million rows cost 0.1 of reading them all, and the fewer the less; without one, 0.3 to
 * 1. Below the cost, about ten seconds, it does not matter.
 */
const BOUNDS: CostBounds = { share: 0.2, cost: 2_000_000 };

/** A reading by keys that costs nearly as much as reading the whole source. */
export interface CostlyReading {
  /** Keys of the reading whose cost was estimated. */
  keys: number;
  /** Rows of the source, as estimated. */
  rows: number;
  /** What the reading costs, as part of what reading the whole source costs. */
  share: number;
  /** The largest relation that each reading scans, and its rows; undefined: none is known. */
  scan: { node: string; relation: string; rows: number } | undefined;
  /** Statements that would make the reading narrow; none: no index of the key's columns can. */
  indexes: string[];
  /** Relations that are joined to the keys, and scanned for it. */
  joined: string[];
  /** The keys are compared with the result of the query, not with a relation that it reads. */
  isComputed: boolean;
  /** So many batches are worth a word. */
  mattersFrom: number;
}

/** Relations of which so small a part is scanned do not count, beside the largest. */
const SMALL = 0.1;

/** Errors are SlotsyncError `mirror_…`. */
export function createReadingEstimator(
  sessions: ReadOnlySessions,
  reader: SourceReader,
  { share, cost: total }: CostBounds = BOUNDS,
) {
  /** The plan of the statement that reads the rows of a batch, and of one that reads all. */
  async function explain(stream: Described<Stream>, conditions: readonly string[]): Promise<PlanNode> {
    const computed = { key: keyExpression(stream), hash: `${hashExpression(stream)}::text` };
    const plans = withFallback(conditions, async function* (condition) {
      const statement = sourceSql.selectRows(stream.source, computed, condition);
      yield await sessions.query<{ 'QUERY PLAN': unknown }>(`EXPLAIN (VERBOSE, FORMAT JSON) ${statement}`);
    });
    const [row] = await collect(plans);
    return parsePlan(row?.['QUERY PLAN']);
  }

  async function readRelations(scans: readonly Scan[]) {
    const rows = await read(() =>
      sessions.query<{ place: number; relation: ScannedRelation }>(selectRelations(scans)),
    );
    return rows.flatMap(({ place, relation }) => {
      const scan = scans[place - 1];
      return scan ? [{ scan, relation }] : [];
    });
  }

  return {
    /**
     * What reading so many keys at once costs, where it is nearly as much as reading the whole source and the source is large;
     * undefined: it costs less, or is not known. `keys`: some of them; without any, keys are made up of the columns' types.
     */
    async findCostlyReading(
      declared: Stream,
      { keysAtOnce, keys }: { keysAtOnce: number; keys?: readonly string[] },
    ): Promise<CostlyReading | undefined> {
      const stream = await reader.describedAs(declared);
      const whole = await explain(stream, ['true']);
      const rows = whole['Plan Rows'];
      const isWorth = (cost: number) => (cost * rows) / keysAtOnce >= total;
      if (!isWorth(whole['Total Cost'])) return undefined;
      const named = keys ?? makeKeys(stream, keysAtOnce);
      const sample = [...new Set(named)].filter((key) => !isShortenedKey(key)).slice(0, keysAtOnce);
      if (sample.length === 0) return undefined;
      const plan = await explain(stream, keyConditions(stream, sample));
      const cost = plan['Total Cost'];
      const scans = findScans(plan, sample.length);
      const isUnindexed = scans.some(({ compared }) => compared.length > 0);
      if (!isWorth(cost) || (!isUnindexed && cost < share * whole['Total Cost'])) return undefined;

      const isNarrowed = usesKeys(plan, sample.length);
      // Every relation is found by an index: the estimate is that of a table without statistics.
      if (isNarrowed && scans.length === 0) return undefined;
      const found = largest(scans.length === 0 ? [] : await readRelations(scans));
      const [first] = found;
      return {
        keys: sample.length,
        rows,
        share: cost / whole['Total Cost'],
        scan: first && { node: first.scan.node, relation: first.relation.name, rows: first.rows },
        ...findRemedies(found, isNarrowed),
        isComputed: found.every(({ scan }) => scan.compared.length === 0) && !isNarrowed,
        mattersFrom: Math.ceil(total / cost),
      };
    },
  };
}

interface Scanned {
  scan: Scan;
  relation: ScannedRelation;
}

/** Indexes that are missing. Where all are there, PostgreSQL does not use them for want of statistics. */
function findRemedies(
  found: readonly Scanned[],
  isNarrowed: boolean,
): Pick<CostlyReading, 'indexes' | 'joined'> {
  const compared = found.filter(({ scan }) => scan.compared.length > 0);
  const others = found.filter(({ scan }) => scan.compared.length === 0);
  const joined = compared.length > 0 || isNarrowed ? others.map(({ relation }) => relation.name) : [];
  const indexes = compared.flatMap(({ relation, scan }) => findMissingIndex(relation, scan) ?? []);
  if (indexes.length > 0 || joined.length > 0) return { indexes, joined };
  const indexed = compared.filter(({ relation }) => relation.kind !== 'f');
  return { indexes: indexed.map(({ relation }) => `ANALYZE ${relation.name};`), joined };
}

/** The relations that matter, partitions added up, the largest first. */
function largest(scanned: readonly Scanned[]) {
  const byName = new Map<string, Scanned & { rows: number }>();
  for (const { scan, relation } of scanned) {
    const known = byName.get(relation.name) ?? { scan, relation, rows: 0 };
    byName.set(relation.name, { ...known, rows: known.rows + relation.rows });
  }
  const found = [...byName.values()].toSorted((a, b) => b.rows - a.rows);
  return found.filter(({ rows }) => rows >= SMALL * (found[0]?.rows ?? 0));
}
