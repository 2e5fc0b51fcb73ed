// Finds the known name that a misspelled name meant. Only a typo is corrected, because a guess would mislead.
import { distance } from 'fastest-levenshtein';

const MOST_APART = 3;
/** Maximum number of names that are listed if no name is near. */
const MOST_LISTED = 12;

/**
 * Returns the known name that differs in at most `mostApart` letters, and in at most half of the letters. A name
 * without its schema or region also means a name that has one: `rooms` for `campus.rooms`.
 */
export function nearestName(
  name: string,
  known: readonly string[],
  mostApart = MOST_APART,
): string | undefined {
  const most = Math.min(mostApart, name.length / 2);
  let nearest: { name: string; apart: number } | undefined;
  for (const candidate of known) {
    const apart = lettersApart(name, candidate);
    if (apart <= most && apart < (nearest?.apart ?? Infinity)) nearest = { name: candidate, apart };
  }
  return nearest?.name;
}

function lettersApart(name: string, known: string): number {
  const [asked, whole] = [name.toLowerCase(), known.toLowerCase()];
  const apart = distance(asked, whole);
  if (/[./]/.test(asked)) return apart;
  return Math.min(apart, distance(asked, whole.split(/[./]/).at(-1) ?? whole));
}

/** Returns `did you mean rooms?`, or a list of the known names. Undefined if no name is known. */
export function suggestName(name: string, known: readonly string[]): string | undefined {
  if (known.length === 0) return undefined;
  const near = nearestName(name, known);
  return near === undefined ? `there are: ${listNames(known)}` : `did you mean ${near}?`;
}

/** Returns up to 12 names as one text, and the number of the remaining names. */
export function listNames(known: readonly string[]): string {
  const more = known.length - MOST_LISTED;
  return known.slice(0, MOST_LISTED).join(', ') + (more > 0 ? ` and ${more} more` : '');
}
