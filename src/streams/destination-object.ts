// An object of the destination: creating, hashing, merging and comparing it.
import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';

/** Properties beyond those that are understood, as the service answered them. */
export type Carried = Readonly<Record<string, unknown>>;

export interface FieldValues {
  fieldId: string;
  values: readonly string[];
  /** Properties that a write sends back as they are. They are in no hash and in no comparison. */
  carried?: Carried | undefined;
}

/** A whole object. Fields are sorted by id; fields without a value are left out. */
export interface DestinationObject {
  extId: string;
  typeId: string;
  active: boolean;
  fields: readonly FieldValues[];
  /** The external id as it is written, where the service compares another form of it. In no hash and in no comparison. */
  spelling?: string | undefined;
  /** Properties of the object that a write sends back as they are, for example its members. */
  carried?: Carried | undefined;
}

export function createObject(
  extId: string,
  typeId: string,
  active: boolean,
  fields: Iterable<readonly [fieldId: string, values: readonly string[], carried?: Carried | undefined]>,
  carried?: Carried,
): DestinationObject {
  const present = [...fields].filter(([, values]) => values.length > 0);
  present.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return {
    extId,
    typeId,
    active,
    fields: present.map(([fieldId, values, more]) =>
      more ? { fieldId, values, carried: more } : { fieldId, values },
    ),
    ...(carried && { carried }),
  };
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

/** The mapped object over the one at the service: what the mapping does not own is kept, understood or not. */
export function mergeObject(
  mapped: DestinationObject,
  there: DestinationObject | undefined,
  owned: ReadonlySet<string>,
): DestinationObject {
  if (!there) return mapped;
  const kept = there.fields.filter(({ fieldId }) => !owned.has(fieldId));
  const carriedOf = new Map(
    there.fields.flatMap(({ fieldId, carried }) => (carried ? [[fieldId, carried] as const] : [])),
  );
  const fields = [...kept, ...mapped.fields].map(
    ({ fieldId, values }) => [fieldId, values, carriedOf.get(fieldId)] as const,
  );
  return createObject(mapped.extId, mapped.typeId, mapped.active, fields, there.carried);
}

/** The owned part of an object, for a service that keeps what is not sent: an owned field without a value is emptied. */
export function patchOf<T extends DestinationObject>(object: T, owned: ReadonlySet<string>): T {
  const values = new Map(object.fields.map((given) => [given.fieldId, given.values]));
  const fields = [...owned].map((fieldId) => ({ fieldId, values: values.get(fieldId) ?? [] }));
  return { ...object, fields, carried: undefined };
}

/** Whether a write would change nothing: equal in type, state and every field. */
export function isSameObject(a: DestinationObject, b: DestinationObject): boolean {
  return hashObject(a) === hashObject(b);
}

/** Names of the carried properties that differ. */
export function diffCarried(from: DestinationObject, to: DestinationObject): string[] {
  const names = new Set([...Object.keys(from.carried ?? {}), ...Object.keys(to.carried ?? {})]);
  return [...names].filter((name) => !isDeepStrictEqual(from.carried?.[name], to.carried?.[name]));
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

/** A change by a write. Without `old`, the object was not read before it. */
export type WrittenField = Omit<FieldChange, 'old'> & Partial<Pick<FieldChange, 'old'>>;

/** The fields that a write changes, as far as the object was read before it (`from`); otherwise those that it sends: `names`, or those with a value. */
export function writtenFields(to: DestinationObject, from?: DestinationObject, names?: Iterable<string>) {
  if (from) return diffObjects(from, to);
  const values = new Map(to.fields.map((field) => [field.fieldId, field.values]));
  return [...(names ?? values.keys())].map((field) => ({ field, new: values.get(field) ?? [] }));
}
