// Proposes key columns for a table, and a template for the external ids of its objects.
import type { Catalogue, CatalogueTable } from '../../mirror/read-catalogue.js';
import { type NamedType, tokensOf } from './match-names.js';

export interface ProposedExternalId {
  /** Template of external ids. Undefined if no column fits the external ids that exist at the service. */
  template: string | undefined;
  unsure?: string | undefined;
}

/** Maximum number of existing external ids that are looked for in the mirror. */
const MOST_LOOKED_FOR = 200;
/** Maximum number of beginnings of external ids that are tried as the fixed part of a template. */
const MOST_PREFIXES = 8;
/** Shares of the existing external ids that a template must produce, to be proposed, and to need no comment. */
const LEAST_SHARE = 0.5;
const SURE_SHARE = 0.9;
const SEPARATORS = ['_', '-', '.', ':', '/', '|', ''];

/**
 * Returns the template that produces the most existing external ids. If no objects exist, makes one of the type's name
 * and the key. Undefined if the key cannot be used in a template. Throws errors of the mirror.
 */
export async function proposeExternalId(
  catalogue: Pick<Catalogue, 'findKnown'>,
  table: CatalogueTable,
  { extId: type, extIds }: NamedType,
  key: readonly string[],
): Promise<ProposedExternalId | undefined> {
  const isNameable = key.every(isPlaceholder);
  if (extIds.length === 0) {
    const parts = key.map((column) => `{${column}}`).join('_');
    return isNameable ? { template: `${type.replaceAll(/[{}]/g, '')}_${parts}` } : undefined;
  }
  const tried = await tryTemplates(catalogue, table, extIds.slice(0, MOST_LOOKED_FOR), key);
  const [best] = tried;
  const percent = (share: number) => `${Math.round(share * 100)} %`;
  if (best && best.share >= SURE_SHARE) return { template: best.template };
  if (best && best.share >= LEAST_SHARE)
    return {
      template: best.template,
      unsure: `${percent(best.share)} of the external ids at the service are made so`,
    };
  const named = tried.slice(0, 3).map(({ template, share }) => `${template} (${percent(share)})`);
  return {
    template: undefined,
    unsure: `no column holds a part of the external ids at the service, such as ${extIds[0]}; tried: ${named.join(', ')}`,
  };
}

/** Returns the share of existing external ids that the best template produces. Throws errors of the mirror. */
export async function shareMade(
  catalogue: Pick<Catalogue, 'findKnown'>,
  table: CatalogueTable,
  { extIds }: NamedType,
): Promise<number> {
  if (extIds.length === 0) return 0;
  const key = declaredKey(table)?.columns ?? [];
  const [best] = await tryTemplates(catalogue, table, extIds.slice(0, MOST_LOOKED_FOR), key);
  return best?.share ?? 0;
}

/**
 * Tries templates, and returns them with the share of existing external ids that they produce, best first. Each column
 * is tried with each beginning, since a common beginning may be part of the column's values. If equal, the shorter
 * beginning wins.
 */
async function tryTemplates(
  catalogue: Pick<Catalogue, 'findKnown'>,
  table: CatalogueTable,
  extIds: readonly string[],
  key: readonly string[],
): Promise<{ template: string; share: number }[]> {
  const prefixes = prefixesOf(extIds);
  const rests = [...new Set(extIds.flatMap((extId) => restsOf(extId, prefixes)))];
  const single = table.columns.filter(
    ({ name, isText, type }) => isText && !type.endsWith('[]') && (key.length > 1 || name !== key[0]),
  );
  const options = [
    { columns: key, separators: key.length > 1 ? SEPARATORS : [''] },
    ...single.map(({ name }) => ({ columns: [name], separators: [''] })),
  ].filter(({ columns }) => columns.length > 0 && columns.every(isPlaceholder));
  const tried: { template: string; prefix: string; share: number }[] = [];
  for (const { columns, separators } of options) {
    for (const separator of separators) {
      const known = new Set(await catalogue.findKnown(table, columns, separator, rests));
      for (const prefix of prefixes) {
        const made = extIds.filter((extId) => restsOf(extId, [prefix]).some((rest) => known.has(rest)));
        const template = prefix + columns.map((column) => `{${column}}`).join(separator);
        tried.push({ template, prefix, share: made.length / extIds.length });
      }
    }
  }
  const rank = ({ share }: { share: number }) => Math.min(share, SURE_SHARE);
  return tried.toSorted((a, b) => rank(b) - rank(a) || a.prefix.length - b.prefix.length);
}

const isPlaceholder = (column: string) => !/[{}]/.test(column);

/** Returns what remains of an external id without each of the beginnings that fit it. */
const restsOf = (extId: string, prefixes: readonly string[]) =>
  prefixes
    .filter((prefix) => extId.length > prefix.length && extId.startsWith(prefix))
    .map((prefix) => extId.slice(prefix.length));

/** Returns beginnings that many external ids have in common, up to a separator or digit. The first is empty. */
function prefixesOf(extIds: readonly string[]): string[] {
  const counts = new Map<string, number>([['', extIds.length]]);
  for (const extId of extIds) {
    for (const { index } of extId.matchAll(/(?<=[^\p{L}\p{N}])|(?<=\p{L})(?=\p{N})/gu)) {
      const prefix = extId.slice(0, index);
      counts.set(prefix, (counts.get(prefix) ?? 0) + 1);
    }
  }
  return [...counts]
    .filter(([prefix, count]) => count >= extIds.length * LEAST_SHARE && isPlaceholder(prefix))
    .map(([prefix]) => prefix)
    .toSorted((a, b) => a.length - b.length)
    .slice(0, MOST_PREFIXES);
}

export interface ProposedKey {
  columns: string[];
  unsure?: string | undefined;
}

/** Returns the primary key, or else a unique index. Undefined if the mirror declares no usable key. */
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

/** Returns columns that may be the key, most likely first, for a table that declares no key. */
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
