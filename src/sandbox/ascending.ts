// A list in ascending id order that is kept in order by its writes, so that a page of it is read without copying or filtering
// a million objects first.
export interface Numbered {
  id: number;
}

export function createAscending<T extends Numbered>() {
  const list: T[] = [];

  /** Where the id is, or would be. */
  function placeOf(id: number): number {
    let [from, to] = [0, list.length];
    if ((list.at(-1)?.id ?? -1) < id) return to;
    while (from < to) {
      const middle = (from + to) >>> 1;
      if ((list[middle]?.id ?? id) < id) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  return {
    /** The list itself: it changes with the next write. */
    list: list as readonly T[],
    /** Adds it, or replaces the one that has its id. */
    put(one: T): void {
      const place = placeOf(one.id);
      if (place === list.length) list.push(one);
      else list.splice(place, list[place]?.id === one.id ? 1 : 0, one);
    },
    remove(id: number): void {
      const place = placeOf(id);
      if (list[place]?.id === id) list.splice(place, 1);
    },
  };
}

export type Ascending<T extends Numbered> = ReturnType<typeof createAscending<T>>;
