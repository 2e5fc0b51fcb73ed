// The bulk write of the sandbox: objects may be accepted, refused alone, or cause the refusal of the whole call. All of
// this is assumed, because the service's behaviour is not published.
import { z } from 'zod';
import { Refusal } from './http.js';
import { idFormat, reference } from './stores.js';
import type { Objects, SandboxObjectInput } from './object-store.js';
import type { SandboxFields, Schema } from './schema.js';

export const refusalSchema = z.strictObject({
  status: z.int().min(400).max(599),
  message: z.string(),
  /** If true, the whole call that contains the object is refused, not only the object. */
  wholeCall: z.boolean().optional(),
});
export type ObjectRefusal = z.infer<typeof refusalSchema>;

export const putBody = z.strictObject({
  idFormat,
  objects: z.array(
    z.looseObject({
      /** Integer id of the object that gets `extId` as its external id. */
      id: z.int().optional(),
      extId: z.string().min(1),
      typeId: reference,
      active: z.boolean().optional(),
      fields: z.array(z.strictObject({ fieldId: reference, values: z.array(z.string()) })),
      modified: z.never().optional(),
    }),
  ),
});

/** Body of an upsert. `PATCH` keeps the fields and properties that are not named. */
export const upsertBody = putBody.extend({ importMode: z.enum(['PATCH', 'PUT']).default('PATCH') });

export interface PutOptions {
  /** Status of all PUT answers. By default 207 if an object was refused, otherwise 200. */
  putStatus?: 200 | 207 | undefined;
  /** Maximum number of objects in one PUT; a larger PUT is refused with 413. */
  maxObjects?: number | undefined;
  /**
   * Effect of a reference to an unknown object: refuse the whole `call`, or only the object (`item`). `stored`: as
   * `item`, but an object of the same call also counts as unknown.
   */
  references?: 'call' | 'item' | 'stored' | undefined;
  /**
   * Effect of `id` beside `extId`. `true`: the object with this `id` gets the external id, if it has none. `ignored`:
   * no effect. By default, such an object is refused.
   */
  assignsExternalIds?: boolean | 'ignored' | undefined;
  /** If true, fields and properties that a write leaves out keep their values. */
  merges?: boolean | undefined;
  /** If true, a PUT may change the type of an object. Otherwise the object is refused. */
  changeTypes?: boolean | undefined;
}

/** An object of a call, merged with the stored object if the call keeps what it leaves out. */
type SentObject = SandboxObjectInput & { fields: SandboxFields; id: number | undefined };

const CUT_TO = 10;

/** Changes that the service makes to values before it stores them. */
const STORED_AS = {
  trimmed: (values: readonly string[]) => values.map((value) => value.trim()),
  cut: (values: readonly string[]) => values.map((value) => value.slice(0, CUT_TO)),
  sorted: (values: readonly string[]) => values.toSorted(),
  dropped: () => [],
};

interface Stores {
  schema: Schema;
  objects: Objects;
}

export function createPutObjects(stores: Stores, options: PutOptions) {
  const { schema, objects } = stores;
  const { putStatus, maxObjects = 1000, references = 'call', assignsExternalIds, merges } = options;
  const ordered = new Map<string, ObjectRefusal>();

  return {
    /** Checks and applies one PUT or upsert. Throws the refusal of a whole call, which then changes nothing. */
    putObjects(call: z.infer<typeof putBody> & { importMode?: 'PATCH' | 'PUT' | undefined }) {
      if (call.objects.length > maxObjects)
        throw new Refusal(413, `${call.objects.length} objects, at most ${maxObjects} in one call`);
      const sent = new Map<string, SentObject>();
      // Refusals by external id. Objects without an entry are accepted.
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
        const keeps = merges || call.importMode === 'PATCH';
        const was = keeps ? objects.controls.object(id ?? extId) : undefined;
        for (const { fieldId } of fields) schema.fields.require(fieldId);
        const kept = (was?.fields ?? []).filter(
          ({ fieldId }) => !fields.some((sent) => sent.fieldId === fieldId),
        );
        const all = { ...was?.properties, ...properties };
        const object = {
          id,
          extId,
          typeId,
          active: active ?? was?.active,
          ...(Object.keys(all).length > 0 && { properties: all }),
          fields: [...kept, ...fields],
        };
        sent.set(extId, object);
        const message = schema.types.get(typeId)
          ? faultOf(stores, options, object)
          : `unknown type ${typeId}`;
        if (refusal !== undefined) refused.set(extId, refusal);
        else if (message !== undefined) refused.set(extId, { status: 400, message });
      }
      checkReferences(stores, references, sent, refused);

      const results = [...sent.values()].map((object) => {
        const { extId } = object;
        const refusal = refused.get(extId);
        if (refusal) return { extId, status: refusal.status, message: refusal.message };
        const fields = object.fields.map(({ fieldId, values }) => {
          const { storedAs } = schema.fields.get(fieldId) ?? {};
          return { fieldId, values: storedAs ? STORED_AS[storedAs](values) : values };
        });
        const stored = objects.controls.putObject({ ...object, fields });
        return { extId: stored.extId, id: stored.id, status: 200 };
      });
      return { results };
    },
    statusOf: ({ results }: { results: readonly { status: number }[] }) =>
      putStatus ?? (results.some(({ status }) => status !== 200) ? 207 : 200),

    controls: {
      /** Refuses this object from now on, until `allowObject` is called. */
      refuseObject: (extId: string, refusal: ObjectRefusal): void => void ordered.set(extId, refusal),
      allowObject: (extId: string): void => void ordered.delete(extId),
    },
  };
}

/** Returns why the object with this number cannot get this external id, or undefined if it can. */
function faultOfId({ store }: Objects, id: number, extId: string): string | undefined {
  const named = store.get(id);
  if (named === undefined) return `id: no object ${id}`;
  if (named.extId === extId) return undefined;
  if (named.extId !== null) return `id: object ${id} has the external id ${named.extId}`;
  const owner = store.get(extId);
  return owner && `extId: ${extId} is the external id of object ${owner.id}`;
}

/** Returns why the service refuses this object, independent of the rest of the call, or undefined. */
function faultOf(
  { schema, objects }: Stores,
  { assignsExternalIds, changeTypes }: PutOptions,
  { id, extId, typeId, fields }: SentObject,
): string | undefined {
  if (id !== undefined && !assignsExternalIds) return 'id: not accepted beside extId';
  const fault = id === undefined ? undefined : faultOfId(objects, id, extId);
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

/** Refuses objects that refer to an unknown object. Refused objects count as unknown, so more refusals follow. */
function checkReferences(
  { schema, objects }: Stores,
  references: PutOptions['references'],
  sent: ReadonlyMap<string, SentObject>,
  refused: Map<string, ObjectRefusal>,
): void {
  const unstored = [...sent.values()].flatMap(({ extId, fields }) =>
    fields.flatMap(({ fieldId, values }) => {
      const type = schema.fields.get(fieldId)?.reference;
      return values
        .filter((value) => type !== undefined && !schema.isA(objects.store.get(value)?.typeId, type))
        .map((value) => ({
          extId,
          value,
          isSent: references !== 'stored' && type !== undefined && schema.isA(sent.get(value)?.typeId, type),
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
