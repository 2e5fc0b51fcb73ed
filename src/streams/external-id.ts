// Parses and renders templates of external ids. Templates are not functions, so that SQL can find rows with equal ids.
import type { Row } from './config-schema.js';
import { keyOf, type ExternalIdRule } from './external-id-rule.js';
import { toValues } from './field-values.js';

export type TemplatePart = { literal: string } | { column: string };
export interface ExternalIdTemplate {
  parts: readonly TemplatePart[];
  /** How the service compares external ids. If undefined, ids are compared character by character. */
  rule: ExternalIdRule | undefined;
}

/** Parses a template such as `room_{room_code}`. Returns the fault as text if the template is not valid. */
export function parseTemplate(template: string, rule?: ExternalIdRule): ExternalIdTemplate | string {
  const parts: TemplatePart[] = [];
  let rest = template;
  while (rest !== '') {
    const open = rest.indexOf('{');
    const literal = open < 0 ? rest : rest.slice(0, open);
    if (literal.includes('}')) return `'}' without '{' in '${template}'`;
    if (literal !== '') parts.push({ literal });
    if (open < 0) break;
    const close = rest.indexOf('}', open);
    if (close < 0) return `'{' without '}' in '${template}'`;
    const column = rest.slice(open + 1, close);
    if (column === '' || column.includes('{')) return `an empty or nested '{…}' in '${template}'`;
    parts.push({ column });
    rest = rest.slice(close + 1);
  }
  if (!parts.some((part) => 'column' in part))
    return `'${template}' names no column: every row would get one id`;
  return { parts, rule };
}

export function templateColumns({ parts }: Pick<ExternalIdTemplate, 'parts'>): string[] {
  return parts.flatMap((part) => ('column' in part ? [part.column] : []));
}

/** Returns the external id of a row in the form that the service compares. Throws like `spellExternalId`. */
export function renderExternalId(template: ExternalIdTemplate, row: Row): string {
  return keyOf(template.rule, spellExternalId(template, row));
}

/** Returns the external id of a row. Throws a plain Error if a column of it is empty or holds a list. */
export function spellExternalId({ parts }: ExternalIdTemplate, row: Row): string {
  return parts
    .map((part) => {
      if ('literal' in part) return part.literal;
      const [text, more] = toValues(row[part.column]);
      if (text === undefined || text === '')
        throw new Error(`column ${part.column} of the external id is empty`);
      if (more !== undefined)
        throw new Error(`column ${part.column} of the external id holds several values`);
      return text;
    })
    .join('');
}

/** Returns true if the template may render this external id for some row. */
export function mayGive(template: ExternalIdTemplate, externalId: string): boolean {
  const { prefix, suffix } = literalEnds(template);
  return (
    externalId.length > prefix.length + suffix.length &&
    externalId.startsWith(prefix) &&
    externalId.endsWith(suffix)
  );
}

/** Returns true if two templates may render the same external id. May be a false positive. */
export function mayCollide(a: ExternalIdTemplate, b: ExternalIdTemplate): boolean {
  const [one, other] = [literalEnds(a), literalEnds(b)];
  const isPrefix = one.prefix.startsWith(other.prefix) || other.prefix.startsWith(one.prefix);
  const isSuffix = one.suffix.endsWith(other.suffix) || other.suffix.endsWith(one.suffix);
  return isPrefix && isSuffix;
}

/**
 * Returns the literal texts that begin and end every external id of a template. If the rule normalizes or truncates, a
 * column's value may change both texts.
 */
function literalEnds({ parts, rule }: ExternalIdTemplate): { prefix: string; suffix: string } {
  if (rule?.normalize || rule?.maxLength !== undefined) return { prefix: '', suffix: '' };
  const textOf = (part: TemplatePart | undefined) =>
    part && 'literal' in part ? keyOf(rule, part.literal) : '';
  return { prefix: textOf(parts[0]), suffix: textOf(parts.at(-1)) };
}

/** Returns true if the key alone determines the external id, and different keys always have different ids. */
export function isIdentifiedByKey(key: readonly string[], template: ExternalIdTemplate): boolean {
  const columns = templateColumns(template);
  return !template.rule && key.length === 1 && columns.length === 1 && columns[0] === key[0];
}
