// Decides for each field of an object that exists whether it gets the mirror's value, or keeps the one at the service, which a
// person may have entered. Pure.
import { createHash } from 'node:crypto';
import { createObject, type DestinationObject } from './destination-object.js';

/**
 * When a mapped value is written to an object that exists. `always`: with each write. `changed`: when it differs from the value
 * that was accepted last. `onCreate`: never. `whenEmpty`: while the field has no value at the service.
 */
export const WRITE_RULES = ['always', 'changed', 'onCreate', 'whenEmpty'] as const;
export type WriteRule = (typeof WRITE_RULES)[number];

export interface FieldRule {
  write: WriteRule;
  /** The mapping adds its values to those at the service, and removes only values that it has added. */
  add: boolean;
  /** A mapped null empties the field (`clear`), or leaves it as it is. */
  ifNull: 'clear' | 'keep';
}

/** The rule of a field without one of its own. */
export const DEFAULT_RULE: FieldRule = { write: 'always', add: false, ifNull: 'clear' };

/** Rules by field id, without fields of the default rule. */
export type FieldRules = ReadonlyMap<string, FieldRule>;

/** The option of the rule that keeps the value of the service. */
export type KeptBy = 'write' | 'ifNull';

/** A field that a write leaves as it is. */
export interface KeptField {
  field: string;
  keptBy: KeptBy;
  rule: FieldRule;
  /** The mapped values, and those at the service. */
  here: readonly string[];
  there: readonly string[];
}

interface FieldFacts {
  field: string;
  rule: FieldRule;
  mapped: readonly string[];
  /** At the service. */
  there: readonly string[];
  accepted: AcceptedFields;
}

/** Tokens by which the state knows the values of the fields of an object that were accepted last. */
export type AcceptedFields = ReadonlySet<string>;

const TOKEN_LENGTH = 8;
/** Some 42 bits over a text: as long as a hash may be that each field of each record keeps. `mark`: the kind, where it has one. */
const tokenOf = (mark: string, ...parts: readonly unknown[]): string =>
  (mark + createHash('sha256').update(JSON.stringify(parts)).digest('base64url')).slice(0, TOKEN_LENGTH);

// After a write whose answer was lost the state drops the tokens without a mark: FIELDS_IN_DOUBT in record-state.ts. The service may
// hold what that write said, and `changed` must not take it for a person's value. Values that were added stay known.
const valuesToken = (field: string, values: readonly string[]) => tokenOf('', field, values);
const addedToken = (field: string, value: string) => tokenOf('+', field, value);
/** The wish of an operator that the mirror wins once. */
const takeToken = (field: string) => tokenOf('!', field);

export function parseAccepted(text: string | null | undefined): AcceptedFields {
  return new Set(text?.match(new RegExp(`.{${TOKEN_LENGTH}}`, 'g')) ?? []);
}

/**
 * The text that the state keeps of an accepted object, as the mapping made it: eight characters for each field with `write:
 * 'changed'`, and for each value of a field with `add`. Null: no rule needs one. `before`: the text so far. Values that were added
 * stay known while a null keeps them; undefined `there`: all of them.
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

/** The text that lets the mirror win in these fields at the next write. It is added to the text of the accepted object. */
export const takeText = (fields: readonly string[]): string => fields.map(takeToken).join('');

/**
 * The text that lets the mirror win, at the second write of an object, in references that its first write has left out. Not in those
 * that the object had before the first write. `standing`: the object before the write; undefined: there was none.
 */
export function takeLater(
  fields: readonly string[],
  before: { objectHash: string | null; inDoubt: boolean; acceptedFields: string | null },
  standing: DestinationObject | undefined,
): string {
  const accepted = parseAccepted(before.acceptedFields);
  // A first write whose answer was lost may have made the object.
  const isMade = before.objectHash === null && (!standing || before.inDoubt);
  const isEmpty = (field: string) => !standing?.fields.some(({ fieldId }) => fieldId === field);
  return takeText(fields.filter((field) => (isMade && isEmpty(field)) || accepted.has(takeToken(field))));
}

/** Decides one field of an object that exists. `keptBy`: the service's values win by this option. */
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
 * The object with the values that its rules choose, and the fields that keep those of the service. `acceptedBefore`: the text that
 * the state keeps of the object; without it every value counts as changed.
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

/** Kept fields whose values differ on the two sides. */
export const differingOf = (kept: readonly KeptField[]): KeptField[] =>
  kept.filter(({ here, there }) => JSON.stringify(here) !== JSON.stringify(there));

/** The option that keeps a field, as it is written in the configuration. */
export const nameOfRule = ({ keptBy, rule }: Pick<KeptField, 'keptBy' | 'rule'>): string =>
  keptBy === 'ifNull' ? "ifNull: 'keep'" : `write: '${rule.write}'`;

/** A kept field as commands print it with `--json`. */
export const keptToJson = (kept: KeptField) => ({
  field: kept.field,
  there: kept.there,
  here: kept.here,
  keptBy: nameOfRule(kept),
});

const valuesByField = ({ fields }: DestinationObject) =>
  new Map(fields.map(({ fieldId, values }) => [fieldId, values] as const));
