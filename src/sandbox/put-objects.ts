// The bulk write: which objects the service accepts, which it refuses alone, and what makes it refuse the whole call. All of
// it is assumed, nothing is published; some refusals can be switched from one kind to the other.
import { z } from 'zod';
import type { Objects, SandboxObjectInput } from './object-store.js';
import { idFormat, parseBody, reference } from './paging.js';
import type { IdFormat, SandboxFields } from './paging.js';
import { Refusal } from './refusal.js';
import type { Schema } from './schema.js';

export const refusalSchema = z.strictObject({
  status: z.int().min(400).max(599),
  message: z.string(),
  /** Refuse the whole call that contains the object, not the object alone. */
  wholeCall: z.boolean().optional(),
});
export type ObjectRefusal = z.infer<typeof refusalSchema>;

export interface PutRules {
  putStatus: 200 | 207 | undefined;
  maxObjects: number;
  references: 'call' | 'item';
}

type ObjectFields = SandboxObjectInput & { fields: SandboxFields };

type ItemResult =
  { extId: string; id: number; status: number } | { extId: string; status: number; message: string };

const putBody = z.strictObject({
  idFormat: idFormat.default('INTERNAL'),
  objects: z.array(
    z.strictObject({
      extId: z.string().min(1),
      typeId: reference,
      active: z.boolean().optional(),
      fields: z.array(z.strictObject({ fieldId: reference, values: z.array(z.string()) })),
    }),
  ),
});

/** Checks and applies one `PUT /objects`; refusals of the whole call are thrown and change nothing. */
export function createPutObjects(
  deps: { schema: Schema; objects: Objects; refusals: ReadonlyMap<string, ObjectRefusal> },
  rules: PutRules,
) {
  const { schema, objects, refusals } = deps;

  return (body: unknown): { status: number; body: { results: ItemResult[] } } => {
    const sent = countObjects(body);
    if (sent !== undefined && sent > rules.maxObjects)
      throw new Refusal(413, `${sent} objects, at most ${rules.maxObjects} in one call`);
    const call = parseBody(putBody, body);
    refuseDuplicates(call.objects);

    // Why an object alone is refused; objects that are not in the map are accepted.
    const faults = new Map<string, { status: number; message: string }>();
    const inCall = new Map<string, ObjectFields>();
    for (const object of call.objects) {
      const refusal = refusals.get(object.extId);
      if (refusal?.wholeCall === true) throw new Refusal(refusal.status, refusal.message);
      const type = schema.type(object.typeId, call.idFormat);
      const fields = object.fields.map(({ fieldId, values }) => {
        const field = schema.field(fieldId, call.idFormat);
        if (field === undefined) throw new Refusal(400, `unknown field ${fieldId}`);
        return {
          fieldId: field.extId,
          values: field.reference ? values.map(toExtId(call.idFormat)) : values,
        };
      });
      inCall.set(object.extId, { ...object, typeId: type?.extId ?? '', fields });
      const message =
        type === undefined ? `unknown type ${object.typeId}` : faultOf(type.extId, object.extId, fields);
      if (refusal !== undefined) faults.set(object.extId, refusal);
      else if (message !== undefined) faults.set(object.extId, { status: 400, message });
    }
    checkReferences(inCall, faults);

    const results = [...inCall.values()].map((object): ItemResult => {
      const fault = faults.get(object.extId);
      if (fault !== undefined) return { extId: object.extId, status: fault.status, message: fault.message };
      return { extId: object.extId, id: objects.put(object).id, status: 200 };
    });
    return { status: rules.putStatus ?? (faults.size > 0 ? 207 : 200), body: { results } };
  };

  /** Why the service would refuse this object alone. */
  function faultOf(type: string, extId: string, fields: SandboxFields): string | undefined {
    const stored = objects.typeOf(extId);
    if (stored !== undefined && stored !== type)
      return `object is of type ${stored}, its type cannot be changed`;
    const filled = new Set<string>();
    for (const { fieldId, values } of fields) {
      const field = schema.fieldByExtId(fieldId);
      if (filled.has(fieldId)) return `field ${fieldId} is named twice`;
      if (values.length > 0) filled.add(fieldId);
      if (field?.type !== undefined && field.type !== type)
        return `field ${fieldId} does not belong to type ${type}`;
      const most = field?.maxLength ?? Infinity;
      if (values.some((value) => value.length > most))
        return `field ${fieldId}: longer than ${most} characters`;
    }
    const missing = schema.mandatoryFields(type).find((field) => !filled.has(field.extId));
    return missing && `mandatory field ${missing.extId} is missing`;
  }

  /** A reference must name an object that is stored or accepted in this call, so one refusal can cause others. */
  function checkReferences(
    inCall: ReadonlyMap<string, ObjectFields>,
    faults: Map<string, { status: number; message: string }>,
  ): void {
    const referring = [...inCall.values()].flatMap((object) =>
      object.fields.flatMap(({ fieldId, values }) => {
        const type = schema.fieldByExtId(fieldId)?.reference;
        return type === undefined
          ? []
          : values.map((value) => ({ extId: object.extId, fieldId, value, type }));
      }),
    );
    if (rules.references === 'call') {
      for (const { fieldId, value, type } of referring)
        if (objects.typeOf(value) !== type && inCall.get(value)?.typeId !== type)
          throw new Refusal(400, unknownObject(fieldId, value, type));
    }
    for (let refusedBefore = -1; refusedBefore !== faults.size;) {
      refusedBefore = faults.size;
      for (const { extId, fieldId, value, type } of referring) {
        const isAccepted = inCall.get(value)?.typeId === type && !faults.has(value);
        if (objects.typeOf(value) === type || isAccepted || faults.has(extId)) continue;
        faults.set(extId, { status: 400, message: unknownObject(fieldId, value, type) });
      }
    }
  }

  /** References between objects are stored by external id; with INTERNAL they arrive as integers in strings. */
  function toExtId(format: IdFormat): (value: string) => string {
    return (value) => {
      if (format === 'EXTERNAL') return value;
      if (!/^\d+$/.test(value))
        throw new Refusal(400, `reference ${value}: an integer expected with idFormat INTERNAL`);
      return objects.extIdOf(Number(value)) ?? value;
    };
  }
}

/** The objects in a body, valid or not; undefined when it has none. */
export function countObjects(body: unknown): number | undefined {
  if (typeof body !== 'object' || body === null || !('objects' in body)) return undefined;
  return Array.isArray(body.objects) ? body.objects.length : undefined;
}

function unknownObject(fieldId: string, extId: string, type: string): string {
  return `field ${fieldId}: object ${extId} of type ${type} does not exist`;
}

function refuseDuplicates(sent: readonly { extId: string }[]): void {
  const seen = new Set<string>();
  for (const { extId } of sent) {
    if (seen.has(extId)) throw new Refusal(400, `object ${extId} is named twice in the call`);
    seen.add(extId);
  }
}
