// The columns of a source: what their types are called, and what of them belongs to the row hash.

/** Column name to type, as SQL writes it; of a domain the type below it. */
export type ColumnTypes = ReadonlyMap<string, string>;

export interface SourceColumns {
  types: ColumnTypes;
  /**
   * Names and types in order, for the row hash: the text of a row has neither. A load may make a type anew under another
   * number, or rename it: of those that PostgreSQL does not bring along only counts whether they are lists.
   */
  layout: string;
}

/** A declaration with the columns of its source, for the SQL that reads it. */
export type Described<T> = T & SourceColumns;

/** Types that PostgreSQL brings along have lower numbers. */
const FIRST_OWN_TYPE = 16384;

/** `typeNames`: by the numbers of the types. */
export function toSourceColumns(
  columns: readonly { name: string; type: number }[],
  typeNames: ReadonlyMap<number, string>,
): SourceColumns {
  const named = columns.map(({ name, type }) => [name, typeNames.get(type) ?? 'text', type] as const);
  const layout = named.map(([name, type, oid]) => {
    const isOwn = oid >= FIRST_OWN_TYPE;
    return [name, isOwn ? type.endsWith('[]') : type];
  });
  return {
    types: new Map(named.map(([name, type]) => [name, type])),
    layout: JSON.stringify(layout),
  };
}
