// Names as people and databases write them: `wheelchairAccess`, `course_codes`, `Number of places`. They are compared by
// their words, in the singular, so that near misses are seen and the name of the table itself counts little.
import { distance } from 'fastest-levenshtein';

/** Words that say little. */
const FILLERS = new Set(
  'of the a an and in on at is has by for to with from number num nr no fk pk ref'.split(' '),
);
const FILLER_WEIGHT = 0.25;
/** From this length on, a word that begins another one counts as nearly the same: access, accessible. */
const LEAST_STEM = 4;
const STEM_LIKENESS = 0.85;
const LEAST_LIKENESS = 0.8;

/** Words for what identifies a record: nearly the same. */
const IDENTIFIERS = new Set(['id', 'code', 'key', 'number', 'nr', 'no', 'identifier']);
const IDENTIFIER_LIKENESS = 0.7;

/** The words of a name, in lower case and in the singular. */
export function tokensOf(name: string): string[] {
  return name
    .normalize('NFKC')
    .replaceAll(/([\p{Ll}\d])(\p{Lu})/gu, '$1 $2')
    .replaceAll(/(\p{Lu})(\p{Lu}\p{Ll})/gu, '$1 $2')
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word !== '')
    .map((word) => singular(word.toLowerCase()));
}

function singular(word: string): string {
  if (word.length > 4 && word.endsWith('ies')) return `${word.slice(0, -3)}y`;
  if (/(ss|sh|ch|x|z)es$/.test(word)) return word.slice(0, -2);
  return word.length > 3 && /[^sui]s$/.test(word) ? word.slice(0, -1) : word;
}

/** How alike two words are, from 0 to 1; 0 for less than a typo. */
function likeness(a: string, b: string): number {
  if (a === b) return 1;
  if (IDENTIFIERS.has(a) && IDENTIFIERS.has(b)) return IDENTIFIER_LIKENESS;
  const [short, long] = a.length < b.length ? [a, b] : [b, a];
  if (short.length >= LEAST_STEM && long.startsWith(short)) return STEM_LIKENESS;
  if (short.length < LEAST_STEM) return 0;
  const likeness = 1 - distance(a, b) / long.length;
  return likeness >= LEAST_LIKENESS ? likeness : 0;
}

/** How alike two names are, from 0 to 1. Words of the context, such as the table's own name, say little. */
export function compareNames(
  one: readonly string[],
  other: readonly string[],
  context: ReadonlySet<string> = new Set(),
): number {
  const weightOf = (word: string) => (FILLERS.has(word) || context.has(word) ? FILLER_WEIGHT : 1);
  const sum = (words: readonly string[], of: (word: string) => number) =>
    words.reduce((total, word) => total + weightOf(word) * of(word), 0);
  const met = (words: readonly string[], others: readonly string[]) =>
    sum(words, (word) => others.reduce((most, candidate) => Math.max(most, likeness(word, candidate)), 0));
  const all = sum(one, () => 1) + sum(other, () => 1);
  return all === 0 ? 0 : (met(one, other) + met(other, one)) / all;
}
