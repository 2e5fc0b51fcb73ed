// Guarantee 6
// Finds the objects with upcoming reservations from as few pages as possible, in a number of requests that does not grow
// with the number of reservations.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findUpcoming } from '../../src/destination/find-reservations.js';

interface Booking {
  object: string;
  begin: number;
  end: number;
  /** True if the reservation does not name the object by which it was found. */
  isNameless?: boolean;
}

const NOW = 1_800_000_000;
const HOUR = 60 * 60;
const YEAR = 365 * 24 * HOUR;
const CALL = { method: 'POST', path: '/v1/reservations/find' } as const;

/** The objects of a reservation that does not name the one it was found by. */
const HIDDEN = [undefined, null, [], [{ objectId: undefined }], [{ objectId: 'other' }, {}]];

interface Paging {
  pageSize: number;
  maxPage?: number;
  tellsTotal?: boolean;
}

/** Plays a service that answers in ascending id. The id of a booking is its index. */
function playService(
  bookings: readonly Booking[],
  { pageSize, maxPage = pageSize, tellsTotal = true }: Paging,
) {
  let requests = 0;
  const find = (extIds: readonly string[]) =>
    findUpcoming(
      async (some, { from, to }) => {
        requests++;
        const wanted = new Set(some);
        const found = bookings.flatMap(({ object, begin, end, isNameless }, id) => {
          const objects = isNameless ? HIDDEN[id % HIDDEN.length] : [{ objectId: object }];
          return wanted.has(object) && begin < to && end > from
            ? [{ id: String(id), begin, end, objects }]
            : [];
        });
        const totalPages = Math.ceil(found.length / maxPage);
        const totalResults = tellsTotal ? found.length : undefined;
        return { results: found.slice(0, maxPage), totalPages, totalResults };
      },
      extIds,
      { now: NOW, pageSize, call: CALL },
    );
  return { find, requests: () => requests };
}

const names = (count: number) => Array.from({ length: count }, (_, at) => `o${at}`);
/** Returns `count` bookings of an hour, spread evenly between two times. */
const spread = (object: string, count: number, from: number, to: number): Booking[] =>
  Array.from({ length: count }, (_, at) => {
    const begin = Math.floor(from + ((to - from) * at) / count);
    return { object, begin, end: begin + HOUR };
  });

describe('the number of requests for upcoming reservations', () => {
  const FREE = ['free_1', 'free_2'];
  it.each<{ what: string; count: number; lists: (object: string) => Booking[] }>([
    { what: 'none', count: 1, lists: () => [] },
    { what: '1000 each, over the year', count: 4, lists: (object) => spread(object, 1000, NOW, NOW + YEAR) },
    {
      what: '1000 each, in a term to come',
      count: 4,
      lists: (object) => spread(object, 1000, NOW + YEAR / 4, NOW + YEAR / 2),
    },
    {
      what: '1000 each, in times of their own',
      count: 48,
      lists: (object) => {
        const from = NOW + (Number(object.slice(1)) * YEAR) / 100;
        return spread(object, 1000, from, from + YEAR / 3);
      },
    },
    { what: '100 each, over the year', count: 4, lists: (object) => spread(object, 100, NOW, NOW + YEAR) },
    {
      what: '100 000 of one object',
      count: 2,
      lists: (object) => (object === 'o0' ? spread(object, 100_000, NOW, NOW + YEAR) : []),
    },
  ])('is $count for 100 objects with these reservations: $what', async ({ count, lists }) => {
    const { find, requests } = playService(names(100).flatMap(lists), { pageSize: 1000 });
    const upcoming = await find([...names(100), ...FREE]);
    expect([...upcoming.keys()].toSorted()).toEqual(
      names(100)
        .filter((name) => lists(name).length > 0)
        .toSorted(),
    );
    expect(requests()).toBe(count);
  });

  it('is at most ten for 1000 objects with 100 reservations each at random times', async () => {
    let seed = 7;
    const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
    const bookings = names(1000).flatMap((object) =>
      Array.from({ length: 100 }, () => Math.floor(NOW + random() * YEAR)).map((begin) => ({
        object,
        begin,
        end: begin + HOUR,
      })),
    );
    const { find, requests } = playService(bookings, { pageSize: 1000 });
    expect((await find([...names(1000), ...FREE])).size).toBe(1000);
    expect(requests()).toBeLessThanOrEqual(10);
  });
});

it.each([
  { what: 'each names its object', requestsOfEach: 2, names: [false] },
  { what: 'some do not name their object', requestsOfEach: 4, names: [false, true] },
  { what: 'none names its object', requestsOfEach: 4, names: [true] },
])(
  'an object is free if and only if it has no upcoming reservation: $what',
  async ({ requestsOfEach, names: isNameless }) => {
    const booking = fc.record({
      object: fc.constantFrom(...names(8)),
      begin: fc.oneof(
        fc.integer({ min: NOW - 5, max: NOW + 20 }),
        fc.integer({ min: NOW, max: NOW + 9 * YEAR }),
      ),
      seconds: fc.integer({ min: 0, max: 30 }),
      isNameless: fc.constantFrom(...isNameless),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(booking, { maxLength: 60 }),
        fc.record({
          pageSize: fc.integer({ min: 1, max: 6 }),
          tellsTotal: fc.boolean(),
          less: fc.boolean(),
        }),
        async (drawn, { pageSize, tellsTotal, less }) => {
          const bookings = drawn.map(({ seconds, ...one }) => ({ ...one, end: one.begin + seconds }));
          const maxPage = less ? Math.ceil(pageSize / 2) : pageSize;
          const { find, requests } = playService(bookings, { pageSize, maxPage, tellsTotal });
          const upcoming = await find(names(8));
          const booked = bookings.filter(({ end }) => end > NOW).map(({ object }) => object);
          expect([...upcoming.keys()].toSorted()).toEqual([...new Set(booked)].toSorted());
          expect(requests()).toBeLessThanOrEqual(requestsOfEach * 8 + 1);
        },
      ),
      { numRuns: 500 },
    );
  },
);

it.each([1, 9])('reservations of other objects are an invalid answer, on %d pages', async (totalPages) => {
  const others = [{ id: '1', begin: NOW, end: NOW + HOUR, objects: [{ objectId: 'other' }] }];
  const ask = async () => ({ results: others, totalPages, totalResults: totalPages });
  const finding = findUpcoming(ask, ['o1'], { now: NOW, pageSize: 1, call: CALL });
  await expect(finding).rejects.toMatchObject({ code: 'answer_invalid' });
});
