// Objects of the sandbox, stored as the service stores them: found by external id, replaced as a whole. Objects made by
// hand may have no external id.
import { z } from 'zod';
import { Refusal } from './http.js';
import { createIdStore, reference, type Key, find, modifiedWithin, nowSeconds, period } from './stores.js';
import { fieldsSchema, type SandboxFields, type Schema } from './schema.js';

/** An object as a scheduler enters it. The service adds its integer id. */
export const objectInput = z.strictObject({
  extId: z.string().min(1),
  typeId: z.string().min(1),
  active: z.boolean().optional(),
  fields: fieldsSchema.optional(),
  /** Further properties of the object, for example its members. */
  properties: z.record(z.string(), z.unknown()).optional(),
});
export type SandboxObjectInput = z.infer<typeof objectInput>;

/** An object made by hand, with or without an external id. `id` sets its number, as after a restore. */
export const addedObject = objectInput.extend({
  extId: z.string().min(1).nullish(),
  id: z.int().positive().optional(),
});
export type AddedObject = z.infer<typeof addedObject>;

/** A change by hand. Missing keys stay; `properties` are replaced as a whole. A field without values is cleared. */
export const objectChange = addedObject.omit({ typeId: true, id: true });
export type ObjectChange = z.infer<typeof objectChange>;

export interface SandboxObject {
  id: number;
  extId: string | null;
  typeId: string;
  active: boolean;
  /** Fields with values, in the order of the field definitions. */
  fields: SandboxFields;
  /** Further properties of the object, if there are any. */
  properties?: Readonly<Record<string, unknown>> | undefined;
}

export type NamedObject = SandboxObject & { extId: string };

type StoredObject = SandboxObject & { modified: number };

export const objectFind = find.extend({
  typeId: reference.optional(),
  fields: z
    .strictObject({
      exactSearchFields: z.array(z.strictObject({ fieldId: reference, values: z.array(z.string()) })),
    })
    .optional(),
  modified: period.optional(),
  includeReferenceFields: z.boolean().optional(),
});

export interface ObjectOptions {
  /** If false, a find of objects by fields is refused. `ignored`: the find ignores its fields. */
  searchesFields?: boolean | 'ignored' | undefined;
  /** If true, a find by type also returns objects of subtypes. */
  findsSubtypes?: boolean | undefined;
  /** Treatment of external ids that differ only slightly. By default, they are different ids. */
  externalIds?: keyof typeof ID_WAYS | undefined;
}

const lower = (extId: string) => extId.toLowerCase();
const trimmed = (extId: string) => extId.trim();
const composed = (extId: string) => extId.normalize('NFC');
const cut = (extId: string) => extId.slice(0, 12);
/** Ids with equal `compared` results are equal. `stored` returns the form of an id in the store and in answers. */
export const ID_WAYS = {
  'ignore-case': { compared: lower },
  'lower-case': { stored: lower },
  trim: { compared: trimmed, stored: trimmed },
  normalize: { compared: composed, stored: composed },
  cut: { compared: cut, stored: cut },
} as const satisfies Record<string, Partial<Record<'compared' | 'stored', (extId: string) => string>>>;

