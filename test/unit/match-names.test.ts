import { describe, expect, it } from 'vitest';
import { compareNames, looksSecret, tokensOf } from '../../src/sync/init/match-names.js';

describe('the words of a name', () => {
  it.each([
    ['wheelchairAccess', ['wheelchair', 'access']],
    ['numberOfPlaces', ['number', 'of', 'place']],
    ['ClassesOfStudents', ['class', 'of', 'student']],
    ['course.name.en', ['course', 'name', 'en']],
    ['SISPersonID', ['sis', 'person', 'id']],
    ['room-2_codes', ['room', '2', 'code']],
    ['faculties', ['faculty']],
    ['campus', ['campus']],
    ['status', ['status']],
    ['Öppna_förelÄsningar', ['öppna', 'förel', 'äsningar']],
    ['教室', ['教室']],
    ['…', []],
  ])('are found in %s', (name, words) => {
    expect(tokensOf(name)).toEqual(words);
  });
});

describe('the likeness of two names', () => {
  const compare = (one: string, other: string, ...context: string[]) =>
    compareNames(tokensOf(one), tokensOf(other), new Set(context));

  it.each([
    ['rooms', 'room', 1],
    ['nameEn', 'name.en', 1],
    ['seats', 'Number of seats', 0.8],
    ['wheelchairAccess', 'Accessible by wheelchair', 0.8],
    ['eqipment', 'equipment', 0.8],
  ])('is high for %s and %s', (one, other, least) => {
    expect(compare(one, other)).toBeGreaterThanOrEqual(least);
    expect(compare(other, one)).toBe(compare(one, other));
  });

  it.each([
    ['capacity', 'seats'],
    ['name', 'note'],
    ['art', 'start'],
    ['', 'name'],
  ])('is zero for %s and %s', (one, other) => {
    expect(compare(one, other)).toBe(0);
  });

  it('counts words of the context less', () => {
    expect(compare('rooms_name', 'name', 'room')).toBeGreaterThan(0.85);
    expect(compare('rooms_name', 'rooms_area', 'room')).toBeLessThan(0.5);
  });
});

describe('columns that look like secrets', () => {
  it('are recognized by their last word', () => {
    expect(['passwd', 'user_password', 'api_token', 'clientSecrets', 'ssn'].filter(looksSecret)).toHaveLength(
      5,
    );
    expect(['secretary_name', 'tokenized_title', 'passage', 'session'].filter(looksSecret)).toEqual([]);
  });
});
