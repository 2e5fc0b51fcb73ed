// The objects of the organization, as the service stores them: found by external id, replaced whole.
import { z } from 'zod';
import { fieldsSchema, find, paged, parseBody, period, reference, select } from './paging.js';
import type { IdFormat, SandboxFields } from './paging.js';
import type { Schema } from './schema.js';
import { Refusal } from './refusal.js';

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

interface Stored extends SandboxObject {
  modified: number;
}

const FIRST_OBJECT = 1001;

const objectFind = find.extend({
  typeId: reference.optional(),
  fields: z
    .strictObject({
      exactSearchFields: z.array(z.strictObject({ fieldId: reference, values: z.array(z.string()) })),
    })
    .optional(),
  modified: period.optional(),
});

/** The store of objects; ids ascend in the order of creation. */
export function createObjects(schema: Schema) {
  const byExtId = new Map<string, Stored>();
  const byId = new Map<number, Stored>();

  const show = (object: Stored, format: IdFormat) => ({
    id: object.id,
    extId: object.extId,
    typeId: schema.shownType(object.typeId, format),
    active: object.active,
    fields: object.fields.map(({ fieldId, values }) => ({
      fieldId: schema.shownField(fieldId, format),
      values: isReference(fieldId) ? values.map((value) => shownValue(value, format)) : values,
    })),
  });
  const isReference = (fieldId: string) => schema.fieldByExtId(fieldId)?.reference !== undefined;
  const shownValue = (extId: string, format: IdFormat) =>
    format === 'EXTERNAL' ? extId : String(byExtId.get(extId)?.id ?? 0);

  return {
    get(extId: string): SandboxObject | undefined {
      const object = byExtId.get(extId);
      return object && copy(object);
    },
    typeOf: (extId: string): string | undefined => byExtId.get(extId)?.typeId,
    extIdOf: (id: number): string | undefined => byId.get(id)?.extId,
    idOf: (extId: string): number | undefined => byExtId.get(extId)?.id,
    list: (): SandboxObject[] => [...byExtId.values()].map((object) => copy(object)),

    /** Creates the object or replaces it whole: a field that is not given is emptied. */
    put(input: SandboxObjectInput): SandboxObject {
      const place = (fieldId: string) => schema.fieldByExtId(fieldId)?.id ?? Infinity;
      const fields = (input.fields ?? [])
        .filter((field) => field.values.length > 0)
        .map(({ fieldId, values }) => ({ fieldId, values: [...values] }))
        .sort((a, b) => place(a.fieldId) - place(b.fieldId));
      const stored: Stored = {
        id: byExtId.get(input.extId)?.id ?? FIRST_OBJECT + byExtId.size,
        extId: input.extId,
        typeId: input.typeId,
        active: input.active ?? true,
        fields,
        modified: Math.floor(Date.now() / 1000),
      };
      byExtId.set(stored.extId, stored);
      byId.set(stored.id, stored);
      return copy(stored);
    },

    find(body: unknown, maxPage: number) {
      const request = parseBody(objectFind, body);
      const { typeId, modified, fields, idFormat: format } = request;
      const type = typeId === undefined ? undefined : schema.type(typeId, format);
      if (typeId !== undefined && type === undefined) throw new Refusal(400, `unknown type ${typeId}`);
      const wanted = (fields?.exactSearchFields ?? []).map(({ fieldId, values }) => {
        const field = schema.field(fieldId, format);
        if (field === undefined) throw new Refusal(400, `unknown field ${fieldId}`);
        return { fieldId: field.extId, values: new Set(values) };
      });
      const matches = (object: Stored) =>
        (type === undefined || object.typeId === type.extId) &&
        (modified === undefined ||
          (object.modified >= modified.startDate && object.modified <= modified.endDate)) &&
        wanted.every(({ fieldId, values }) =>
          object.fields.some(
            (field) => field.fieldId === fieldId && field.values.some((value) => values.has(value)),
          ),
        );
      const isFiltered = type !== undefined || modified !== undefined || wanted.length > 0;
      const store = {
        all: byExtId.values(),
        byId: (id: number) => byId.get(id),
        byExtId: (extId: string) => byExtId.get(extId),
      };
      const found = select(store, request, isFiltered ? matches : undefined);
      return paged(found, request, maxPage, (object) => show(object, format));
    },
  };
}

export type Objects = ReturnType<typeof createObjects>;

function copy({ id, extId, typeId, active, fields }: Stored): SandboxObject {
  const copied = fields.map(({ fieldId, values }) => ({ fieldId, values: [...values] }));
  return { id, extId, typeId, active, fields: copied };
}
