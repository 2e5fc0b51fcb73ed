// Finds the rights that the mirror's role has beyond SELECT. slotsync only reads the mirror, but only a role without
// other rights guarantees that (docs/security.md).
import { quoteIdentifier } from '../text/sql-text.js';
import type { DeclaredSource, Source } from '../streams/stream.js';

export interface RoleRights {
  role: string;
  /** Role attributes and predefined roles that permit more than reading, for example SUPERUSER. */
  powers: string[];
  /** Names of the first five objects that the role may write to: tables, sequences, schemas, the database. */
  writable: string[];
  writableCount: number;
}

const NAMED = 5;

/** SQL that returns one RoleRights row. The writable objects of a superuser are not listed: they are all objects. */
export const SELECT_ROLE_RIGHTS = `
  WITH me AS (SELECT r.* FROM pg_roles AS r WHERE r.rolname = current_user),
  powers AS (
    SELECT power FROM me CROSS JOIN LATERAL (VALUES
      ('SUPERUSER', rolsuper), ('CREATEROLE', rolcreaterole), ('CREATEDB', rolcreatedb),
      ('REPLICATION', rolreplication)) AS v(power, has) WHERE has
    UNION ALL
    SELECT r.rolname FROM me JOIN pg_roles AS r ON pg_has_role(me.oid, r.oid, 'member')
    WHERE NOT me.rolsuper AND r.rolname IN ('pg_write_all_data', 'pg_write_server_files', 'pg_execute_server_program')),
  writable AS (
    SELECT n.nspname || '.' || c.relname AS name, n.nspname LIKE 'slotsync%' AS ours
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' AND CASE
      WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, 'USAGE, UPDATE')
      WHEN c.relkind IN ('r', 'p', 'f', 'v') THEN has_any_column_privilege(c.oid, 'INSERT, UPDATE')
        OR has_table_privilege(c.oid, 'DELETE, TRUNCATE')
      END
    UNION ALL
    SELECT 'schema ' || nspname, nspname LIKE 'slotsync%' FROM pg_namespace
    WHERE nspname <> 'information_schema' AND nspname !~ '^pg_' AND has_schema_privilege(oid, 'CREATE')
    UNION ALL
    SELECT 'database ' || current_database(), true WHERE has_database_privilege(current_database(), 'CREATE'))
  SELECT current_user::text AS role, array_to_json(ARRAY(SELECT power FROM powers)) AS powers,
    CASE WHEN me.rolsuper THEN '[]' ELSE array_to_json(ARRAY(SELECT name FROM writable ORDER BY ours, name LIMIT ${NAMED})) END AS writable,
    CASE WHEN me.rolsuper THEN 0 ELSE (SELECT count(*)::int FROM writable) END AS "writableCount"
  FROM me`;

/** Returns the role's rights beyond reading as an English clause, or undefined if it has no such rights. */
export function describeExcess({ powers, writable, writableCount }: RoleRights): string | undefined {
  const more = writableCount - writable.length;
  const named = [...writable, ...(more > 0 ? [`${more} more`] : [])].join(', ');
  const clauses = [
    ...(powers.length > 0 ? [`it has ${powers.join(', ')}`] : []),
    ...(writableCount > 0 ? [`it may write to ${named}`] : []),
  ];
  return clauses.length > 0 ? clauses.join(', and ') : undefined;
}

/** Returns SQL that creates a role which may read these sources and nothing else. */
export function createReader(sources: readonly Pick<DeclaredSource, 'source'>[]): string {
  const role = 'slotsync_mirror';
  const grants = grantSelect(
    sources.map(({ source }) => source),
    role,
  );
  return [`CREATE ROLE ${role} LOGIN PASSWORD '…'`, ...grants].join('; ');
}

const nameOf = ({ table }: { table: readonly string[] }) => table.map(quoteIdentifier).join('.');

/** Returns the GRANT statements that let a role read these sources. Tables of a query are left to the operator. */
export function grantSelect(sources: readonly Source[], role: string): string[] {
  const named = sources.filter((source) => 'table' in source);
  const tables = named.map(({ table }) => table);
  const grant = (right: string, names: readonly string[]) =>
    names.length > 0 ? [`GRANT ${right} ${[...new Set(names)].join(', ')} TO ${role}`] : [];
  return [
    ...grant(
      'USAGE ON SCHEMA',
      tables.flatMap((parts) => (parts.length > 1 ? [quoteIdentifier(parts.at(-2) ?? '')] : [])),
    ),
    ...grant(
      'SELECT ON',
      named.flatMap((source) => (source.columns ? [] : nameOf(source))),
    ),
    ...named.flatMap(({ columns, table }) =>
      columns ? grant(`SELECT (${columns.map(quoteIdentifier).join(', ')}) ON`, [nameOf({ table })]) : [],
    ),
    ...(tables.length < sources.length
      ? [`GRANT SELECT ON … TO ${role}, for each table and view that a query names`]
      : []),
  ];
}
