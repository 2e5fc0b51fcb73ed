// How the service compares external ids. Ids that it takes for one are one here: the form that it compares, the key, is what
// the state holds, what rows are found by and what answers are matched by. Only a write carries the spelling of the row.
import { quoteLiteral } from '../text/sql-text.js';

/** The steps of the comparison, in this order. Without any of them, ids are equal when they are the same text. */
export interface ExternalIdRule {
  case?: 'sensitive' | 'insensitive' | undefined;
  normalize?: 'NFC' | undefined;
  /** Blanks, tabs and line breaks at both ends do not count. */
  trim?: boolean | undefined;
  /** The number of characters, from the beginning, that the service compares. */
  maxLength?: number | undefined;
}

const BLANKS = ' \t\n\v\f\r';
const trim = (text: string) => text.replace(/^[ \t\n\v\f\r]+|[ \t\n\v\f\r]+$/g, '');

/** The form of an external id that the service compares. `keySql` makes the same text of the same id. */
export function keyOf(rule: ExternalIdRule | undefined, extId: string): string {
  if (!rule) return extId;
  let key = rule.case === 'insensitive' ? extId.toLowerCase() : extId;
  if (rule.normalize) key = key.normalize(rule.normalize);
  if (rule.trim) key = trim(key);
  if (rule.maxLength === undefined || key.length <= rule.maxLength) return key;
  const cut = Array.from(key).slice(0, rule.maxLength).join('');
  return rule.trim ? trim(cut) : cut;
}

/** SQL that computes `keyOf` of the SQL expression `extId`. JavaScript and SQL both lower the case as ICU's root locale does. */
export function keySql(rule: ExternalIdRule | undefined, extId: string): string {
  if (!rule) return extId;
  let key = rule.case === 'insensitive' ? `lower((${extId}) COLLATE "und-x-icu")` : extId;
  const trimmed = (text: string) => (rule.trim ? `btrim(${text}, ${quoteLiteral(BLANKS)})` : text);
  if (rule.normalize) key = `normalize(${key}, ${rule.normalize})`;
  key = trimmed(key);
  return rule.maxLength === undefined ? key : trimmed(`left(${key}, ${rule.maxLength})`);
}

/** The rule that a configuration declares. Undefined: external ids are compared character by character. */
export function toRule(declared: ExternalIdRule | undefined): ExternalIdRule | undefined {
  const { case: letters, normalize, trim: trims, maxLength } = declared ?? {};
  return letters === 'insensitive' || normalize || trims || maxLength !== undefined ? declared : undefined;
}

/**
 * The shortest external id that is taken for a longer one which the service has cut, in characters. Below it one id is the beginning
 * of another by chance, as `room_1` of `room_10`.
 */
const LEAST_CUT = 12;
const LOOSEST: ExternalIdRule = { case: 'insensitive', normalize: 'NFC', trim: true };

/** Tells whether a service may store the sent id as the other one: in another case or form, without blanks, or cut. */
export const isSimilarId = (stored: string, sent: string) => findSimilarIds([stored], [sent]).length > 0;

/** Returns the sent ids that may be one of the stored ids: see `isSimilarId`. */
export function findSimilarIds(stored: Iterable<string>, sent: readonly string[]): string[] {
  const known = new Set([...stored].map((extId) => keyOf(LOOSEST, extId)));
  return sent.filter((extId) => {
    const key = keyOf(LOOSEST, extId);
    for (let length = key.length; length >= Math.min(LEAST_CUT, key.length); length--)
      if (known.has(key.slice(0, length))) return true;
    return false;
  });
}

/** A rule as it is written in a configuration. */
export const describeRule = (rule: ExternalIdRule): string =>
  `{ ${Object.entries(rule)
    .map(([step, as]) => `${step}: ${typeof as === 'string' ? `'${as}'` : as}`)
    .join(', ')} }`;

/** The shortest rule by which the two ids are one; undefined: no rule does. */
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
