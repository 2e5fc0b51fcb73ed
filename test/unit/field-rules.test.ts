// The value that a field of an object gets by its rule, as a table. docs/configuration.md shows the same table.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import type { SlotsyncConfig, StreamConfig } from '../../src/streams/config-schema.js';
import { createObject } from '../../src/streams/destination-object.js';
import {
  acceptedText,
  applyRules,
  decideField,
  DEFAULT_RULE,
  parseAccepted,
  takeText,
  type FieldRule,
} from '../../src/streams/field-rules.js';
import { ROOMS } from '../support/campus.js';

const FIELD = 'room.name';
const objectOf = (values: readonly string[]) => createObject('room_A', 'room', true, [[FIELD, values]]);

const RULES: Record<string, Partial<FieldRule>> = {
  "`'always'`": {},
  "`'changed'`": { write: 'changed' },
  "`'onCreate'`": { write: 'onCreate' },
  "`'whenEmpty'`": { write: 'whenEmpty' },
  "`ifNull: 'keep'`": { ifNull: 'keep' },
  '`add: true`': { add: true },
};

interface Situation {
  accepted: string[];
  mapped: string[];
  there: string[];
}
const SITUATIONS: Record<string, Situation> = {
  'A person edited the field; the row is as it was': { accepted: ['m'], mapped: ['m'], there: ['p'] },
  'The row changed; nobody edited the field': { accepted: ['m'], mapped: ['n'], there: ['m'] },
  'The row changed, and a person edited the field': { accepted: ['m'], mapped: ['n'], there: ['p'] },
  'A person emptied the field; the row is as it was': { accepted: ['m'], mapped: ['m'], there: [] },
  'The column became null; nobody edited the field': { accepted: ['m'], mapped: [], there: ['m'] },
  'The column became null, and a person edited the field': { accepted: ['m'], mapped: [], there: ['p'] },
};

function decide(rule: Partial<FieldRule>, { accepted, mapped, there }: Situation): readonly string[] {
  const whole = { ...DEFAULT_RULE, ...rule };
  const text = acceptedText(new Map([[FIELD, whole]]), objectOf(accepted));
  return decideField({ field: FIELD, rule: whole, mapped, there, accepted: parseAccepted(text) }).values;
}

/** Names the side that the values come from. The values of the two sides have different letters. */
function nameWinner(values: readonly string[], { mapped, there }: Situation): string {
  const isMirror = values.join() === mapped.join();
  const isService = values.join() === there.join();
  if (isMirror) return values.length === 0 ? 'emptied' : 'mirror';
  if (isService) return values.length === 0 ? 'stays empty' : 'service';
  return 'both';
}

