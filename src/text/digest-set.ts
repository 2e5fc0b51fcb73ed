// A set for very many texts, such as the ids of all objects of a type.

/**
 * Keeps a digest of 64 bits for each text: 16 to 32 bytes a text, less than a `Set` of strings. Two of a
 * million texts have the same digest in one of 37 million sets. The digests of each set differ.
 */
export class DigestSet {
  readonly #seeds = crypto.getRandomValues(new Uint32Array(2));
  /** Pairs of 32 bits. An unused pair is 0, 0. */
  #pairs = new Uint32Array(2048);
  #size = 0;

  /** Adds the text. Returns false if it was there already. */
  add(text: string): boolean {
    if (this.#size >= this.#pairs.length / 4) this.#grow();
    const [first, second] = this.#digest(text);
    const at = find(this.#pairs, first, second);
    if (this.#pairs[at] !== 0) return false;
    this.#pairs.set([first, second], at);
    this.#size++;
    return true;
  }

  has(text: string): boolean {
    return this.#pairs[find(this.#pairs, ...this.#digest(text))] !== 0;
  }

  #digest(text: string): [number, number] {
    let [first = 0, second = 0] = this.#seeds;
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at);
      first = Math.imul(first ^ code, 0x9e3779b1);
      first ^= first >>> 15;
      second = Math.imul(second ^ code, 0x85ebca77);
      second ^= second >>> 13;
    }
    // 0 is the first half of an unused pair.
    return [first >>> 0 || 1, second >>> 0];
  }

  #grow(): void {
    const former = this.#pairs;
    const pairs = new Uint32Array(former.length * 2);
    for (let at = 0; at < former.length; at += 2) {
      const [first = 0, second = 0] = former.subarray(at, at + 2);
      if (first !== 0) pairs.set([first, second], find(pairs, first, second));
    }
    this.#pairs = pairs;
  }
}

/** Returns the index of the pair, or of the unused pair where it belongs. At least half of the pairs are unused. */
function find(pairs: Uint32Array, first: number, second: number): number {
  const mask = pairs.length - 2;
  let at = (second * 2) & mask;
  while (pairs[at] !== 0 && !(pairs[at] === first && pairs[at + 1] === second)) at = (at + 2) & mask;
  return at;
}
