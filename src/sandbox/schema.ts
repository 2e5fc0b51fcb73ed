// The organization's own types and fields. Their names differ between organizations, so a rehearsal defines its own. An
// external id that is defined again keeps its id, as when an administrator edits it.
import { z } from 'zod';
import { Refusal } from './http.js';
import { createIdStore } from './id-store.js';
import type { Identified, IdFormat, IdStore, ObjectReference } from './id-store.js';

export const schemaDefinition = z.strictObject({
  types: z.array(z.strictObject({ extId: z.string().min(1), name: z.string().optional() })),
  fields: z.array(
    z.strictObject({
      extId: z.string().min(1),
      name: z.string().optional(),
      /** The type it belongs to; any, when absent. */
      type: z.string().optional(),
      mandatory: z.boolean().optional(),
      maxLength: z.int().optional(),
      /** Values must be external ids of objects of this type. */
      reference: z.string().optional(),
    }),
  ),
});
export type SandboxSchema = z.input<typeof schemaDefinition>;

/** Fields with their values, by external id. */
export const fieldsSchema = z
  .array(z.strictObject({ fieldId: z.string(), values: z.array(z.string()).readonly() }))
  .readonly();
export type SandboxFields = z.infer<typeof fieldsSchema>;

const FIRST_TYPE = 1;
const FIRST_FIELD = 101;

/** Types and fields; without a definition every type is unknown. */
export function createSchema(initial: SandboxSchema = { types: [], fields: [] }) {
  const types = createIdStore<SandboxSchema['types'][number] & Identified>(FIRST_TYPE);
  const fields = createIdStore<SandboxSchema['fields'][number] & Identified>(FIRST_FIELD);
  const typeIds = new Map<string, number>();
  const fieldIds = new Map<string, number>();

  /** Replaces all types and fields; known external ids keep their ids. */
  function defineSchema(schema: SandboxSchema): void {
    const known = new Set(schema.types.map(({ extId }) => extId));
    for (const field of schema.fields)
      for (const type of [field.type, field.reference])
        if (type !== undefined && !known.has(type))
          throw new Refusal(400, `field ${field.extId}: type ${type} is not defined`);
    redefine(types, typeIds, schema.types);
    redefine(fields, fieldIds, schema.fields);
  }
  defineSchema(initial);

  return {
    types,
    fields,
    /** The type or the field of a reference; a 400 when it is not defined. */
    type: (given: ObjectReference, format: IdFormat) =>
      types.resolve(given, format, 'typeId') ?? refuseUnknown('type', given),
    field: (given: ObjectReference, format: IdFormat) =>
      fields.resolve(given, format, 'fieldId') ?? refuseUnknown('field', given),
    controls: { defineSchema },
  };
}

export type Schema = ReturnType<typeof createSchema>;

function redefine<T extends { extId: string }>(
  store: IdStore<T & Identified>,
  ids: Map<string, number>,
  definitions: readonly T[],
): void {
  for (const one of store.all()) store.remove(one);
  for (const definition of definitions) {
    const id = ids.get(definition.extId) ?? store.nextId();
    ids.set(definition.extId, id);
    store.put({ ...definition, id });
  }
}

function refuseUnknown(kind: string, given: ObjectReference): never {
  throw new Refusal(400, `unknown ${kind} ${given}`);
}
