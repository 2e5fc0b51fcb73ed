// Decides for each field of an existing object: write the mirror's value, or keep the service's value. Pure.
import { createHash } from 'node:crypto';
import { createObject, type DestinationObject } from './destination-object.js';

/**
 * When a mapped value is written to an existing object. `always`: with each write. `changed`: if the value differs from
 * the one accepted last. `onCreate`: never. `whenEmpty`: while the field has no value at the service.
 */
export const WRITE_RULES = ['always', 'changed', 'onCreate', 'whenEmpty'] as const;
export type WriteRule = (typeof WRITE_RULES)[number];

export interface FieldRule {
  write: WriteRule;
  /** If true, the mapping adds its values to those at the service, and removes only values that it added before. */
  add: boolean;
  /** Effect of a mapped null: `clear` empties the field, `keep` leaves the service's value. */
  ifNull: 'clear' | 'keep';
}

/** The rule of a field whose configuration has no rule. */
export const DEFAULT_RULE: FieldRule = { write: 'always', add: false, ifNull: 'clear' };

/** Rules by field id. Fields with the default rule are left out. */
export type FieldRules = ReadonlyMap<string, FieldRule>;

/** Option of a field's rule that made a write keep the service's value. */
export type KeptBy = 'write' | 'ifNull';

/** A field whose value at the service a write keeps. */
export interface KeptField {
  field: string;
  keptBy: KeptBy;
  rule: FieldRule;
  /** Values of the field: mapped from the mirror (`here`), and at the service (`there`). */
  here: readonly string[];
  there: readonly string[];
}

interface FieldFacts {
  field: string;
  rule: FieldRule;
  mapped: readonly string[];
  there: readonly string[];
  accepted: AcceptedFields;
}

/** Tokens (short hashes) of the field values of an object that the service accepted last. */
export type AcceptedFields = ReadonlySet<string>;

const TOKEN_LENGTH = 8;
/** Returns a hash token of about 42 bits; the state stores one per field and record. `mark` is its kind. */
const tokenOf = (mark: string, ...parts: readonly unknown[]): string =>
  (mark + createHash('sha256').update(JSON.stringify(parts)).digest('base64url')).slice(0, TOKEN_LENGTH);

// `FIELDS_IN_DOUBT` (record-state.ts) drops tokens without a mark after a write whose answer was lost. Otherwise
// `changed` could take the value of that write for a person's value.
const valuesToken = (field: string, values: readonly string[]) => tokenOf('', field, values);
const addedToken = (field: string, value: string) => tokenOf('+', field, value);
/** Token for an operator's wish that the mirror's value wins at the next write. */
const takeToken = (field: string) => tokenOf('!', field);

export function parseAccepted(text: string | null | undefined): AcceptedFields {
  return new Set(text?.match(new RegExp(`.{${TOKEN_LENGTH}}`, 'g')) ?? []);
}

/**
 * Returns the tokens of an accepted object as text for the state: one for each field with `write: 'changed'`, and one
 * for each value of a field with `add`. Returns null if no rule needs tokens. Added values of the previous text
 * `before` stay while a null keeps them in `there`, the object at the service; without `there`, all of them stay.
 */
export function acceptedText(
  rules: FieldRules,
  mapped: DestinationObject,
  before?: string | null,
  there?: DestinationObject,
): string | null {
  if (rules.size === 0) return null;
  const valuesOf = valuesByField(mapped);
  const standing = there && valuesByField(there);
  const added = [...parseAccepted(before)].filter((token) => token.startsWith('+'));
  const tokens = [...rules].flatMap(([field, { write, add, ifNull }]) => {
    const values = valuesOf.get(field) ?? [];
    const tokensOf = (list: readonly string[]) => list.map((value) => addedToken(field, value));
    if (!add) return write === 'changed' ? valuesToken(field, values) : [];
    if (values.length > 0 || ifNull === 'clear') return tokensOf(values);
    const stays = standing && new Set(tokensOf(standing.get(field) ?? []));
    return added.filter((token) => stays?.has(token) ?? true);
  });
  return tokens.length === 0 ? null : [...new Set(tokens)].join('');
}

