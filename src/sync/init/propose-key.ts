// Proposes what identifies a row, and the template of the external ids of a type.
import type { Catalogue, CatalogueTable } from '../../mirror/read-catalogue.js';
import { type NamedType, tokensOf } from './match-names.js';

export interface ProposedExternalId {
  template: string;
  unsure?: string | undefined;
}

/** External ids that are looked for in the mirror. */
const MOST_LOOKED_FOR = 200;
/** The shares of these that a column must hold to be proposed, and to be proposed without a comment. */
const LEAST_SHARE = 0.5;
const SURE_SHARE = 0.9;
const SEPARATORS = ['_', '-', '.', ':', '/', '|', ''];

/**
 * The template of the objects that are at the service already, if a column holds what their external ids are made of; otherwise the
 * type's name and the key. Undefined: no template can name the key. Throws what the mirror throws.
 */
export async function proposeExternalId(
  catalogue: Pick<Catalogue, 'countKnown'>,
  table: CatalogueTable,
  { extId: type, extIds }: NamedType,
  key: readonly string[],
): Promise<ProposedExternalId | undefined> {
  const sample = extIds.slice(0, MOST_LOOKED_FOR);
  const prefix = commonPrefix(sample);
  const rests = [...new Set(sample.map((extId) => extId.slice(prefix.length)))].filter((rest) => rest !== '');
  const isNameable = (columns: readonly string[]) => columns.every((name) => !/[{}]/.test(name));
  let best: { template: string; share: number } | undefined;
  if (rests.length > 0 && !/[{}]/.test(prefix)) {
    const single = table.columns.filter(({ isText, type }) => isText && !type.endsWith('[]'));
    const options = [
      { columns: key, separators: key.length > 1 ? SEPARATORS : [''] },
      ...single
        .filter(({ name }) => key.length > 1 || name !== key[0])
        .map(({ name }) => ({ columns: [name], separators: [''] })),
    ].filter(({ columns }) => isNameable(columns));
    for (const { columns, separators } of options) {
      for (const separator of separators) {
        const share = (await catalogue.countKnown(table, columns, separator, rests)) / rests.length;
        const template = prefix + columns.map((column) => `{${column}}`).join(separator);
        if (share > (best?.share ?? 0)) best = { template, share };
        if (share >= SURE_SHARE) return { template };
      }
    }
  }
  if (best && best.share >= LEAST_SHARE) {
    const percent = Math.round(best.share * 100);
    return { template: best.template, unsure: `${percent} % of the external ids at the service are made so` };
  }
  if (!isNameable(key)) return undefined;
  const start = prefix !== '' && !/[{}]/.test(prefix) ? prefix : `${type.replaceAll(/[{}]/g, '')}_`;
  const template = start + key.map((column) => `{${column}}`).join('_');
  if (rests.length === 0) return { template };
  return {
    template,
    unsure:
      'no column holds a part of the external ids at the service; slotsync match links objects by their fields',
  };
}

/** The common beginning of all external ids, up to a separator. */
function commonPrefix(extIds: readonly string[]): string {
  const [first = ''] = extIds;
  let length = first.length;
  for (const extId of extIds) while (!extId.startsWith(first.slice(0, length))) length -= 1;
  return /^.*[^\p{L}\p{N}]/su.exec(first.slice(0, length))?.[0] ?? '';
}

export interface ProposedKey {
  columns: string[];
  unsure?: string | undefined;
}

/** The primary key, else a unique index; undefined when the mirror declares none that can be used. */
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
