// "Did you mean" names what a typo may have meant, and nothing else.
import { describe, expect, it } from 'vitest';
import { listNames, nearestName, suggestName } from '../../src/text/nearest-name.js';

const TABLES = ['public.terms', 'campus.rooms', 'campus.courses'];

describe('the name that was meant', () => {
  it.each([
    ['corses', ['rooms', 'courses'], 'courses'],
    ['Batch_Size', ['key', 'batchSize'], 'batchSize'],
    ['room', TABLES, 'campus.rooms'],
    ['campus.roms', TABLES, 'campus.rooms'],
    ['Stokholm', Intl.supportedValuesOf('timeZone'), 'Europe/Stockholm'],
  ])('typo: %s', (name, known, meant) => {
    expect(nearestName(name, known)).toBe(meant);
  });

  it.each([
    ['staff', ['rooms', 'courses']],
    ['xy', ['ab', 'room']],
    ['', ['a']],
    ['lecture_halls', TABLES],
  ])('another word: %j is near no name', (name, known) => {
    expect(nearestName(name, known)).toBeUndefined();
  });

  it('sentence: the name, or which names there are', () => {
    expect(suggestName('corses', ['rooms', 'courses'])).toBe('did you mean courses?');
    expect(suggestName('staff', ['rooms', 'courses'])).toBe('there are: rooms, courses');
    expect(suggestName('staff', [])).toBeUndefined();
    expect(listNames(Array.from({ length: 14 }, (_, at) => `n${at}`))).toMatch(/n0, .*n11 and 2 more$/);
  });
});
