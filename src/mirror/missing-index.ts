// Which index is missing that would narrow a scan to the keys that are looked for: as SQL, from what the catalogue knows of the relation.
import { arrayLiteral, quoteLiteral } from '../sql-text.js';
import type { Scan } from './query-plan.js';

/** A relation that is scanned; of a partition, the table that it is part of. */
export interface ScannedRelation {
  /** As SQL writes it. */
  name: string;
  /** As pg_class has it: `r`, `m`, `p`, `f`, … */
  kind: string;
  /** As PostgreSQL estimates it; 0: not known. */
  rows: number;
  /** Column names as SQL writes them; `distinct`: how many different values. */
  columns: { name: string; type: string; distinct: number | null }[];
  /** The first column or expression of each index that serves every row. */
  indexed: string[];
}

const ROOT = 'coalesce(pg_partition_root(relation.oid), relation.oid)';

/** For each of the scans in turn, the relation. Gives `{ place, relation }`, the place from 1 on. */
export function selectRelations(scans: readonly Scan[]): string {
  const array = (texts: readonly string[]) => `${quoteLiteral(arrayLiteral(texts))}::text[]`;
  const [schemas, names] = [scans.map(({ schema }) => schema), scans.map(({ name }) => name)];
  return `SELECT scan.place::int AS place, json_build_object(
      'name', quote_ident(space.nspname) || '.' || quote_ident(root.relname), 'kind', root.relkind,
      'rows', greatest(relation.reltuples, 0)::float8,
      'columns', (SELECT coalesce(json_agg(json_build_object('name', quote_ident(attname),
          'type', format_type(atttypid, NULL), 'distinct', (
          SELECT CASE WHEN n_distinct < 0 THEN -n_distinct * greatest(root.reltuples, relation.reltuples) ELSE n_distinct END
          FROM pg_stats WHERE schemaname = own.nspname AND tablename = relation.relname
            AND pg_stats.attname = pg_attribute.attname ORDER BY inherited DESC LIMIT 1))), '[]')
        FROM pg_attribute WHERE attrelid = relation.oid AND attnum > 0 AND NOT attisdropped),
      'indexed', (SELECT coalesce(json_agg(pg_get_indexdef(indexrelid, 1, false)), '[]') FROM pg_index
        WHERE indrelid = relation.oid AND indisvalid AND indpred IS NULL)) AS relation
    FROM unnest(${array(schemas)}, ${array(names)}) WITH ORDINALITY AS scan (schema, name, place)
    JOIN pg_namespace AS own ON own.nspname = scan.schema
    JOIN pg_class AS relation ON relation.relname = scan.name AND relation.relnamespace = own.oid
    JOIN pg_class AS root ON root.oid = ${ROOT} JOIN pg_namespace AS space ON space.oid = root.relnamespace`;
}

/** The statement that creates it. Undefined: there is one, or none can help. */
export function findMissingIndex(
  relation: ScannedRelation,
  { compared }: Pick<Scan, 'compared'>,
): string | undefined {
  if (compared.length === 0 || relation.kind === 'f') return undefined;
  const columns = new Map(relation.columns.map((column) => [column.name, column]));
  const distinct = (part: string) => columns.get(part)?.distinct ?? 0;
  // A first column with few values would leave most rows to be read.
  const parts = [...new Set(compared.map((text) => plainColumn(text, columns)))].toSorted(
    (a, b) => distinct(b) - distinct(a),
  );
  if (relation.indexed.includes(parts[0] ?? '')) return undefined;
  const list = parts
    .map((part) => (columns.has(part) || isInParentheses(part) ? part : `(${part})`))
    .join(', ');
  return `CREATE INDEX ON ${relation.name} (${list});`;
}

/** varchar is compared as text, which its own index serves. */
function plainColumn(text: string, columns: ReadonlyMap<string, { type: string }>): string {
  const cast = /^\((.+)\)::text$/.exec(text)?.[1];
  return cast !== undefined && columns.get(cast)?.type === 'character varying' ? cast : text;
}

/** Whether one pair of parentheses encloses all of it. */
function isInParentheses(text: string): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    if (text[at] === '(') depth++;
    if (text[at] === ')') depth--;
    if (depth === 0) return at > 0 && at === text.length - 1;
  }
  return false;
}
