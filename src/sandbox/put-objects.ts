// The bulk write: which objects the service accepts, which it refuses alone, and what makes it refuse the whole call. All of
// it is assumed, nothing is published; some refusals can be switched from one kind to the other.
import { z } from 'zod';
import { Refusal } from './http.js';
import { idFormat, reference, type IdFormat } from './stores.js';
import type { Objects, SandboxObjectInput } from './object-store.js';
import type { SandboxFields, Schema } from './schema.js';

export const refusalSchema = z.strictObject({
  status: z.int().min(400).max(599),
  message: z.string(),
  /** Refuse the whole call that contains the object, not the object alone. */
  wholeCall: z.boolean().optional(),
});
export type ObjectRefusal = z.infer<typeof refusalSchema>;

export const putBody = z.strictObject({
  idFormat,
  objects: z.array(
    z.looseObject({
      /** The object that is to get `extId`. */
      id: z.int().optional(),
      extId: z.string().min(1),
      typeId: reference,
      active: z.boolean().optional(),
      fields: z.array(z.strictObject({ fieldId: reference, values: z.array(z.string()) })),
      modified: z.never().optional(),
    }),
  ),
});

/** `PATCH` keeps fields and properties that are not named. */
export const upsertBody = putBody.extend({ importMode: z.enum(['PATCH', 'PUT']).default('PATCH') });

export interface PutOptions {
  /** Fixed when given; else 207 when an object was refused and 200 when none was. */
  putStatus?: 200 | 207 | undefined;
  /** Most objects in one PUT; beyond it 413. */
  maxObjects?: number | undefined;
  /**
   * The service refuses the whole call, or the object alone, for a reference to an unknown object. `stored`: the object alone, also
   * where the other one is in the same call.
   */
  references?: 'call' | 'item' | 'stored' | undefined;
  /**
   * The meaning of `id` beside `extId`: true, that object without an external id gets this one; `ignored`, none, so that
   * an unknown `extId` creates an object. Otherwise an object with `id` is refused.
   */
  assignsExternalIds?: boolean | 'ignored' | undefined;
  /** True: what an object has and a write leaves out stays, fields and other properties. */
  merges?: boolean | undefined;
  /** A PUT may give an object another type. Otherwise the object is refused. */
  changeTypes?: boolean | undefined;
}

/** An object of a call, with its references as external ids; `typeId` is empty when the type is unknown. */
type SentObject = SandboxObjectInput & { fields: SandboxFields; id: number | undefined };

/** Characters that are left of a value that is cut. */
const CUT_TO = 10;

/** The part of accepted values that is stored. */
function storedValues(values: readonly string[], as: 'trimmed' | 'cut' | 'sorted' | 'dropped' | undefined) {
  switch (as) {
    case 'trimmed':
      return values.map((value) => value.trim());
    case 'cut':
      return values.map((value) => value.slice(0, CUT_TO));
    case 'sorted':
      return values.toSorted();
    case 'dropped':
      return [];
    case undefined:
      return values;
  }
}

