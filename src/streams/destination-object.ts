// An object of the destination: functions to create, hash, merge and compare it.
import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';

/** Properties of a service answer that slotsync does not interpret, but sends back with a write. */
export type Carried = Readonly<Record<string, unknown>>;

export interface FieldValues {
  fieldId: string;
  values: readonly string[];
  /** Uninterpreted properties, which a write sends back unchanged. Hashes and comparisons ignore them. */
  carried?: Carried | undefined;
}

/** A complete object of the service. Fields are sorted by id; fields without a value are left out. */
export interface DestinationObject {
  extId: string;
  typeId: string;
  active: boolean;
  fields: readonly FieldValues[];
  /** Spelling of the external id in the row, if the service compares another form. Hashes ignore it. */
  spelling?: string | undefined;
  /** Uninterpreted properties of the object, such as its members, which a write sends back unchanged. */
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

/** Returns 128 bits of SHA-256 over the object's canonical text, as base64url. */
export function hashObject({ extId, typeId, active, fields }: DestinationObject): string {
  const canonical = JSON.stringify([
    extId,
    typeId,
    active,
    fields.map(({ fieldId, values }) => [fieldId, values]),
  ]);
  return createHash('sha256').update(canonical).digest('base64url').slice(0, 22);
}

/** Merges `mapped` into the object at the service, which keeps its fields outside `owned`. */
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

/**
 * Returns the object with only its owned fields, for a service that keeps unsent fields. Fields without a value are
 * sent empty.
 */
export function patchOf<T extends DestinationObject>(object: T, owned: ReadonlySet<string>): T {
  const values = new Map(object.fields.map((given) => [given.fieldId, given.values]));
  const fields = [...owned].map((fieldId) => ({ fieldId, values: values.get(fieldId) ?? [] }));
  return { ...object, fields, carried: undefined };
}

/** Returns true if type, active state and all fields are equal, so that a write would change nothing. */
export function isSameObject(a: DestinationObject, b: DestinationObject): boolean {
  return hashObject(a) === hashObject(b);
}

/** Returns the names of the uninterpreted properties that differ. */
export function diffCarried(from: DestinationObject, to: DestinationObject): string[] {
  const names = new Set([...Object.keys(from.carried ?? {}), ...Object.keys(to.carried ?? {})]);
  return [...names].filter((name) => !isDeepStrictEqual(from.carried?.[name], to.carried?.[name]));
}

export interface FieldChange {
  field: string;
  old: readonly string[];
  new: readonly string[];
}

/** Returns the fields that a write would change. `active` counts as a field. */
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

/** A field in the history of writes. `old` is missing if the object was not read before the write. */
export type WrittenField = Omit<FieldChange, 'old'> & Partial<Pick<FieldChange, 'old'>>;

/** Returns the fields that a write changes, if the object was read before (`from`), or else those that it sends. */
export function writtenFields(to: DestinationObject, from?: DestinationObject, names?: Iterable<string>) {
  if (from) return diffObjects(from, to);
  const values = new Map(to.fields.map((field) => [field.fieldId, field.values]));
  return [...(names ?? values.keys())].map((field) => ({ field, new: values.get(field) ?? [] }));
}
