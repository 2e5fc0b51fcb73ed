// Sources of rows in the mirror, as the configuration declares them.

export interface SourceQuery {
  /** A SELECT. Its columns are the columns of the row. */
  query: string;
}

export interface SourceTable {
  /** Name of a table or view, with its schema if it is not in `public`. */
  table: string;
  /** Columns that make up the row. Other columns are not read, and changes in them do not count. */
  columns: string[];
}

export type SourceDeclaration = string | SourceTable | SourceQuery;

/** `filtered`: row-level security may hide rows of the source. Otherwise hidden rows are an error of PostgreSQL. */
export interface RowSecurity {
  rowSecurity?: 'filtered' | undefined;
}

/** A parsed source: the name parts of a relation, optionally with the only columns that are read, or a query. */
export type Source = ({ table: readonly string[]; columns?: readonly string[] } | { query: string }) &
  RowSecurity;

export function parseSource(from: SourceDeclaration): Source | string {
  if (typeof from === 'string') return parseTable(from);
  if ('query' in from) return from;
  const source = parseTable(from.table);
  return typeof source === 'string' ? source : { ...source, columns: from.columns };
}

/** Parses `schema.table`, where parts may be quoted. Returns the fault as text if the name is not valid. */
export function parseTable(name: string): Source | string {
  const parts = [...name.matchAll(/\s*(?:"((?:[^"]|"")+)"|([^".\s]+))\s*(\.|$)/gy)];
  const last = parts.at(-1);
  if (!last || last.index + last[0].length !== name.length || last[3] === '.' || parts.length > 3) {
    return `'${name}' is not a table name; write schema.table, and quote a part that holds a dot or a space: schema."my table"`;
  }
  return { table: parts.map(([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain ?? '') };
}

/** Default maximum size of a row as text, in megabytes. Also the maximum of a whole lookup table. */
export const ROW_LIMIT_MEGABYTES = 16;
