// Which objects a reading has met.
import { describe, expect, it } from 'vitest';
import { createMetExternalIds } from '../../src/sync/verify/met-external-ids.js';

describe('objects that were met', () => {
  it('each is known again and counted once, and no other is', () => {
    const met = createMetExternalIds();
    const ids = Array.from({ length: 20_000 }, (_, at) => `room_${at}`);
    for (const id of [...ids, ...ids]) met.add(id);
    expect(met.size()).toBe(ids.length);
    expect(ids.filter((id) => !met.has(id))).toEqual([]);
    expect(ids.filter((id) => met.has(`${id}x`) || met.has(id.toUpperCase()))).toEqual([]);
  });

  it.each(['', 'Å', 'A\u030A', '教室', '😀', 'room_1'.repeat(200)])('%j: any text', (id) => {
    const met = createMetExternalIds();
    expect(met.has(id)).toBe(false);
    met.add(id);
    expect(met.has(id)).toBe(true);
    expect(met.size()).toBe(1);
  });
});
