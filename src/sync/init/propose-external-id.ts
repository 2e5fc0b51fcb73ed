// The template of the external ids of a type: that of the objects which are at the service already, when a column holds
// what their external ids are made of; otherwise the type's name and the key.
import type { Catalogue, CatalogueTable } from '../../mirror/read-catalogue.js';
import type { NamedType } from './match-tables.js';

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

/** Undefined: no template can name the key. Throws what the mirror throws. */
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