export function createObjects(
  schema: Schema,
  { searchesFields = true, findsSubtypes, externalIds }: ObjectOptions = {},
) {
  const ways: { compared?: typeof lower; stored?: typeof lower } = externalIds ? ID_WAYS[externalIds] : {};
  const { compared, stored: toStored = (extId: string) => extId } = ways;
  const store = createIdStore<StoredObject>('object', 1001, ({ typeId }) => typeId, compared);

  const shownFields = ({ fields }: SandboxObject, derived = false) =>
    fields.filter(({ fieldId }) => derived || !schema.fields.get(fieldId)?.derived);
  const unshowable = new Set<number>();
  const show = ({ properties, ...stored }: StoredObject, derived?: boolean) => {
    if (unshowable.has(stored.id)) throw new Refusal(500, 'the object cannot be shown');
    return { ...properties, ...stored, fields: shownFields(stored, derived) };
  };

  const existing = (key: Key): StoredObject => {
    const found = store.get(key);
    if (found === undefined) throw new Refusal(404, `no object ${key}`);
    return found;
  };
  const requireFree = (extId: string | null): void => {
    if (extId !== null && store.get(extId) !== undefined) throw new Refusal(400, `object ${extId} exists`);
  };
  const placeOf = ({ fieldId }: { fieldId: string }) => schema.fields.get(fieldId)?.id ?? Infinity;
  const put = ({ fields, ...object }: SandboxObject) => {
    const filled = fields
      .filter(({ values }) => values.length > 0)
      .map(({ fieldId, values }) => ({ fieldId, values: [...values] }))
      .sort((a, b) => placeOf(a) - placeOf(b));
    return withoutModified(store.put({ ...object, fields: filled, modified: nowSeconds() }));
  };
  /** Replaces an external id in all references to the object, so that they still refer to it after a change. */
  const renameReferences = (typeId: string, from: string, to: string | null): void => {
    const isReference = ({ fieldId, values }: SandboxFields[number]) =>
      schema.fields.get(fieldId)?.reference === typeId && values.includes(from);
    for (const object of store.list()) {
      if (!object.fields.some(isReference)) continue;
      const fields = object.fields.map((field) =>
        isReference(field)
          ? { ...field, values: field.values.flatMap((value) => (value === from ? (to ?? []) : value)) }
          : field,
      );
      store.put({ ...object, fields });
    }
  };

  function object(key: string): NamedObject | undefined;
  function object(key: Key): SandboxObject | undefined;
  function object(key: Key): SandboxObject | undefined {
    const stored = store.get(key);
    return stored && withoutModified(stored);
  }

  return {
    store,

    /** Returns the filters of a find of objects, and the function that shows each result. */
    selectObjects(request: z.infer<typeof objectFind>) {
      const { typeId: type, modified, includeReferenceFields: derived } = request;
      if (request.fields !== undefined && searchesFields === false)
        throw new Refusal(400, 'fields: objects cannot be searched by fields');
      const searched = searchesFields === true ? (request.fields?.exactSearchFields ?? []) : [];
      if (type !== undefined) schema.types.require(type);
      const byFields = searched.map(({ fieldId, values }) => {
        schema.fields.require(fieldId);
        const wanted = new Set(values);
        return (object: StoredObject) =>
          shownFields(object, derived).some(
            (field) => field.fieldId === fieldId && field.values.some((value) => wanted.has(value)),
          );
      });
      const isOfType = (object: StoredObject) => type === undefined || schema.isA(object.typeId, type);
      return {
        group: findsSubtypes ? undefined : type,
        filters: [modifiedWithin(modified), findsSubtypes ? isOfType : undefined, ...byFields],
        show: (object: StoredObject) => show(object, derived),
      };
    },

    controls: {
      /** Makes each page of a find that contains this object fail with 500. */
      failToShow: (key: Key): void => void unshowable.add(existing(key).id),
      /** Returns the objects that have an external id. */
      objects: (): NamedObject[] => store.list().map(withoutModified).filter(isNamed),
      unnamedObjects: (): SandboxObject[] =>
        store
          .list()
          .filter((object) => !isNamed(object))
          .map(withoutModified),
      object,
      /**
       * Creates or replaces an object without checks, like a scheduler at the service. Missing fields are cleared. With
       * `id`, replaces that object, whatever its external id.
       */
      putObject(input: SandboxObjectInput & { id?: number | undefined }): NamedObject {
        const { active = true, fields = [], ...object } = input;
        const extId = toStored(input.extId);
        const id = input.id ?? store.get(extId)?.id ?? store.nextId();
        return { ...put({ ...object, id, extId, active, fields }), extId };
      },
      addObject({ extId = null, id, active = true, fields = [], ...object }: AddedObject): SandboxObject {
        requireFree(extId);
        return put({ ...object, id: id ?? store.nextId(), extId, active, fields });
      },
      /** Changes an object by hand. `key` is its number or external id. */
      changeObject(key: Key, change: ObjectChange): SandboxObject {
        const was = existing(key);
        const { extId = was.extId, active = was.active, properties = was.properties } = change;
        if (extId !== was.extId) requireFree(extId);
        const values = new Map(
          [...was.fields, ...(change.fields ?? [])].map((field) => [field.fieldId, field.values]),
        );
        const fields = [...values].map(([fieldId, values]) => ({ fieldId, values }));
        const changed = put({ ...was, extId, active, fields, properties });
        if (was.extId !== null && extId !== was.extId) renameReferences(was.typeId, was.extId, extId);
        return changed;
      },
      /** Removes an object without a trace. References to it stay. */
      removeObject: (key: Key): void => store.remove(existing(key)),
    },
  };
}

export type Objects = ReturnType<typeof createObjects>;

function isNamed<T extends SandboxObject>(object: T): object is T & { extId: string } {
  return object.extId !== null;
}

function withoutModified({ id, extId, typeId, active, fields, properties }: StoredObject): SandboxObject {
  return { id, extId, typeId, active, fields, ...(properties && { properties }) };
}
