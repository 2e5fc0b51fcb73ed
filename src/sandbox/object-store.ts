// The objects of the organization, as the service keeps them: found by external id, replaced whole.
import { find, paged, parseBody, period, reference, select } from './paging.js';
import type { IdFormat } from './paging.js';
import { z } from 'zod';
import type { Schema } from './schema.js';
import { Refusal } from './refusal.js';

export interface SandboxObject {
  id: number;
  extId: string;
  /** External id of the type. */
  typeId: string;
  active: boolean;
  /** In the order of the field definitions, whatever order they were sent in; without empty ones. */
  fields: { fieldId: string; values: string[] }[];
}

/** An object as a person makes it at the service: the service gives the id. */
export interface SandboxObjectInput {
  extId: string;
  typeId: string;
  active?: boolean | undefined;
  fields?: { fieldId: string; values: string[] }[] | undefined;
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
    get: (extId: string): SandboxObject | undefined => copy(byExtId.get(extId)),
    getById: (id: number): SandboxObject | undefined => copy(byId.get(id)),
    typeOf: (extId: string): string | undefined => byExtId.get(extId)?.typeId,
    extIdOf: (id: number): string | undefined => byId.get(id)?.extId,
    idOf: (extId: string): number | undefined => byExtId.get(extId)?.id,
    size: () => byExtId.size,
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

function copy(object: Stored): SandboxObject;
function copy(object: Stored | undefined): SandboxObject | undefined;
function copy(object: Stored | undefined): SandboxObject | undefined {
  if (object === undefined) return undefined;
  const { id, extId, typeId, active, fields } = object;
  return {
    id,
    extId,
    typeId,
    active,
    fields: fields.map((field) => ({ ...field, values: [...field.values] })),
  };
}
