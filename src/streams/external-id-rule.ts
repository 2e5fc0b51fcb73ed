// How the service compares external ids. Ids that the service treats as equal have the same key. The state, queries and
// matching use keys; only a write sends the spelling of the row.
import { quoteLiteral } from '../text/sql-text.js';

/** Steps that the service applies to external ids, in this order, before it compares them. */
export interface ExternalIdRule {
  case?: 'sensitive' | 'insensitive' | undefined;
  normalize?: 'NFC' | undefined;
  /** If true, blanks, tabs and line breaks at both ends are ignored. */
  trim?: boolean | undefined;
  /** Number of characters, from the beginning, that the service compares. */
  maxLength?: number | undefined;
}

const BLANKS = ' \t\n\v\f\r';
const trim = (text: string) => text.replace(/^[ \t\n\v\f\r]+|[ \t\n\v\f\r]+$/g, '');

/** Returns the form of an external id that the service compares. `keySql` computes the same text in PostgreSQL. */
export function keyOf(rule: ExternalIdRule | undefined, extId: string): string {
  if (!rule) return extId;
  let key = rule.case === 'insensitive' ? extId.toLowerCase() : extId;
  if (rule.normalize) key = key.normalize(rule.normalize);
  if (rule.trim) key = trim(key);
  if (rule.maxLength === undefined || key.length <= rule.maxLength) return key;
  const cut = Array.from(key).slice(0, rule.maxLength).join('');
  return rule.trim ? trim(cut) : cut;
}

/** Returns SQL that computes `keyOf` of the SQL expression `extId`. Both use ICU's root locale for lower case. */
export function keySql(rule: ExternalIdRule | undefined, extId: string): string {
  if (!rule) return extId;
  let key = rule.case === 'insensitive' ? `lower((${extId}) COLLATE "und-x-icu")` : extId;
  const trimmed = (text: string) => (rule.trim ? `btrim(${text}, ${quoteLiteral(BLANKS)})` : text);
  if (rule.normalize) key = `normalize(${key}, ${rule.normalize})`;
  key = trimmed(key);
  return rule.maxLength === undefined ? key : trimmed(`left(${key}, ${rule.maxLength})`);
}

/** Returns the declared rule, or undefined if the declaration has no effect. */
export function toRule(declared: ExternalIdRule | undefined): ExternalIdRule | undefined {
  const { case: letters, normalize, trim: trims, maxLength } = declared ?? {};
  return letters === 'insensitive' || normalize || trims || maxLength !== undefined ? declared : undefined;
}

/**
 * Minimum characters of an id that may be a truncated form of a longer id. Shorter ids may be prefixes by chance, for
 * example `room_1` of `room_10`.
 */
const LEAST_CUT = 12;
const LOOSEST: ExternalIdRule = { case: 'insensitive', normalize: 'NFC', trim: true };

/** Returns true if the service may have stored `sent` as `stored`: case changed, normalized, trimmed or cut. */
export const isSimilarId = (stored: string, sent: string) => findSimilarIds([stored], [sent]).length > 0;

/** Returns the sent ids that the service may have stored as one of `stored`: see `isSimilarId`. */
export function findSimilarIds(stored: Iterable<string>, sent: readonly string[]): string[] {
  const known = new Set([...stored].map((extId) => keyOf(LOOSEST, extId)));
  return sent.filter((extId) => {
    const key = keyOf(LOOSEST, extId);
    for (let length = key.length; length >= Math.min(LEAST_CUT, key.length); length--)
      if (known.has(key.slice(0, length))) return true;
    return false;
  });
}

/** Returns the rule in the syntax of the configuration, for example `{ case: 'insensitive' }`. */
export const describeRule = (rule: ExternalIdRule): string =>
  `{ ${Object.entries(rule)
    .map(([step, as]) => `${step}: ${typeof as === 'string' ? `'${as}'` : as}`)
    .join(', ')} }`;

/** Returns the rule with the fewest steps that makes the two ids equal, or undefined if no rule does. */
export function findRule(stored: string, sent: string): ExternalIdRule | undefined {
  const steps: readonly ExternalIdRule[] = [
    { case: 'insensitive' },
    { trim: true },
    { normalize: 'NFC' },
    { maxLength: Array.from(stored).length },
  ];
  const rules = steps.reduce<ExternalIdRule[]>(
    (found, step) => [...found, step, ...found.map((rule) => ({ ...rule, ...step }))],
    [],
  );
  return rules
    .toSorted((a, b) => Object.keys(a).length - Object.keys(b).length)
    .find((rule) => keyOf(rule, stored) === keyOf(rule, sent));
}