describe('the rule of a field', () => {
  const rows = Object.entries(SITUATIONS).map(([situation, facts]) => [
    situation,
    ...Object.values(RULES).map((rule) => nameWinner(decide(rule, facts), facts)),
  ]);

  it('chooses the value that docs/configuration.md shows', () => {
    const headings = ['', ...Object.keys(RULES)];
    const cells = (text: string) => text.split(/ *\| */).slice(1, -1);
    const lines = readFileSync('docs/configuration.md', 'utf8').split('\n');
    const start = lines.findIndex((line) => line.includes("`'whenEmpty'` |"));
    expect(cells(lines[start] ?? '')).toEqual(headings);
    expect(lines.slice(start + 2, start + 2 + rows.length).map(cells)).toEqual(rows);
  });

  it('takes the mirror’s value with `changed` if nothing was accepted', () => {
    const facts = { field: FIELD, mapped: ['m'], there: ['p'], accepted: parseAccepted(null) };
    expect(decideField({ ...facts, rule: { ...DEFAULT_RULE, write: 'changed' } })).toEqual({ values: ['m'] });
  });

  it.each(Object.entries(RULES))(
    'takes the mirror’s value once after an operator has taken it over the service’s: %s',
    (_, rule) => {
      const whole = { ...DEFAULT_RULE, ...rule };
      const text = `${acceptedText(new Map([[FIELD, whole]]), objectOf(['m'])) ?? ''}${takeText([FIELD])}`;
      const facts = { field: FIELD, rule: whole, mapped: ['m'], there: ['p'], accepted: parseAccepted(text) };
      expect(decideField(facts)).toEqual({ values: ['m'] });
    },
  );

  it.each([
    { accepted: ['a', 'b'], mapped: ['a'], there: ['b', 'x'], expected: ['x', 'a'] },
    { accepted: ['a', 'b'], mapped: [], there: ['a', 'b', 'x'], expected: ['x'] },
    { accepted: [], mapped: ['x'], there: ['x'], expected: ['x'] },
    { accepted: ['a'], mapped: ['b', 'b'], there: ['x', 'a'], expected: ['x', 'b'] },
  ])(
    'merges a list with `add`: $accepted accepted, $mapped mapped, $there found: $expected',
    ({ expected, ...facts }) => {
      expect(decide({ add: true }, facts)).toEqual(expected);
    },
  );

  it('stores eight characters for a compared field, and none for other fields', () => {
    const rules = new Map<string, FieldRule>([
      ['a', { ...DEFAULT_RULE, write: 'changed' }],
      ['b', { ...DEFAULT_RULE, write: 'onCreate' }],
    ]);
    expect(acceptedText(rules, objectOf(['m']))).toHaveLength(8);
    expect(acceptedText(new Map(), objectOf(['m']))).toBeNull();
  });

  it('keeps the spelling, the type and the state of the object as they are mapped', () => {
    const rules = new Map([[FIELD, { ...DEFAULT_RULE, write: 'onCreate' as const }]]);
    const mapped = { ...objectOf(['m']), spelling: 'Room_A' };
    const { object, kept } = applyRules(rules, mapped, { ...objectOf(['p']), active: false }, null);
    expect(object).toEqual({ ...objectOf(['p']), spelling: 'Room_A' });
    expect(kept).toMatchObject([{ field: FIELD, keptBy: 'write', here: ['m'], there: ['p'] }]);
  });
});

describe('the field rules of a configuration', () => {
  const check = (changes: Partial<StreamConfig>, others: SlotsyncConfig['streams'] = {}) =>
    checkConfiguration({
      streams: { rooms: { ...ROOMS, fields: { [FIELD]: 'name' }, ...changes }, ...others },
    });
  const ruled = (rule: object) => ({ fields: { [FIELD]: { from: 'name', ...rule } } });
  const rulesOf = (changes: Partial<StreamConfig>) =>
    Object.fromEntries(check(changes).streams[0]?.rules ?? []);

  it('leave the fingerprint of a stream without rules as it was before rules existed', () => {
    const [plain] = check({}).streams;
    const [same] = check(ruled({})).streams;
    expect(plain?.fingerprint).toBe(-4586502099484554371n);
    expect(same?.fingerprint).toBe(plain?.fingerprint);
    expect(check(ruled({ write: 'changed' })).streams[0]?.fingerprint).not.toBe(plain?.fingerprint);
  });

  it('take `write` from the stream, except for fields with their own `write` and for `add`', () => {
    const always = { from: 'name', write: 'always' } as const;
    const fields = { a: 'name', b: always, c: { from: 'tags', add: true } } as const;
    expect(rulesOf({ write: 'changed', fields })).toEqual({
      a: { write: 'changed', add: false, ifNull: 'clear' },
      c: { write: 'always', add: true, ifNull: 'clear' },
    });
  });

  it.each([
    ['an unknown rule', ruled({ write: 'often' }), "write: 'always', 'changed', 'onCreate', 'whenEmpty'"],
    ['an unknown key', ruled({ writes: 'changed' }), 'writes'],
    ['`add` with `write`', ruled({ add: true, write: 'changed' }), '`add` and `write` exclude each other'],
    ['`write` for an object that is not read', { owns: 'object', write: 'changed' }, "use owns: 'fields'"],
  ])('refuse %s', (_, changes, message) => {
    expect(() => check(changes as Partial<StreamConfig>)).toThrowError(
      expect.objectContaining({ faults: [expect.stringContaining(message)] }),
    );
  });

  it('refuse two rules for one field of one type', () => {
    const others = { halls: { ...ROOMS, externalId: 'hall_{code}', fields: { [FIELD]: 'name' } } };
    expect(() => check(ruled({ write: 'changed' }), others)).toThrowError(
      expect.objectContaining({
        faults: [expect.stringContaining("stream halls has the same type and writes 'room.name'")],
      }),
    );
  });
});
