// The verdicts of docs/reconcile.md row by row, and properties that hold for every booking.
import fc from 'fast-check';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { Reservation } from '../../src/destination/destination.js';
import { VERDICTS, type Verdict } from '../../src/state/schema.js';
import type { CompareRules } from '../../src/streams/bookings.js';
import {
  agrees,
  compareBooking,
  findDifferences,
  type ResolvedBooking,
  type ReservationState,
  type Sides,
} from '../../src/sync/reconcile/compare-booking.js';

const RULES: CompareRules = {
  types: new Set(['room', 'course']),
  fields: ['res.title'],
  status: new Set(['B_COMPLETE', 'C_CONFIRMED']),
};
const USUAL = ['B_COMPLETE', 'C_CONFIRMED'];
const HOUR = 3_600_000;

const here = (changes: Partial<ResolvedBooking> = {}): ResolvedBooking => ({
  begin: 9 * HOUR,
  end: 10 * HOUR,
  isCancelled: false,
  objects: ['room_1', 'course_1'],
  unknownObjects: [],
  fields: [{ fieldId: 'res.title', values: ['Algebra'] }],
  ...changes,
});
const there = (changes: Partial<Reservation> = {}): Reservation => ({
  id: '1',
  extId: 'res_1',
  begin: 9 * HOUR,
  end: 10 * HOUR,
  status: USUAL,
  objects: [
    { typeId: 'course', objectId: 'course_1' },
    { typeId: 'room', objectId: 'room_1' },
  ],
  fields: [{ fieldId: 'res.title', values: ['Algebra'] }],
  ...changes,
});
const standing = (changes: Partial<Reservation> = {}): ReservationState => ({
  is: 'standing',
  reservation: there(changes),
});
const judge = (sides: Partial<Sides>) =>
  compareBooking(
    { here: here(), there: standing(), before: undefined, isCancellationGone: false, ...sides },
    RULES,
  )?.verdict;

describe('the verdict on a booking', () => {
  const cancelledHere = here({ isCancelled: true });
  const moved = standing({ begin: 0 });
  const rows: [name: string, sides: Partial<Sides>, verdict: Verdict | undefined][] = [
    ['stands | stands, the same', {}, 'agrees'],
    ['stands | stands, different', { there: moved }, 'differs'],
    ['stands | cancelled', { there: { is: 'cancelled' } }, 'cancelled_there'],
    ['stands | nothing', { there: { is: 'absent' } }, 'missing_there'],
    ['cancelled | stands', { here: cancelledHere }, 'cancelled_here'],
    ['cancelled | stands, different', { here: cancelledHere, there: moved }, 'cancelled_here'],
    ['cancelled | cancelled', { here: cancelledHere, there: { is: 'cancelled' } }, 'agrees_cancelled'],
    ['cancelled | nothing', { here: cancelledHere, there: { is: 'absent' } }, 'agrees_cancelled'],
    ['none | stands', { here: undefined }, 'unknown_here'],
    ['none | cancelled', { here: undefined, there: { is: 'cancelled' } }, undefined],
    ['none | nothing', { here: undefined, there: { is: 'absent' } }, undefined],
    ['stands | stands again, cancelled before', { before: 'cancelled_there' }, 'restored_there'],
    ['stands | stands again, its cancellation gone', { isCancellationGone: true }, 'restored_there'],
    ['stands | stands, restored before', { before: 'restored_there' }, 'restored_there'],
    ['stands | stands again, different', { before: 'cancelled_there', there: moved }, 'differs'],
    ['cancelled | stands again', { here: cancelledHere, isCancellationGone: true }, 'cancelled_here'],
    ['not configured | stands', { here: 'unasked' }, 'not_compared'],
    ['not configured | nothing', { here: 'unasked', there: { is: 'absent' } }, undefined],
  ];
  it.each(rows)('is decided by mirror | service: %s', (_name, sides, verdict) => {
    expect(judge(sides)).toBe(verdict);
  });

  it('takes every value of VERDICTS, each documented in docs/reconcile.md', () => {
    expect(new Set(rows.flatMap(([, , verdict]) => verdict ?? []))).toEqual(new Set(VERDICTS));
    const page = readFileSync(new URL('../../docs/reconcile.md', import.meta.url), 'utf8');
    for (const verdict of VERDICTS) expect(page).toContain(`\`${verdict}\``);
  });
});

describe('a difference between the sides of a booking', () => {
  const differs = (h: Partial<ResolvedBooking>, t: Partial<Reservation> = {}) =>
    findDifferences(here(h), there(t), RULES);

  it('is reported by name, with both values', () => {
    expect(differs({}, { begin: 10 * HOUR, end: 11 * HOUR })).toEqual({
      begin: { here: '1970-01-01T09:00:00.000Z', there: '1970-01-01T10:00:00.000Z' },
      end: { here: '1970-01-01T10:00:00.000Z', there: '1970-01-01T11:00:00.000Z' },
    });
    expect(differs({ objects: ['room_2', 'course_1'] })).toEqual({
      objects: { here: ['course_1', 'room_2'], there: ['course_1', 'room_1'] },
    });
    expect(differs({}, { fields: [] })).toEqual({
      fields: { here: { 'res.title': ['Algebra'] }, there: { 'res.title': [] } },
    });
    expect(differs({}, { status: ['B_COMPLETE', 'C_PLANNED'] })).toEqual({
      status: { here: USUAL, there: ['B_COMPLETE', 'C_PLANNED'] },
    });
  });

  it('ignores objects and fields that the configuration does not compare', () => {
    const objects = [...there().objects, { typeId: 'person.staff', objectId: 'person_1' }];
    const fields = [...there().fields, { fieldId: 'res.note', values: ['by hand'] }];
    expect(differs({}, { objects, fields })).toBeUndefined();
  });

  it('is reported when an object of the booking has no external id', () => {
    expect(differs({ unknownObjects: ["rooms '9'"] })).toEqual({
      objects: { here: ['course_1', 'room_1', "rooms '9'"], there: ['course_1', 'room_1'] },
    });
  });
});

