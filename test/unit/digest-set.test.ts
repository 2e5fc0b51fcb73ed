import { describe, expect, test } from 'vitest';
import { DigestSet } from '../../src/text/digest-set.js';

describe('a set of digests', () => {
  const numbers = Array.from({ length: 20_000 }, (_, at) => `${at}`);
  const others = ['', '\u0000', 'Å', '𝄞', 'x'.repeat(255)];
  const texts = [...numbers, ...numbers.map((text) => `room_${text}`), ...others];

  test('tells texts that were added from others, at any size', () => {
    const set = new DigestSet();
    const answers = texts.map((text) => [set.has(text), set.add(text), set.add(text)].join());
    expect(new Set(answers)).toEqual(new Set(['false,true,false']));
    expect(texts.filter((text) => !set.has(text))).toEqual([]);
    expect(numbers.filter((text) => set.has(`${text} `))).toEqual([]);
  });

  test('spreads texts that differ in one character', () => {
    // A digest of 64 bits in which half of the bits were lost would meet itself among so many texts.
    const set = new DigestSet();
    let repeated = 0;
    for (let at = 0; at < 300_000; at++) if (!set.add(at.toString(36))) repeated++;
    expect(repeated).toBe(0);
  });
});
