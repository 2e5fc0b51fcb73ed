// An object of the destination: creating, hashing, merging and comparing it.
import { createHash } from 'node:crypto';

export interface FieldValues {
  fieldId: string;
  values: readonly string[];
}

/** A whole object. Fields are sorted by id; fields without a value are left out. */
export interface DestinationObject {
  extId: string;
  typeId: string;
  active: boolean;
  fields: readonly FieldValues[];
}

export function createObject(
  extId: string,
  typeId: string,
  active: boolean,
  fields: Iterable<readonly [string, readonly string[]]>,
): DestinationObject {
  const present = [...fields].filter(([, values]) => values.length > 0);
  present.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return { extId, typeId, active, fields: present.map(([fieldId, values]) => ({ fieldId, values })) };
}

/** 128 bits of SHA-256 over the object's canonical text. */
export function hashObject({ extId, typeId, active, fields }: DestinationObject): string {
  const canonical = JSON.stringify([
    extId,
    typeId,
    active,
    fields.map(({ fieldId, values }) => [fieldId, values]),
  ]);
  return createHash('sha256').update(canonical).digest('base64url').slice(0, 22);
}

/** The mapped object over the one at the service: fields that the mapping does not own are kept. */
export function mergeObject(
  mapped: DestinationObject,
  there: DestinationObject | undefined,
  owned: ReadonlySet<string>,
): DestinationObject {
  if (!there) return mapped;
  const kept = there.fields.filter(({ fieldId }) => !owned.has(fieldId));
  const fields = [...kept, ...mapped.fields].map(({ fieldId, values }) => [fieldId, values] as const);
  return createObject(mapped.extId, mapped.typeId, mapped.active, fields);
}

/** Whether a write would change nothing: equal in type, state and every field. */
export function isSameObject(a: DestinationObject, b: DestinationObject): boolean {
  return hashObject(a) === hashObject(b);
}

export interface FieldChange {
  field: string;
  old: readonly string[];
  new: readonly string[];
}

/** The fields that a write would change, with `active` as one of them. */
export function diffObjects(from: DestinationObject | undefined, to: DestinationObject): FieldChange[] {
  const table = (object: DestinationObject | undefined) =>
    new Map<string, readonly string[]>([
      ...(object ? [['active', [String(object.active)]] as const] : []),
      ...(object?.fields ?? []).map(({ fieldId, values }) => [fieldId, values] as const),
    ]);
  const before = table(from);
  const after = table(to);
  return [...new Set([...before.keys(), ...after.keys()])]
    .map((field) => ({ field, old: before.get(field) ?? [], new: after.get(field) ?? [] }))
    .filter((change) => JSON.stringify(change.old) !== JSON.stringify(change.new));
}
