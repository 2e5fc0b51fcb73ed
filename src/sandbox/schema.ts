// Types and fields of an organization. They differ between organizations, so a rehearsal defines its own. A definition
// with a known external id keeps its integer id.
import { z } from 'zod';
import { Refusal } from './http.js';
import { createIdStore, type Identified } from './stores.js';

/** External id, or null for a definition that can be referred to only by its integer id. */
const extId = z.string().min(1).nullable();

export const schemaDefinition = z.strictObject({
  /** Types. `parent` is the type whose fields a subtype inherits. */
  types: z.array(z.strictObject({ extId, name: z.string().optional(), parent: z.string().optional() })),
  fields: z.array(
    z.strictObject({
      extId,
      name: z.string().optional(),
      /** Type to which the field belongs. If undefined, the field belongs to every type. */
      type: z.string().optional(),
      mandatory: z.boolean().optional(),
      maxLength: z.int().optional(),
      /** Change of values that the service makes without a notice before it stores them. */
      storedAs: z.enum(['trimmed', 'cut', 'sorted', 'dropped']).optional(),
      /** If true, answers contain the field only if the request has `includeReferenceFields`. */
      derived: z.boolean().optional(),
      /** Type of the objects whose external ids are the values of this field. */
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

/** Creates the types and fields. Without a definition, every type is unknown. */
export function createSchema(initial: SandboxSchema = { types: [], fields: [] }) {
  const types = createIdStore<SandboxSchema['types'][number] & Identified>('type', 1);
  const fields = createIdStore<SandboxSchema['fields'][number] & Identified>('field', 101);

  const givenIds = new Map<string, number>();
  /** Returns the integer id that this external id has or once had, or a new one. */
  const idIn = (store: { nextId(): number }, noun: string, extId: string | null): number => {
    if (extId === null) return store.nextId();
    const id = givenIds.get(`${noun} ${extId}`) ?? store.nextId();
    givenIds.set(`${noun} ${extId}`, id);
    return id;
  };

  /** Replaces all types and fields. Known external ids keep their integer ids. */
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

  /** Returns true if `type` is `ancestor` or one of its subtypes, at any depth. */
  const isA = (type: string | undefined, ancestor: string): boolean =>
    type === ancestor || (type !== undefined && isA(types.get(type)?.parent, ancestor));

  return { types, fields, isA, controls: { defineSchema } };
}

export type Schema = ReturnType<typeof createSchema>;
