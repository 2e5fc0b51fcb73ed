// The organization's own types and fields. Their names differ between organizations, so a rehearsal defines its own. An
// external id that is defined again keeps its id, as when an administrator edits it.
import { z } from 'zod';
import { Refusal } from './http.js';
import { createIdStore, type Identified } from './stores.js';

/** Null: made by hand, so that nothing can name it but its number. */
const extId = z.string().min(1).nullable();

export const schemaDefinition = z.strictObject({
  /** `parent`: the type that the subtype belongs to, and whose fields it has. */
  types: z.array(z.strictObject({ extId, name: z.string().optional(), parent: z.string().optional() })),
  fields: z.array(
    z.strictObject({
      extId,
      name: z.string().optional(),
      /** The type it belongs to; any, when absent. */
      type: z.string().optional(),
      mandatory: z.boolean().optional(),
      maxLength: z.int().optional(),
      /** Values are changed like this before they are stored, and the service does not say so. */
      storedAs: z.enum(['trimmed', 'cut', 'sorted', 'dropped']).optional(),
      /** An answer has its values only where `includeReferenceFields` asks for them. */
      derived: z.boolean().optional(),
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

/** Types and fields; without a definition every type is unknown. */
export function createSchema(initial: SandboxSchema = { types: [], fields: [] }) {
  const types = createIdStore<SandboxSchema['types'][number] & Identified>('type', 1);
  const fields = createIdStore<SandboxSchema['fields'][number] & Identified>('field', 101);

  const givenIds = new Map<string, number>();
  /** The id that this external id has or had in the store; the next one when it is new, or none. */
  const idIn = (store: { nextId(): number }, noun: string, extId: string | null): number => {
    if (extId === null) return store.nextId();
    const id = givenIds.get(`${noun} ${extId}`) ?? store.nextId();
    givenIds.set(`${noun} ${extId}`, id);
    return id;
  };

  /** Replaces all types and fields; known external ids keep their ids. */
  function defineSchema(schema: SandboxSchema): void {
    const known = new Set(schema.types.map(({ extId }) => extId));
    for (const field of schema.fields)
      for (const type of [field.type, field.reference])
        if (type !== undefined && !known.has(type))
          throw new Refusal(400, `field ${field.extId}: type ${type} is not defined`);
    for (const type of types.list()) types.remove(type);
    for (const field of fields.list()) fields.remove(field);
    for (const type of schema.types) types.put({ ...type, id: idIn(types, 'type', type.extId) });
    for (const field of schema.fields) fields.put({ ...field, id: idIn(fields, 'field', field.extId) });
  }
  defineSchema(initial);

  /** Tells whether `type` is the type `ancestor` or a subtype of it, at any depth. */
  const isA = (type: string | undefined, ancestor: string): boolean =>
    type === ancestor || (type !== undefined && isA(types.get(type)?.parent, ancestor));

  return { types, fields, isA, controls: { defineSchema } };
}

export type Schema = ReturnType<typeof createSchema>;
