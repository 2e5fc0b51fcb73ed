// Policies of row-level security, where they concern the mirror's role. A reading from which one would hide rows is
// refused; the role may bypass them all, and a view does with the rights of its owner.

export interface Policies {
  role: string;
  /** SUPERUSER or BYPASSRLS: no policy concerns the role. */
  bypass: string | null;
  /** Tables with row-level security that the role may read. */
  tables: string[];
  /** Tables of these whose policies concern the role. */
  concerned: string[];
  /** Views that the role may read, and that read a table past policies that concern the role. */
  views: string[];
}

/** Tables and views that are named. */
const NAMED = 5;

/** Returns one Policies. */
export const SELECT_POLICIES = `
  WITH secured AS (
    SELECT c.oid, c.relowner, c.relforcerowsecurity, n.nspname || '.' || c.relname AS name,
      row_security_active(c.oid) AS concerns, has_any_column_privilege(c.oid, 'SELECT') AS readable
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relrowsecurity),
  past AS (
    SELECT DISTINCT n.nspname || '.' || v.relname AS name
    FROM secured AS s
    JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = s.oid AND d.classid = 'pg_rewrite'::regclass
    JOIN pg_rewrite AS rule ON rule.oid = d.objid
    JOIN pg_class AS v ON v.oid = rule.ev_class AND v.relkind = 'v'
    JOIN pg_namespace AS n ON n.oid = v.relnamespace
    JOIN pg_roles AS owner ON owner.oid = v.relowner
    WHERE s.concerns AND has_any_column_privilege(v.oid, 'SELECT')
      AND coalesce(array_to_string(v.reloptions, ' '), '') !~* 'security_invoker=(on|true|yes|1)'
      AND (owner.rolsuper OR owner.rolbypassrls
        OR (NOT s.relforcerowsecurity AND pg_has_role(v.relowner, s.relowner, 'USAGE'))))
  SELECT me.rolname AS role, CASE WHEN me.rolsuper THEN 'SUPERUSER' WHEN me.rolbypassrls THEN 'BYPASSRLS' END AS bypass,
    array_to_json(ARRAY(SELECT name FROM secured WHERE readable ORDER BY name)) AS tables,
    array_to_json(ARRAY(SELECT name FROM secured WHERE readable AND concerns ORDER BY name)) AS concerned,
    array_to_json(ARRAY(SELECT name FROM past ORDER BY name)) AS views
  FROM pg_roles AS me WHERE me.rolname = current_user`;

/** The texts for an operator: none where no table has row-level security. */
export function describePolicies({ role, bypass, tables, concerned, views }: Policies): string[] {
  const texts: string[] = [];
  if (bypass !== null && tables.length > 0)
    texts.push(`${role} has ${bypass}: no policy hides rows from it (${list(tables)})`);
  if (concerned.length > 0)
    texts.push(
      `policies concern ${role} on ${list(concerned)}: a reading of these is refused, unless it is declared with rowSecurity: 'filtered'`,
    );
  if (views.length > 0)
    texts.push(`views that read past policies, with the rights of their owners: ${list(views)}`);
  return texts;
}

function list(names: readonly string[]): string {
  const more = names.length - NAMED;
  return [...names.slice(0, NAMED), ...(more > 0 ? [`${more} more`] : [])].join(', ');
}
