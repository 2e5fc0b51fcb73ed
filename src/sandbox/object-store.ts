// The objects of the organization, as the service stores them: found by external id, replaced whole.
import { z } from 'zod';
import { createIdStore, reference, type IdFormat } from './id-store.js';
import { find, modifiedWithin, nowSeconds, period } from './paging.js';
import { fieldsSchema, type SandboxFields, type Schema } from './schema.js';

/** An object as a scheduler enters it at the service, which gives it an id. */
export const objectInput = z.strictObject({
  extId: z.string().min(1),
  /** External id of the type. */
  typeId: z.string().min(1),
  active: z.boolean().optional(),
  fields: fieldsSchema.optional(),
});
export type SandboxObjectInput = z.infer<typeof objectInput>;

export interface SandboxObject {
  id: number;
  extId: string;
  typeId: string;
  active: boolean;
  /** In the order of the field definitions, without empty ones. */
  fields: SandboxFields;
}

type StoredObject = SandboxObject & { modified: number };

export const objectFind = find.extend({
  typeId: reference.optional(),
  fields: z
    .strictObject({
      exactSearchFields: z.array(z.strictObject({ fieldId: reference, values: z.array(z.string()) })),
    })
    .optional(),
  modified: period.optional(),
});

export function createObjects(schema: Schema) {
  const store = createIdStore<StoredObject>('object', 1001);

  const show = (stored: StoredObject, format: IdFormat) => ({
    ...withoutModified(stored),
    typeId: schema.types.shown(stored.typeId, format),
    fields: stored.fields.map(({ fieldId, values }) => ({
      fieldId: schema.fields.shown(fieldId, format),
      values: schema.fields.get(fieldId)?.reference
        ? values.map((value) => String(store.shown(value, format)))
        : values,
    })),
  });

  return {
    store,

    /** What a find of objects selects. */
    selectObjects(request: z.infer<typeof objectFind>) {
      const { typeId, modified, idFormat: format } = request;
      const type = typeId === undefined ? undefined : schema.types.require(typeId, format).extId;
      const byFields = (request.fields?.exactSearchFields ?? []).map(({ fieldId, values }) => {
        const { extId } = schema.fields.require(fieldId, format);
        const wanted = new Set(values);
        return ({ fields }: StoredObject) =>
          fields.some((field) => field.fieldId === extId && field.values.some((one) => wanted.has(one)));
      });
      const byType = ({ typeId }: StoredObject) => typeId === type;
      return {
        filters: [type === undefined ? undefined : byType, modifiedWithin(modified), ...byFields],
        show: (object: StoredObject) => show(object, format),
      };
    },

    controls: {
      objects: (): SandboxObject[] => store.all().map(withoutModified),
      object(extId: string): SandboxObject | undefined {
        const stored = store.get(extId);
        return stored && withoutModified(stored);
      },
      /**
       * Creates or replaces an object as a scheduler does at the service: nothing is checked. A field that is not given is
       * emptied.
       */
      putObject({ extId, typeId, active = true, fields = [] }: SandboxObjectInput): SandboxObject {
        const place = ({ fieldId }: { fieldId: string }) => schema.fields.get(fieldId)?.id ?? Infinity;
        const filled = fields
          .filter(({ values }) => values.length > 0)
          .map(({ fieldId, values }) => ({ fieldId, values: [...values] }))
          .sort((a, b) => place(a) - place(b));
        const stored = {
          id: store.idFor(extId),
          extId,
          typeId,
          active,
          fields: filled,
          modified: nowSeconds(),
        };
        return withoutModified(store.put(stored));
      },
    },
  };
}

export type Objects = ReturnType<typeof createObjects>;

function withoutModified({ id, extId, typeId, active, fields }: StoredObject): SandboxObject {
  return { id, extId, typeId, active, fields };
}
