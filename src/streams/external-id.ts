// External ids are made from a template of literals and columns. It is a template, not a function, so that SQL can find two
// rows with the same id before anything is sent.
import type { Row } from './config-schema.js';
import { keyOf, type ExternalIdRule } from './external-id-rule.js';
import { toValues } from './field-values.js';

export type TemplatePart = { literal: string } | { column: string };
export interface ExternalIdTemplate {
  parts: readonly TemplatePart[];
  /** How the service compares the ids; undefined: character by character. */
  rule: ExternalIdRule | undefined;
}

/** Parses `room_{room_code}`; returns the fault as text when it cannot. */
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

/** The external id of a row, in the form that the service compares. Throws as `spellExternalId`. */
export function renderExternalId(template: ExternalIdTemplate, row: Row): string {
  return keyOf(template.rule, spellExternalId(template, row));
}

/** The external id of a row as it is written. Throws a plain Error when a column it needs is empty. */
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

/** Whether the template may give this external id for some row. */
export function mayGive(template: ExternalIdTemplate, externalId: string): boolean {
  const { prefix, suffix } = literalEnds(template);
  return (
    externalId.length > prefix.length + suffix.length &&
    externalId.startsWith(prefix) &&
    externalId.endsWith(suffix)
  );
}

/** Whether two templates may give the same external id. May say so where they cannot, never the other way round. */
export function mayCollide(a: ExternalIdTemplate, b: ExternalIdTemplate): boolean {
  const [one, other] = [literalEnds(a), literalEnds(b)];
  const isPrefix = one.prefix.startsWith(other.prefix) || other.prefix.startsWith(one.prefix);
  const isSuffix = one.suffix.endsWith(other.suffix) || other.suffix.endsWith(one.suffix);
  return isPrefix && isSuffix;
}

/** The texts every external id of the template begins and ends with. A rule may compose, or cut, what a column adds to them. */
function literalEnds({ parts, rule }: ExternalIdTemplate): { prefix: string; suffix: string } {
  if (rule?.normalize || rule?.maxLength !== undefined) return { prefix: '', suffix: '' };
  const textOf = (part: TemplatePart | undefined) =>
    part && 'literal' in part ? keyOf(rule, part.literal) : '';
  return { prefix: textOf(parts[0]), suffix: textOf(parts.at(-1)) };
}

/** Whether different keys always give different external ids, and a key always the same one. */
export function isIdentifiedByKey(key: readonly string[], template: ExternalIdTemplate): boolean {
  const columns = templateColumns(template);
  return !template.rule && key.length === 1 && columns.length === 1 && columns[0] === key[0];
}
