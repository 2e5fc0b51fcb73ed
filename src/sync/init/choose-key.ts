// Chooses what identifies a row: the primary key, else a unique index, else the column that looks most like one.
import type { CatalogueTable } from '../../mirror/read-catalogue.js';
import { tokensOf } from './name-tokens.js';

export interface ProposedKey {
  columns: string[];
  unsure?: string | undefined;
}

/** The key that the mirror declares; undefined when it declares none that can be used. */
export function declaredKey({ primaryKey, uniqueKeys, columns }: CatalogueTable): ProposedKey | undefined {
  const isUsable = (key: readonly string[]) =>
    key.every((name) => columns.some((column) => column.name === name && isKeyColumn(column)));
  const timeOf = (key: readonly string[]) =>
    key.find((name) => columns.some((column) => column.name === name && column.type.startsWith('time')));
  const usable = [...(primaryKey ? [primaryKey] : []), ...uniqueKeys].filter(isUsable);
  const declared = usable.find((key) => timeOf(key) === undefined) ?? usable[0];
  if (!declared) return undefined;
  const time = timeOf(declared);
  const unsure =
    time && `${time} is a time: a row whose time changes counts as another one, with another object`;
  return { columns: declared, unsure };
}

/** Columns that may be the key of a table without one, the likeliest first. */
export function guessKeys(table: CatalogueTable): string[] {
  const own = new Set(tokensOf(table.name));
  const rank = (name: string): number => {
    const words = tokensOf(name);
    const rest = words.filter((word) => !own.has(word)).join(' ');
    if (['id', 'uuid', 'guid'].includes(rest)) return 0;
    if (['code', 'key', 'number', 'nr', 'no'].includes(rest)) return 1;
    return words.some((word) => ['id', 'code', 'number'].includes(word)) ? 2 : 3;
  };
  return table.columns
    .filter(isKeyColumn)
    .map(({ name }) => name)
    .toSorted((a, b) => rank(a) - rank(b));
}

const isKeyColumn = ({ isText, type }: { isText: boolean; type: string }) => isText && !type.endsWith('[]');
