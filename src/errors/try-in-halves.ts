/**
 * Tries items together until each item at fault stands alone. `attempt` returns the items that are to be tried again; they are
 * divided into halves, and the first half is settled before the second one is tried. A single item is not tried again. One
 * faulty item of n costs about 2·log2(n) attempts. An error that `attempt` throws concerns all items, and ends it.
 */
export async function tryInHalves<T>(
  items: readonly T[],
  attempt: (part: readonly T[]) => Promise<readonly T[]>,
): Promise<void> {
  const again = items.length === 0 ? [] : await attempt(items);
  if (again.length < 2) return;
  const middle = Math.ceil(again.length / 2);
  await tryInHalves(again.slice(0, middle), attempt);
  await tryInHalves(again.slice(middle), attempt);
}
