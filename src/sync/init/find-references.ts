// Finds columns of a table that refer to another table, by foreign keys, names or values, to propose references.
import { isReadingFault } from '../../errors/errors.js';
import type { Catalogue, CatalogueColumn, CatalogueTable } from '../../mirror/read-catalogue.js';
import {
  type ProposedField,
  type ReferenceCandidate,
  compareNames,
  isTextual,
  tokensOf,
} from './match-names.js';

/** A table for which a stream is proposed, with its key columns. */
export interface KeyedTable {
  table: CatalogueTable;
  key: readonly string[];
  /** External id of the object type that the table is matched with. */
  type: string;
}

/** Columns that refer to another stream's table, but not by its key, so that no reference can be proposed. */
export interface UnusableReference {
  columns: readonly string[];
  stream: string;
  why: string;
}

/** If a column is named after a table, this share of its values must be keys of that table. */
const LEAST_SHARE = 0.8;
/** If a column's name says nothing, this share of at least so many values must be keys of the other table. */
const TELLING_SHARE = 0.95;
const TELLING_VALUES = 10;
/** Counts and other small numbers. A table whose keys include such numbers would match any numeric column. */
const AMOUNTS = Array.from({ length: 100 }, (_, number) => String(number));
const SIMILAR = 0.6;

/**
 * Finds the references of a table to other tables, and to itself by a foreign key. `isWanted`: returns true for columns
 * that may be proposed because of their values alone. If no field has a similar name, matching numbers may be chance.
 */
export async function findReferences(
  catalogue: Pick<Catalogue, 'findKnown' | 'sampleValues'>,
  child: KeyedTable,
  others: readonly KeyedTable[],
  isWanted: (column: string) => boolean,
): Promise<{ candidates: ReferenceCandidate<KeyedTable>[]; otherwise: UnusableReference[] }> {
  const parents = others.filter(({ table }) => table !== child.table);
  const found: ReferenceCandidate<KeyedTable>[] = [];
  const otherwise: UnusableReference[] = [];
  const declared = new Set<string>();
  for (const { columns, of, targets } of child.table.foreignKeys) {
    const parent = others.find(({ table }) => table.schema === of.schema && table.name === of.name);
    if (!parent) continue;
    for (const column of columns) declared.add(column);
    const inKeyOrder = parent.key.map((name) => columns[targets.indexOf(name)]);
    const isByKey =
      parent.key.length === targets.length && inKeyOrder.every((column) => column !== undefined);
    // For a reference to the same table, the table's name proves nothing: all its fields may contain the name.
    const isOwn = parent.table === child.table;
    if (isByKey) found.push({ ...candidate(parent, inKeyOrder), ...(isOwn && { words: [] }) });
    else
      otherwise.push({
        columns,
        stream: parent.table.name,
        why: `it names ${targets.join(', ')}, not its key`,
      });
  }

  for (const parent of parents.filter(({ key }) => key.length > 1)) {
    const isSame = parent.key.every((name) => child.table.columns.some((column) => column.name === name));
    if (isSame && parent.key.every((name) => !declared.has(name) && !child.key.includes(name)))
      found.push(candidate(parent, parent.key));
  }

  const single = parents.filter(({ key }) => key.length === 1);
  for (const column of child.table.columns) {
    const { name, isText } = column;
    const isKey = child.key.length === 1 && child.key[0] === name;
    if (!isText || isKey || declared.has(name)) continue;
    const named = single.filter((parent) => isNamedAfter(column, parent));
    const asked = named.length > 0 ? named : isWanted(name) ? single : [];
    const byValue = asked.filter((parent) => isComparable(column, parent));
    if (byValue.length === 0) continue;
    const values = (await readable(catalogue.sampleValues(child.table, column))) ?? [];
    const shares: { parent: KeyedTable; share: number }[] = [];
    for (const parent of byValue) {
      const known = (await readable(catalogue.findKnown(parent.table, parent.key, '', values))) ?? [];
      shares.push({ parent, share: values.length === 0 ? 0 : known.length / values.length });
    }
    const [best] = shares.toSorted((a, b) => b.share - a.share);
    if (!best) continue;
    const isTelling = async () =>
      best.share >= TELLING_SHARE &&
      values.length >= TELLING_VALUES &&
      (await readable(catalogue.findKnown(best.parent.table, best.parent.key, '', AMOUNTS)))?.length === 0;
    if (named.length > 0 ? best.share >= LEAST_SHARE : await isTelling()) {
      const unsure = named.length > 0 ? undefined : `its values are keys of ${best.parent.table.name}`;
      found.push({ ...candidate(best.parent, [name]), unsure });
    }
  }
  return { candidates: found, otherwise };
}