export function createPutObjects(
  { schema, objects }: { schema: Schema; objects: Objects },
  {
    putStatus,
    maxObjects = 1000,
    references = 'call',
    assignsExternalIds = false,
    merges = false,
    changeTypes,
  }: PutOptions,
) {
  const ordered = new Map<string, ObjectRefusal>();

  /** The values of a field. References are stored by external id; with INTERNAL they arrive as integers in strings. */
  const toExtIds = (values: readonly string[], format: IdFormat) =>
    values.map((value) => {
      if (format === 'EXTERNAL') return value;
      if (!/^\d+$/.test(value))
        throw new Refusal(400, `reference ${value}: an integer expected with idFormat INTERNAL`);
      return objects.store.get(Number(value))?.extId ?? value;
    });

  /** Why the object of this number cannot be given this external id. */
  function faultOfId(id: number, extId: string): string | undefined {
    if (!assignsExternalIds) return 'id: not accepted beside extId';
    const named = objects.store.get(id);
    if (named === undefined) return `id: no object ${id}`;
    if (named.extId === extId) return undefined;
    if (named.extId !== null) return `id: object ${id} has the external id ${named.extId}`;
    const owner = objects.store.get(extId);
    return owner && `extId: ${extId} is the external id of object ${owner.id}`;
  }

  /** Why the service would refuse this object alone, whatever else is in the call. */
  function faultOf({ id, extId, typeId, fields }: SentObject): string | undefined {
    const fault = id === undefined ? undefined : faultOfId(id, extId);
    if (fault !== undefined) return fault;
    const stored = objects.store.get(id ?? extId)?.typeId;
    if (stored !== undefined && stored !== typeId && !changeTypes)
      return `object is of type ${stored}, its type cannot be changed`;
    const filled = new Set<string>();
    for (const { fieldId, values } of fields) {
      const { type = typeId, maxLength = Infinity } = schema.fields.get(fieldId) ?? {};
      if (filled.has(fieldId)) return `field ${fieldId} is named twice`;
      if (values.length > 0) filled.add(fieldId);
      if (!schema.isA(typeId, type)) return `field ${fieldId} does not belong to type ${typeId}`;
      if (values.some((value) => value.length > maxLength))
        return `field ${fieldId}: longer than ${maxLength} characters`;
    }
    const missing = schema.fields
      .list()
      .find(
        ({ extId, mandatory, type = typeId }) =>
          mandatory && schema.isA(typeId, type) && !filled.has(extId ?? ''),
      );
    return missing && `mandatory field ${missing.extId ?? missing.id} is missing`;
  }

  /** A reference must name an object that is stored or, mostly, accepted in this call, so one refusal can cause others. */
  function checkReferences(sent: ReadonlyMap<string, SentObject>, refused: Map<string, ObjectRefusal>): void {
    const unstored = [...sent.values()].flatMap(({ extId, fields }) =>
      fields.flatMap(({ fieldId, values }) => {
        const type = schema.fields.get(fieldId)?.reference;
        return values
          .filter((value) => type !== undefined && !schema.isA(objects.store.get(value)?.typeId, type))
          .map((value) => ({
            extId,
            value,
            isSent:
              references !== 'stored' && type !== undefined && schema.isA(sent.get(value)?.typeId, type),
            message: `field ${fieldId}: object ${value} of type ${type} does not exist`,
          }));
      }),
    );
    const unknown = unstored.find(({ isSent }) => !isSent);
    if (references === 'call' && unknown) throw new Refusal(400, unknown.message);
    for (let refusedBefore = -1; refusedBefore !== refused.size;) {
      refusedBefore = refused.size;
      for (const { extId, value, isSent, message } of unstored)
        if (!refused.has(extId) && !(isSent && !refused.has(value)))
          refused.set(extId, { status: 400, message });
    }
  }

  return {
    /** Checks and applies one `PUT /objects` or upsert; refusals of the whole call are thrown and change nothing. */
    putObjects(call: z.infer<typeof putBody> & { importMode?: 'PATCH' | 'PUT' | undefined }) {
      if (call.objects.length > maxObjects)
        throw new Refusal(413, `${call.objects.length} objects, at most ${maxObjects} in one call`);
      const sent = new Map<string, SentObject>();
      // Why an object alone is refused; objects that are not in the map are accepted.
      const refused = new Map<string, ObjectRefusal>();
      const numbers = new Set<number>();
      for (const { id: number, extId, typeId, active, fields, ...properties } of call.objects) {
        const id = assignsExternalIds === 'ignored' ? undefined : number;
        if (sent.has(extId)) throw new Refusal(400, `object ${extId} is named twice in the call`);
        if (id !== undefined && numbers.has(id))
          throw new Refusal(400, `object ${id} is named twice in the call`);
        if (id !== undefined) numbers.add(id);
        const refusal = ordered.get(extId);
        if (refusal?.wholeCall) throw new Refusal(refusal.status, refusal.message);
        const type = schema.types.resolve(typeId, call.idFormat);
        const keeps = merges || call.importMode === 'PATCH';
        const was = keeps ? objects.controls.object(id ?? extId) : undefined;
        const sentFields = fields.map(({ fieldId, values }) => {
          const field = schema.fields.require(fieldId, call.idFormat);
          return {
            fieldId: field.extId ?? '',
            values: field.reference === undefined ? values : toExtIds(values, call.idFormat),
          };
        });
        const kept = (was?.fields ?? []).filter(
          ({ fieldId }) => !sentFields.some((sent) => sent.fieldId === fieldId),
        );
        const all = { ...was?.properties, ...properties };
        const object = {
          id,
          extId,
          typeId: type?.extId ?? '',
          active: active ?? was?.active,
          ...(Object.keys(all).length > 0 && { properties: all }),
          fields: [...kept, ...sentFields],
        };
        sent.set(extId, object);
        const message = type === undefined ? `unknown type ${typeId}` : faultOf(object);
        if (refusal !== undefined) refused.set(extId, refusal);
        else if (message !== undefined) refused.set(extId, { status: 400, message });
      }
      checkReferences(sent, refused);

      const results = [...sent.values()].map((object) => {
        const { extId } = object;
        const refusal = refused.get(extId);
        if (refusal) return { extId, status: refusal.status, message: refusal.message };
        const fields = object.fields.map(({ fieldId, values }) => ({
          fieldId,
          values: storedValues(values, schema.fields.get(fieldId)?.storedAs),
        }));
        const stored = objects.controls.putObject({ ...object, fields });
        return { extId: stored.extId, id: stored.id, status: 200 };
      });
      return { results };
    },
    statusOf: ({ results }: { results: readonly { status: number }[] }) =>
      putStatus ?? (results.some(({ status }) => status !== 200) ? 207 : 200),

    controls: {
      /** Refuses this object from now on. */
      refuseObject: (extId: string, refusal: ObjectRefusal): void => void ordered.set(extId, refusal),
      allowObject: (extId: string): void => void ordered.delete(extId),
    },
  };
}
