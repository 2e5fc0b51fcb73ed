import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  mayCollide,
  mayGive,
  parseTemplate,
  renderExternalId,
  templateColumns,
} from '../../src/streams/external-id.js';

/** Returns the parsed template. Throws if the template is refused. */
function parse(template: string) {
  const parsed = parseTemplate(template);
  if (typeof parsed === 'string') throw new Error(parsed);
  return parsed;
}

describe('a template of external ids', () => {
  it('consists of literals and columns', () => {
    expect(parse('group_{programme_code}_{year group}!').parts).toEqual([
      { literal: 'group_' },
      { column: 'programme_code' },
      { literal: '_' },
      { column: 'year group' },
      { literal: '!' },
    ]);
    expect(parse('{id}').parts).toEqual([{ column: 'id' }]);
  });

  it('lists its columns in order, once for each place', () => {
    expect(templateColumns(parse('{a}-{b}{a}'))).toEqual(['a', 'b', 'a']);
  });

  it.each([
    ['room', "'room' names no column: every row would get one id"],
    ['room_{code', "'{' without '}' in 'room_{code'"],
    ['room_code}', "'}' without '{' in 'room_code}'"],
    ['{a}}', "'}' without '{'"],
    ['room_{}', "an empty or nested '{…}'"],
    ['room_{a{b}}', "an empty or nested '{…}'"],
  ])('is refused with its fault: %s', (template, message) => {
    expect(parseTemplate(template)).toContain(message);
  });

  it('is rendered back from its parts unchanged', () => {
    const text = fc.string({ minLength: 1, maxLength: 5 }).filter((part) => !/[{}]/.test(part));
    const part = fc.oneof(
      text.map((literal) => literal),
      text.map((column) => `{${column}}`),
    );
    fc.assert(
      fc.property(fc.array(part), text, (parts, column) => {
        const template = `${parts.join('')}{${column}}`;
        const written = parse(template).parts.map((one) =>
          'literal' in one ? one.literal : `{${one.column}}`,
        );
        expect(written.join('')).toBe(template);
      }),
    );
  });
});

describe('the external id of a row', () => {
  const template = parse('group_{code}_{year}');

  it('is the template with the columns filled in', () => {
    expect(renderExternalId(template, { code: 'TÄK|1', year: 2025 })).toBe('group_TÄK|1_2025');
    expect(renderExternalId(parse('{flag}-{big}'), { flag: false, big: 12n })).toBe('false-12');
  });

  it.each([
    ['null', { code: null, year: 1 }, 'column code of the external id is empty'],
    ['empty text', { code: 'a', year: '' }, 'column year of the external id is empty'],
    ['missing', { code: 'a' }, 'column year of the external id is empty'],
    ['an empty list', { code: [], year: 1 }, 'column code of the external id is empty'],
    [
      'a list of several',
      { code: ['a', 'b'], year: 1 },
      'column code of the external id holds several values',
    ],
  ])('is refused when a column is %s', (_, row, message) => {
    expect(() => renderExternalId(template, row)).toThrow(message);
  });
});

describe('templates of two streams', () => {
  it.each([
    ['room_{code}', 'course_{id}', false],
    ['room_{code}', 'room_{id}', true],
    ['{code}', 'room_{id}', true],
    ['{code}_room', '{id}_course', false],
    ['room_{a}', 'room_x_{b}', true],
  ])('may collide or not: %s with %s: %s', (one, other, expected) => {
    expect(mayCollide(parse(one), parse(other))).toBe(expected);
    expect(mayCollide(parse(other), parse(one))).toBe(expected);
  });

  it('may collide whenever both make the same external id', () => {
    const literal = fc.stringMatching(/^[ab]{0,3}$/);
    const value = fc.stringMatching(/^[ab]{1,4}$/);
    fc.assert(
      fc.property(literal, literal, literal, literal, value, value, (p1, s1, p2, s2, v1, v2) => {
        const [one, other] = [parse(`${p1}{x}${s1}`), parse(`${p2}{x}${s2}`)];
        const [a, b] = [renderExternalId(one, { x: v1 }), renderExternalId(other, { x: v2 })];
        expect(mayGive(one, a)).toBe(true);
        if (a !== b) return;
        expect(mayCollide(one, other)).toBe(true);
        expect(mayGive(other, a)).toBe(true);
      }),
    );
  });
});
