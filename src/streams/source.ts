// The source that rows come from, and how the configuration writes it.

export interface SourceQuery {
  /** A SELECT. Its columns are the row. */
  query: string;
}

export interface SourceTable {
  /** A table or view. */
  table: string;
  /** The columns that are read. They are the row: no other column is read, and changes in other columns do not count. */
  columns: string[];
}

/** A table or view by its name, some columns of one, or a query. */
export type SourceDeclaration = string | SourceTable | SourceQuery;

/** Whether policies of row-level security may hide rows of a source. Unless it says so, PostgreSQL raises an error where one would. */
export interface RowSecurity {
  rowSecurity?: 'filtered' | undefined;
}

/** A relation by its (literal) name parts, with the only columns of it that are read, or a query. */
export type Source = ({ table: readonly string[]; columns?: readonly string[] } | { query: string }) &
  RowSecurity;

/** Resolves a source; returns the fault as text when it cannot. */
export function parseSource(from: SourceDeclaration): Source | string {
  if (typeof from === 'string') return parseTable(from);
  if ('query' in from) return from;
  const source = parseTable(from.table);
  return typeof source === 'string' ? source : { ...source, columns: from.columns };
}

/** Parses `schema.table`, parts optionally in double quotes; returns the fault as text when it cannot. */
export function parseTable(name: string): Source | string {
  const parts = [...name.matchAll(/\s*(?:"((?:[^"]|"")+)"|([^".\s]+))\s*(\.|$)/gy)];
  const last = parts.at(-1);
  if (!last || last.index + last[0].length !== name.length || last[3] === '.' || parts.length > 3) {
    return `'${name}' is not a table name; write schema.table, and quote a part that holds a dot or a space: schema."my table"`;
  }
  return { table: parts.map(([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain ?? '') };
}

/** Megabytes of a row of the mirror as text, unless its stream says otherwise; and of the whole of a lookup. */
export const ROW_LIMIT_MEGABYTES = 16;