/** A second table with a row for the same key, and the fields that its columns can fill. */
export interface ProposedJoin {
  table: CatalogueTable;
  /** Key column of the second table, and key column of the stream's table. */
  on: readonly [string, string];
  fields: ProposedField[];
}

/** Finds a second table with the same keys that fills the most fields. `fill`: matches a table with fields. */
export async function findJoin(
  catalogue: Pick<Catalogue, 'findKnown' | 'sampleValues'>,
  { table: own, key: [key = '', ...more] }: KeyedTable,
  tables: readonly CatalogueTable[],
  fill: (table: CatalogueTable) => ProposedField[],
): Promise<ProposedJoin | undefined> {
  if (more.length > 0) return undefined;
  const keyColumn = own.columns.find(({ name }) => name === key);
  const joins = tables
    .filter((table) => table !== own)
    .map((table) => ({ table, fields: fill(table) }))
    .filter(({ fields }) => fields.length > 0)
    .toSorted((a, b) => b.fields.length - a.fields.length);
  for (const { table, fields } of joins) {
    const declared = columnOfForeignKey(own, key, table) ?? columnOfOwnKey(table, own, key);
    if (declared !== undefined) return { table, on: [declared, key], fields };
    // A key called only id or code has the same name in unrelated tables. So the name proves nothing.
    const isSameKey =
      table.primaryKey?.length === 1 && table.primaryKey[0] === key && tokensOf(key).length > 1;
    if (!isSameKey || !keyColumn) continue;
    const values = (await readable(catalogue.sampleValues(own, keyColumn))) ?? [];
    const known = (await readable(catalogue.findKnown(table, [key], '', values))) ?? [];
    if (known.length > 0 && known.length >= values.length * LEAST_SHARE)
      return { table, on: [key, key], fields };
  }
  return undefined;
}

/** Returns the column of table `to` to which a foreign key of one column refers. */
function columnOfForeignKey(from: CatalogueTable, column: string, to: CatalogueTable): string | undefined {
  return from.foreignKeys.find(
    ({ columns, of }) =>
      columns.length === 1 && columns[0] === column && of.schema === to.schema && of.name === to.name,
  )?.targets[0];
}

/** If each row of a table extends a row of another table, returns the column that refers to that row. */
function columnOfOwnKey(from: CatalogueTable, to: CatalogueTable, key: string): string | undefined {
  const [column, ...more] = from.primaryKey ?? [];
  if (column === undefined || more.length > 0) return undefined;
  return columnOfForeignKey(from, column, to) === key ? column : undefined;
}

function candidate(parent: KeyedTable, columns: readonly string[]): ReferenceCandidate<KeyedTable> {
  const words = [tokensOf(parent.type.split('.').at(-1) ?? ''), tokensOf(parent.table.name)];
  return { columns, to: parent, words };
}

/** Returns true if a column's name resembles another table's name, its type or its key. */
function isNamedAfter({ name }: CatalogueColumn, { table, type, key }: KeyedTable): boolean {
  const words = tokensOf(name);
  const context = new Set(['id', 'code', 'key']);
  const names = [table.name, type, type.split('.').at(-1) ?? type];
  if (names.some((one) => compareNames(words, tokensOf(one), context) >= SIMILAR)) return true;
  const [column = ''] = key;
  return tokensOf(column).length > 1 && compareNames(words, tokensOf(column)) >= 0.9;
}

/** Returns true if a column may contain keys of a table. Numbers only equal numbers; texts may equal anything. */
function isComparable({ type }: CatalogueColumn, { table, key }: KeyedTable): boolean {
  const own = kindOf(type.replace(/\[\]$/, ''));
  const theirs = kindOf(table.columns.find(({ name }) => name === key[0])?.type ?? '');
  return own === theirs || own === 'text' || theirs === 'text';
}

function kindOf(type: string): string {
  if (/^(smallint|integer|bigint|numeric)$/.test(type)) return 'number';
  return isTextual({ type }) ? 'text' : type;
}

/** Returns the result of a query. Undefined if the table or view cannot be read, for example for lack of rights. */
export async function readable<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (isReadingFault(error)) return undefined;
    throw error;
  }
}
