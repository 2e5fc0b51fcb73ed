// Names that "did you mean" suggests for a typo.
import { describe, expect, it } from 'vitest';
import { listNames, nearestName, suggestName } from '../../src/text/nearest-name.js';

const TABLES = ['public.terms', 'campus.rooms', 'campus.courses'];

describe('the suggestion for a misspelled name', () => {
  it.each([
    ['corses', ['rooms', 'courses'], 'courses'],
    ['Batch_Size', ['key', 'batchSize'], 'batchSize'],
    ['room', TABLES, 'campus.rooms'],
    ['campus.roms', TABLES, 'campus.rooms'],
    ['Stokholm', Intl.supportedValuesOf('timeZone'), 'Europe/Stockholm'],
  ])('is the nearest name: %s', (name, known, meant) => {
    expect(nearestName(name, known)).toBe(meant);
  });

  it.each([
    ['staff', ['rooms', 'courses']],
    ['xy', ['ab', 'room']],
    ['', ['a']],
    ['lecture_halls', TABLES],
  ])('is empty for another word: %j', (name, known) => {
    expect(nearestName(name, known)).toBeUndefined();
  });

  it('names the nearest name, or else lists the names that exist', () => {
    expect(suggestName('corses', ['rooms', 'courses'])).toBe('did you mean courses?');
    expect(suggestName('staff', ['rooms', 'courses'])).toBe('there are: rooms, courses');
    expect(suggestName('staff', [])).toBeUndefined();
    expect(listNames(Array.from({ length: 14 }, (_, at) => `n${at}`))).toMatch(/n0, .*n11 and 2 more$/);
  });
});