const time = fc.option(
  fc.integer({ min: 0, max: 3 }).map((hours) => hours * HOUR),
  { nil: undefined },
);
const name = fc.constantFrom('room_1', 'room_2', 'course_1');
const values = fc.array(fc.constantFrom('a', 'b'), { maxLength: 2 });
const anyHere: fc.Arbitrary<ResolvedBooking> = fc.record({
  begin: time,
  end: time,
  isCancelled: fc.boolean(),
  objects: fc.array(name, { maxLength: 4 }),
  unknownObjects: fc.array(fc.constant("rooms 'x'"), { maxLength: 1 }),
  fields: values.map((list) => [{ fieldId: 'res.title', values: list }]),
});
const anyThere: fc.Arbitrary<Reservation> = fc.record({
  id: fc.nat().map(String),
  extId: fc.option(fc.string(), { nil: undefined }),
  begin: fc.integer({ min: 0, max: 3 }).map((hours) => hours * HOUR),
  end: fc.integer({ min: 0, max: 3 }).map((hours) => hours * HOUR),
  status: fc.subarray(['B_COMPLETE', 'C_CONFIRMED', 'C_PLANNED', 'B_INCOMPLETE']),
  objects: fc.array(fc.record({ typeId: fc.constantFrom('room', 'course', 'person'), objectId: name }), {
    maxLength: 4,
  }),
  fields: values.map((list) => [{ fieldId: 'res.title', values: list }]),
});
const anySides: fc.Arbitrary<Sides> = fc.record({
  here: fc.oneof(anyHere, fc.constant(undefined), fc.constant('unasked' as const)),
  there: fc.oneof(
    anyThere.map((reservation) => ({ is: 'standing' as const, reservation })),
    fc.constantFrom({ is: 'cancelled' as const }, { is: 'absent' as const }),
  ),
  before: fc.option(fc.constantFrom(...VERDICTS), { nil: undefined }),
  isCancellationGone: fc.boolean(),
});

describe('the comparison of any booking', () => {
  it('returns one verdict if the booking exists, and names differences only with `differs`', () => {
    fc.assert(
      fc.property(anySides, (sides) => {
        const judgement = compareBooking(sides, RULES);
        if (!judgement) {
          expect(typeof sides.here === 'object' || sides.there.is === 'standing').toBe(false);
          return;
        }
        expect(VERDICTS).toContain(judgement.verdict);
        expect(judgement.differs !== undefined).toBe(judgement.verdict === 'differs');
      }),
    );
  });

  it('returns the same verdict on a second reading of unchanged sides', () => {
    fc.assert(
      fc.property(anySides, (sides) => {
        const first = compareBooking(sides, RULES);
        const second = compareBooking({ ...sides, before: first?.verdict, isCancellationGone: false }, RULES);
        expect(second).toEqual(first);
      }),
    );
  });

  it('does not depend on the order or the repetition of objects and fields', () => {
    fc.assert(
      fc.property(anyHere, anyThere, (h, t) => {
        const turned = {
          ...t,
          objects: [...t.objects, ...t.objects].toReversed(),
          status: t.status.toReversed(),
          fields: t.fields.toReversed(),
        };
        expect(findDifferences({ ...h, objects: h.objects.toReversed() }, turned, RULES)).toEqual(
          findDifferences(h, t, RULES),
        );
      }),
    );
  });

  it('finds differences in the same properties when the sides are exchanged', () => {
    // Exchanges the sides, in the properties that both sides have.
    const mirrored = fc.tuple(anyHere, anyThere).filter(([h]) => h.unknownObjects.length === 0);
    fc.assert(
      fc.property(mirrored, ([h, t]) => {
        const asThere: Reservation = {
          ...t,
          begin: h.begin ?? -1,
          end: h.end ?? -1,
          status: USUAL,
          objects: h.objects.map((objectId) => ({ typeId: 'room', objectId })),
          fields: h.fields,
        };
        const asHere: ResolvedBooking = {
          ...h,
          begin: t.begin,
          end: t.end,
          objects: t.objects.filter(({ typeId }) => RULES.types.has(typeId)).map(({ objectId }) => objectId),
          fields: t.fields,
        };
        const one = findDifferences(h, { ...t, status: USUAL }, RULES);
        const other = findDifferences(asHere, asThere, RULES);
        expect(Object.keys(other ?? {}).toSorted()).toEqual(Object.keys(one ?? {}).toSorted());
      }),
    );
  });

  it('never agrees when the booking stands on one side only', () => {
    fc.assert(
      fc.property(anySides, (sides) => {
        const verdict = compareBooking(sides, RULES)?.verdict;
        if (verdict === undefined || !agrees(verdict) || typeof sides.here !== 'object') return;
        expect(!sides.here.isCancelled).toBe(sides.there.is === 'standing');
      }),
    );
  });
});
