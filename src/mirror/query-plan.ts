// What EXPLAIN says of a reading by keys: what it costs, and which relations it scans without an index that narrows them to
// the keys. Keys themselves stay out of what is returned.
import { z } from 'zod';
import { parse as parseArray } from 'postgres-array';

/** A step of a plan, as EXPLAIN (VERBOSE, FORMAT JSON) names its parts. */
export interface PlanNode {
  'Node Type': string;
  'Total Cost': number;
  'Plan Rows': number;
  'Relation Name'?: string | undefined;
  Schema?: string | undefined;
  Alias?: string | undefined;
  Filter?: string | undefined;
  'Index Cond'?: string | undefined;
  'Recheck Cond'?: string | undefined;
  Plans?: PlanNode[] | undefined;
}

const NODE: z.ZodType<PlanNode> = z.object({
  'Node Type': z.string(),
  'Total Cost': z.number(),
  'Plan Rows': z.number(),
  'Relation Name': z.string().optional(),
  Schema: z.string().optional(),
  Alias: z.string().optional(),
  Filter: z.string().optional(),
  'Index Cond': z.string().optional(),
  'Recheck Cond': z.string().optional(),
  Plans: z.lazy(() => z.array(NODE)).optional(),
});
const EXPLAINED = z.tuple([z.object({ Plan: NODE })]);

/** The first step of what EXPLAIN (FORMAT JSON) gives. */
export function parsePlan(explained: unknown): PlanNode {
  return EXPLAINED.parse(explained)[0].Plan;
}

/** A relation that is scanned whole, as far as the keys are concerned. */
export interface Scan {
  /** `Seq Scan`, `Foreign Scan`, … */
  node: string;
  schema: string;
  name: string;
  /** What is compared with the keys in each of its rows, as SQL over its columns; empty: the scan does not know the keys. */
  compared: string[];
}

/** Scans that no index narrows to the keys, of a plan that looks for so many; a relation that is scanned twice is one. */
export function findScans(plan: PlanNode, keys: number): Scan[] {
  const scans = new Map<string, Scan>();
  for (const node of steps(plan)) {
    const { 'Relation Name': name, Schema: schema = '', Filter: filter = '' } = node;
    if (name === undefined) continue;
    const compared = comparedWithKeys(filter, keys).map((text) => withoutAlias(text, node.Alias ?? name));
    if (compared.length === 0 && (node['Index Cond'] ?? node['Recheck Cond']) !== undefined) continue;
    const id = JSON.stringify([schema, name]);
    const scan = scans.get(id) ?? { node: node['Node Type'], schema, name, compared: [] };
    scans.set(id, { ...scan, compared: [...new Set([...scan.compared, ...compared])] });
  }
  return [...scans.values()];
}

/** Whether an index finds some of the rows by the keys. */
export function usesKeys(plan: PlanNode, keys: number): boolean {
  return steps(plan).some((node) => comparedWithKeys(node['Index Cond'] ?? '', keys).length > 0);
}

function steps(node: PlanNode): PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(steps)];
}

/** Quoted names and literals. */
const QUOTED = /"(?:[^"]|"")*"|E?'(?:[^']|'')*'/g;
const COMPARISON = ' = ANY (';

/** The left sides of comparisons with an array of so many values: the configuration's own lists are shorter. */
function comparedWithKeys(condition: string, keys: number): string[] {
  const quoted: string[] = [];
  // Nothing inside of quotes is taken for SQL: there stands its number now.
  const masked = condition.replace(QUOTED, (text) => `'${quoted.push(text) - 1}'`);
  const parts = masked.split(COMPARISON);
  return parts.slice(0, -1).flatMap((_, at) => {
    const literal = /^'(\d+)'/.exec(parts[at + 1] ?? '');
    if (literal === null || countElements(quoted[Number(literal[1])] ?? '') !== keys) return [];
    const left = lastOperand(parts.slice(0, at + 1).join(COMPARISON));
    return [left.replace(/'(\d+)'/g, (_, place: string) => quoted[Number(place)] ?? '')];
  });
}

function countElements(literal: string): number | undefined {
  const text = literal.replace(/^E?'|'$/g, '').replaceAll("''", "'");
  const array = literal.startsWith('E') ? text.replaceAll('\\\\', '\\') : text;
  return array.startsWith('{') ? parseArray(array, String).length : undefined;
}

/** The end of a text, from the last parenthesis that is not closed in it. */
function lastOperand(text: string): string {
  let depth = 0;
  for (let at = text.length - 1; at >= 0; at--) {
    if (text[at] === ')') depth++;
    else if (text[at] === '(' && depth-- === 0) return text.slice(at + 1);
  }
  return text;
}

/** Columns without the name of their relation, as CREATE INDEX has them. */
function withoutAlias(expression: string, alias: string): string {
  const quoted = `"${alias.replaceAll('"', '""')}"`;
  return [alias, quoted].reduce(
    (text, name) => text.replace(new RegExp(`(?<![\\p{L}\\p{N}_$".])${escape(name)}\\.`, 'gu'), ''),
    expression,
  );
}

const escape = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
