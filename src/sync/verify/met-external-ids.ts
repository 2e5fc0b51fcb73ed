// Which objects a reading has met, 17 MB for a million: open addressing over 64-bit hashes of their external ids. A Set of
// the texts takes 56 MB, as measured. That two of a million external ids have one hash has a chance of one in
// 30 million; the second would not be asked for then.
const FIRST_CAPACITY = 1 << 12;
const FULL = 0.7;

export function createMetExternalIds() {
  let capacity = FIRST_CAPACITY;
  /** Two halves of a hash in each place; 0 and 0: the place is free. */
  let places = new Uint32Array(2 * capacity);
  let size = 0;

  /** Where the hash is, or the free place where it would be. */
  function placeOf(high: number, low: number): number {
    let place = low & (capacity - 1);
    while (
      (places[2 * place] !== 0 || places[2 * place + 1] !== 0) &&
      (places[2 * place] !== high || places[2 * place + 1] !== low)
    )
      place = (place + 1) & (capacity - 1);
    return place;
  }

  function put(high: number, low: number): boolean {
    const place = placeOf(high, low);
    const isNew = places[2 * place] === 0 && places[2 * place + 1] === 0;
    places[2 * place] = high;
    places[2 * place + 1] = low;
    return isNew;
  }

  function grow(): void {
    const before = places;
    capacity *= 2;
    places = new Uint32Array(2 * capacity);
    for (let at = 0; at < before.length; at += 2) {
      const [high = 0, low = 0] = [before[at], before[at + 1]];
      if (high !== 0 || low !== 0) put(high, low);
    }
  }

  return {
    size: () => size,
    add(externalId: string): void {
      if (size >= capacity * FULL) grow();
      const [high, low] = hash(externalId);
      if (put(high, low)) size++;
    },
    has(externalId: string): boolean {
      const [high, low] = hash(externalId);
      const place = placeOf(high, low);
      return places[2 * place] === high && places[2 * place + 1] === low;
    },
  };
}

export type MetExternalIds = ReturnType<typeof createMetExternalIds>;

/** 64 bits in two halves, never 0 and 0: two multiplicative hashes, mixed with each other at the end. */
function hash(text: string): [number, number] {
  let high = 0xdeadbeef;
  let low = 0x41c6ce57;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    high = Math.imul(high ^ unit, 0x9e3779b1);
    low = Math.imul(low ^ unit, 0x5f356495);
  }
  high = Math.imul(high ^ (high >>> 16), 0x85ebca6b) ^ Math.imul(low ^ (low >>> 13), 0xc2b2ae35);
  low = Math.imul(low ^ (low >>> 16), 0x85ebca6b) ^ Math.imul(high ^ (high >>> 13), 0xc2b2ae35);
  return [high >>> 0, low >>> 0 || 1];
}
