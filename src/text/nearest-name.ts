// The name that was meant by one that does not exist: only a typo is corrected, and a guess would mislead.
import { distance } from 'fastest-levenshtein';

const MOST_APART = 3;
/** Names that are listed where none is near. */
const MOST_LISTED = 12;

/**
 * The known name that differs in so few letters (`mostApart`, and half of them at most) that it was meant. A name without its schema or
 * region also means one that has it: `rooms` for `campus.rooms`.
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

/** `did you mean rooms?`, or which names there are. Undefined: no name is known. */
export function suggestName(name: string, known: readonly string[]): string | undefined {
  if (known.length === 0) return undefined;
  const near = nearestName(name, known);
  return near === undefined ? `there are: ${listNames(known)}` : `did you mean ${near}?`;
}

/** The names, or the first of many. */
export function listNames(known: readonly string[]): string {
  const more = known.length - MOST_LISTED;
  return known.slice(0, MOST_LISTED).join(', ') + (more > 0 ? ` and ${more} more` : '');
}
