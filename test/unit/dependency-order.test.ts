// Guarantee 7
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Fault } from '../../src/streams/config-schema.js';
import { levelStreams } from '../../src/streams/stream.js';

function level(references: Record<string, readonly string[]>) {
  const faults: Fault[] = [];
  const levels = levelStreams(new Map(Object.entries(references)), faults);
  return { levels: Object.fromEntries(levels), messages: faults.map(({ message }) => message), faults };
}

/** References only to streams of a lower number, declared in any order. */
const anyOrder = fc.integer({ min: 1, max: 10 }).chain((count) => {
  const references = fc.tuple(
    ...Array.from({ length: count }, (_, at) =>
      at === 0 ? fc.constant<number[]>([]) : fc.array(fc.nat(at - 1), { maxLength: 4 }),
    ),
  );
  return references.chain((parents) => {
    const entries = parents.map((of, at) => [`s${at}`, of.map((parent) => `s${parent}`)] as const);
    return fc.shuffledSubarray(entries, { minLength: count });
  });
});
const anyReferences = fc.dictionary(
  fc.constantFrom('a', 'b', 'c', 'd', 'e'),
  fc.array(fc.constantFrom('a', 'b', 'c', 'd', 'e'), { maxLength: 3 }),
);

/** Returns true if no order exists in which each stream is sent after the streams that it refers to. */
function hasCircle(references: Record<string, readonly string[]>): boolean {
  const left = new Set(Object.keys(references));
  while (left.size > 0) {
    const free = [...left].find(
      (stream) => !references[stream]?.some((parent) => parent !== stream && left.has(parent)),
    );
    if (free === undefined) return true;
    left.delete(free);
  }
  return false;
}

describe('the levels of streams', () => {
  it('ignore a reference to the own stream', () => {
    const { levels, messages } = level({ staff: ['staff', 'departments'], departments: ['departments'] });
    expect({ levels, messages }).toEqual({ levels: { staff: 1, departments: 0 }, messages: [] });
  });

  it('put parents before children, on the lowest possible level', () => {
    fc.assert(
      fc.property(anyOrder, (entries) => {
        const references = Object.fromEntries(entries);
        const { levels, messages } = level(references);
        expect(messages).toEqual([]);
        for (const [stream, parents] of entries) {
          const highest = Math.max(-1, ...parents.map((parent) => levels[parent] ?? Number.NaN));
          expect(levels[stream]).toBe(highest + 1);
        }
      }),
    );
  });

  it('ignore a reference to a stream that does not exist', () => {
    expect(level({ rooms: ['nowhere'] })).toMatchObject({ levels: { rooms: 0 }, messages: [] });
  });
});

describe('streams that refer to each other in a circle', () => {
  it('are refused with the names in the circle, and what to do', () => {
    const { faults } = level({
      buildings: [],
      rooms: ['courses', 'buildings'],
      courses: ['staff'],
      staff: ['rooms'],
    });
    expect(faults).toEqual([
      {
        path: 'streams.rooms.references',
        message:
          'the streams refer to each other in a circle: rooms → courses → staff → rooms; leave one of these references out',
      },
    ]);
  });

  it('are named once for each circle', () => {
    const { messages } = level({ a: ['b', 'b'], b: ['a'], c: ['e', 'c'], d: ['a', 'c'], e: ['c'] });
    expect(messages).toEqual([expect.stringContaining('a → b → a'), expect.stringContaining('c → e → c')]);
  });

  it('are found if and only if there is a circle', () => {
    fc.assert(
      fc.property(anyReferences, (references) => {
        expect(level(references).messages.length > 0).toBe(hasCircle(references));
      }),
      { numRuns: 500 },
    );
  });
});
