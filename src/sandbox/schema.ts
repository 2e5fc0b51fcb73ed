// The organization's own types and fields. Their names differ between organizations, so a rehearsal defines its own. An
// external id that is defined again keeps its id, as when an administrator edits it.
import { z } from 'zod';
import { find, paged, parseBody, select } from './paging.js';
import type { IdFormat, ObjectReference } from './paging.js';
import { Refusal } from './refusal.js';

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
export type SandboxField = SandboxSchema['fields'][number] & { id: number };
export type SandboxType = SandboxSchema['types'][number] & { id: number };

const FIRST_TYPE = 1;
const FIRST_FIELD = 101;

/** Types and fields, found by id and by external id. Empty at first: then every type is unknown. */
export function createSchema() {
  const types = createIds<SandboxType>(FIRST_TYPE);
  const fields = createIds<SandboxField>(FIRST_FIELD);
  const mandatory = new Map<string, SandboxField[]>();

  const findIn = (store: typeof types | typeof fields, body: unknown, maxPage: number) => {
    const request = parseBody(find, body);
    const all: readonly (SandboxType | SandboxField)[] = store.list();
    const found = select({ all, byId: store.byId, byExtId: store.byExtId }, request, undefined);
    return paged(found, request, maxPage, ({ id, extId, name }) => ({ id, extId, name: name ?? extId }));
  };

  return {
    define(schema: SandboxSchema): void {
      const known = new Set(schema.types.map((type) => type.extId));
      for (const field of schema.fields) {
        for (const type of [field.type, field.reference]) {
          if (type !== undefined && !known.has(type))
            throw new Refusal(400, `field ${field.extId}: type ${type} is not defined`);
        }
      }
      types.replace(schema.types);
      fields.replace(schema.fields);
      mandatory.clear();
      for (const type of types.list()) {
        const belongs = (field: SandboxField) => field.type === undefined || field.type === type.extId;
        mandatory.set(
          type.extId,
          fields.list().filter((field) => field.mandatory === true && belongs(field)),
        );
      }
    },
    type: (given: ObjectReference, format: IdFormat) => types.resolve(given, format, 'typeId'),
    field: (given: ObjectReference, format: IdFormat) => fields.resolve(given, format, 'fieldId'),
    fieldByExtId: fields.byExtId,
    /** The id as an answer shows it; 0 for what is no longer defined. */
    shownType: (extId: string, format: IdFormat) => types.shown(extId, format),
    shownField: (extId: string, format: IdFormat) => fields.shown(extId, format),
    mandatoryFields: (type: string): readonly SandboxField[] => mandatory.get(type) ?? [],
    findTypes: (body: unknown, maxPage: number) => findIn(types, body, maxPage),
    findFields: (body: unknown, maxPage: number) => findIn(fields, body, maxPage),
  };
}

export type Schema = ReturnType<typeof createSchema>;

/** External ids of one kind, with the integer ids the service gives them. */
function createIds<T extends { id: number; extId: string }>(first: number) {
  const given = new Map<string, number>();
  let current = new Map<string, T>();
  let byId = new Map<number, T>();

  return {
    replace(definitions: readonly Omit<T, 'id'>[]): void {
      current = new Map();
      for (const definition of definitions) {
        const extId = (definition as { extId: string }).extId;
        const id = given.get(extId) ?? first + given.size;
        given.set(extId, id);
        current.set(extId, { ...definition, id } as T);
      }
      byId = new Map([...current.values()].sort((a, b) => a.id - b.id).map((one) => [one.id, one]));
    },
    list: (): T[] => [...byId.values()],
    byId: (id: number): T | undefined => byId.get(id),
    byExtId: (extId: string): T | undefined => current.get(extId),
    shown: (extId: string, format: IdFormat): string | number =>
      format === 'EXTERNAL' ? extId : (current.get(extId)?.id ?? 0),
    /** What a reference names, undefined if nothing; a 400 when it is not of the kind `idFormat` announced. */
    resolve(reference: ObjectReference, format: IdFormat, place: string): T | undefined {
      if (format === 'EXTERNAL' && typeof reference === 'string') return current.get(reference);
      if (format === 'INTERNAL' && typeof reference === 'number') return byId.get(reference);
      const expected = format === 'EXTERNAL' ? 'a string' : 'an integer';
      throw new Refusal(400, `${place}: ${expected} expected with idFormat ${format}`);
    },
  };
}
