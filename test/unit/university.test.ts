import { describe, expect, test } from 'vitest';
import { checkConfiguration } from '../../src/config-file.js';
import { universityConfig, universitySchema } from '../../src/demo/sync.config.js';
import { BAD_ROWS, generateReservations, generateUniversity } from '../../src/demo/university-rows.js';
import { mapRow } from '../../src/streams/map-row.js';

const NOW = new Date('2025-11-20T12:00:00Z');
const university = generateUniversity({ seed: 1, now: NOW });
const { streams } = checkConfiguration(universityConfig);

describe('the sample university', () => {
  test('is the same for the same seed, and another one for another', () => {
    expect(generateUniversity({ seed: 1, now: NOW })).toEqual(university);
    expect(generateUniversity({ seed: 2, now: NOW })).not.toEqual(university);
  });

  test('has keys that are unique', () => {
    const keys = {
      rooms: university.rooms.map(({ room_code }) => room_code),
      staff: university.staff.map(({ id }) => String(id)),
      courses: university.courses.map(({ course_code }) => course_code),
      groups: university.student_groups.map((group) => `${group.programme_code} ${group.year_group}`),
    };
    for (const list of Object.values(keys)) expect(new Set(list).size).toBe(list.length);
    expect(Object.values(keys).map((list) => list.length)).toEqual([400, 804, 1202, 600]);
  });

  test('has names in several scripts', () => {
    const names = university.staff.map(({ family_name }) => family_name).join(' ');
    for (const script of [
      /[åäö]/i,
      /\p{Script=Greek}/u,
      /\p{Script=Cyrillic}/u,
      /\p{Script=Han}/u,
      /\p{Script=Arabic}/u,
    ]) {
      expect(names).toMatch(script);
    }
  });

  test('has exactly the bad rows that it announces', () => {
    expect(findBadRows()).toEqual(new Set(BAD_ROWS.map(({ stream, localKey }) => `${stream} ${localKey}`)));
  });

  test('is mapped to fields that are defined at the service', () => {
    for (const stream of streams) {
      const defined = universitySchema.fields
        .filter(({ type }) => type === stream.type)
        .map(({ extId }) => extId);
      expect(defined).toEqual(expect.arrayContaining([...stream.owned]));
    }
  });

  test('is booked differently there in every way a booking can differ', () => {
    const { add, cancel } = generateReservations(university);
    const there = new Map(add.map((reservation) => [reservation.extId, reservation]));
    const seen = university.bookings.map((booking) => {
      const reservation = there.get(`res_${booking.id}`);
      if (reservation === undefined) return 'missing';
      if (cancel.includes(`res_${booking.id}`)) return 'cancelled there';
      if (booking.is_cancelled) return 'cancelled here';
      if (reservation.begin * 1000 !== Date.parse(booking.starts_at)) return 'moved';
      return reservation.objects?.[0]?.objectId === `room_${booking.room_code}` ? 'same' : 'other room';
    });
    const counts = Object.fromEntries(
      [...new Set(seen)].map((kind) => [kind, seen.filter((one) => one === kind).length]),
    );
    expect(counts).toEqual({
      same: 591,
      moved: 3,
      'other room': 1,
      missing: 2,
      'cancelled there': 2,
      'cancelled here': 1,
    });
    expect(there.has('made_by_hand_1')).toBe(true);
  });
});

/** Judged as mapping and service would: a mapping that throws, a reference to nothing, a field refused, an id shared. */
function findBadRows(): Set<string> {
  const rowsOf: Record<string, readonly Record<string, unknown>[]> = {
    ...university,
    staff: university.staff.filter(({ left_on }) => left_on === null),
  };
  const localKeys = new Set<string>();
  const bad = new Set<string>();
  for (const stream of streams) {
    const holders = new Map<string, string[]>();
    for (const row of rowsOf[stream.name] ?? []) {
      const name = `${stream.name} ${stream.key.map((column) => String(row[column])).join('|')}`;
      localKeys.add(name);
      try {
        const { extId, values, references } = mapRow(stream, row);
        holders.set(extId, [...(holders.get(extId) ?? []), name]);
        const refused = universitySchema.fields
          .filter(({ type }) => type === stream.type)
          .some(({ extId: field, mandatory = false, maxLength = Infinity }) => {
            const sent = values.get(field) ?? [];
            return (mandatory && sent.length === 0) || sent.some((value) => value.length > maxLength);
          });
        const waits = references.some(
          (reference) => !localKeys.has(`${reference.stream} ${reference.localKey}`),
        );
        if (refused || waits) bad.add(name);
      } catch {
        bad.add(name);
      }
    }
    for (const names of holders.values()) if (names.length > 1) for (const name of names) bad.add(name);
  }
  return bad;
}