/** Returns the text that makes the mirror win in these fields at the next write. */
export const takeText = (fields: readonly string[]): string => fields.map(takeToken).join('');

/**
 * Returns the text that makes the mirror win at an object's second write, in reference fields that its first write left
 * out. Fields with a value before the first write are excluded. `standing` is the object at that time.
 */
export function takeLater(
  fields: readonly string[],
  before: { objectHash: string | null; inDoubt: boolean; acceptedFields: string | null },
  standing: DestinationObject | undefined,
): string {
  const accepted = parseAccepted(before.acceptedFields);
  // If the answer of a first write was lost, that write may have created the object.
  const isMade = before.objectHash === null && (!standing || before.inDoubt);
  const isEmpty = (field: string) => !standing?.fields.some(({ fieldId }) => fieldId === field);
  return takeText(fields.filter((field) => (isMade && isEmpty(field)) || accepted.has(takeToken(field))));
}

/** Decides the values of one field. `keptBy` names the option by which the service's values win. */
export function decideField({ field, rule, mapped, there, accepted }: FieldFacts): {
  values: readonly string[];
  keptBy?: KeptBy;
} {
  if (accepted.has(takeToken(field))) return { values: mapped };
  if (rule.ifNull === 'keep' && mapped.length === 0) return { values: there, keptBy: 'ifNull' };
  if (rule.add) {
    const wanted = new Set(mapped);
    const stays = there.filter((value) => wanted.has(value) || !accepted.has(addedToken(field, value)));
    const standing = new Set(stays);
    return { values: [...stays, ...[...wanted].filter((value) => !standing.has(value))] };
  }
  const isKept =
    rule.write === 'onCreate' ||
    (rule.write === 'whenEmpty' && there.length > 0) ||
    (rule.write === 'changed' && accepted.has(valuesToken(field, mapped)));
  return isKept ? { values: there, keptBy: 'write' } : { values: mapped };
}

/**
 * Returns the object with the values that the rules choose, and the fields that keep the service's values.
 * `acceptedBefore` is the stored text of tokens; without it, every value counts as changed.
 */
export function applyRules(
  rules: FieldRules,
  mapped: DestinationObject,
  there: DestinationObject | undefined,
  acceptedBefore: string | null | undefined,
): { object: DestinationObject; kept: readonly KeptField[] } {
  if (!there || rules.size === 0) return { object: mapped, kept: [] };
  const accepted = parseAccepted(acceptedBefore);
  const values = valuesByField(mapped);
  const standing = valuesByField(there);
  const kept: KeptField[] = [];
  for (const [field, rule] of rules) {
    const facts = {
      field,
      rule,
      mapped: values.get(field) ?? [],
      there: standing.get(field) ?? [],
      accepted,
    };
    const decided = decideField(facts);
    values.set(field, decided.values);
    if (decided.keptBy)
      kept.push({ field, keptBy: decided.keptBy, rule, here: facts.mapped, there: facts.there });
  }
  const { extId, typeId, active, carried, spelling } = mapped;
  const object = createObject(extId, typeId, active, values, carried);
  return { object: spelling === undefined ? object : { ...object, spelling }, kept };
}

/** Returns the kept fields whose values differ between mirror and service. */
export const differingOf = (kept: readonly KeptField[]): KeptField[] =>
  kept.filter(({ here, there }) => JSON.stringify(here) !== JSON.stringify(there));

/** Returns the option that keeps a field, in the syntax of the configuration. */
export const nameOfRule = ({ keptBy, rule }: Pick<KeptField, 'keptBy' | 'rule'>): string =>
  keptBy === 'ifNull' ? "ifNull: 'keep'" : `write: '${rule.write}'`;

export const keptToJson = (kept: KeptField) => ({
  field: kept.field,
  there: kept.there,
  here: kept.here,
  keptBy: nameOfRule(kept),
});

const valuesByField = ({ fields }: DestinationObject) =>
  new Map(fields.map(({ fieldId, values }) => [fieldId, values] as const));
