// Surveys what a service contains: types, fields, and number and shape of the objects. The service does not say which
// fields a type has, so this is inferred from its objects.
import type { Definition, Destination, FoundObject } from '../../destination/destination.js';

export interface SurveyedType extends Definition {
  /** Number of objects of the type. Undefined if the type has no external id, so that it cannot be read. */
  objects: number | undefined;
  /** Number of objects without an external id. */
  withoutExtId: number | undefined;
  /** External ids of some objects of the type. */
  extIds: readonly string[];
}

export interface SurveyedField extends Definition {
  /** External ids of types that have a value in this field. */
  types: readonly string[];
  /** Number of objects that have a value in this field. */
  filled: number;
}

export interface ServiceSurvey {
  types: SurveyedType[];
  fields: SurveyedField[];
}

interface SurveyOptions {
  /** If true, reads all objects; otherwise only the first page of each type. */
  isWhole: boolean;
  /** Awaited before each request for objects, to limit the request rate. */
  pace?: () => Promise<void>;
  onProgress?: (read: number, total: number) => void;
  signal?: AbortSignal | undefined;
}

/** Maximum number of external ids kept for each type. */
const MOST_EXT_IDS = 1000;

/** Reads types, fields and objects, with the low priority of `verify`. Throws errors of the service. */
export async function surveyService(
  destination: Destination,
  { isWhole, pace = async () => undefined, onProgress, signal }: SurveyOptions,
): Promise<ServiceSurvey> {
  const context = { lane: 'verify', signal } as const;
  const types = await destination.findTypes(context);
  const fields = await destination.findFields(context);
  let total = 0;
  for (const { extId } of types) {
    if (extId === undefined) continue;
    await pace();
    total += (await destination.countObjects([extId], context)) ?? 0;
  }

  /** Number of objects with a value, for each type and field. */
  const filled = new Map<string, Map<string, number>>();
  const surveyed: SurveyedType[] = [];
  let readBefore = 0;
  for (const type of types) {
    if (type.extId === undefined) {
      surveyed.push({ ...type, objects: undefined, withoutExtId: undefined, extIds: [] });
      continue;
    }
    const read = async (pages: AsyncIterable<readonly FoundObject[]>) => {
      const seen = { objects: 0, withoutExtId: 0, extIds: [] as string[] };
      const inFields = new Map<string, number>();
      for await (const page of pages) {
        seen.objects += page.length;
        for (const { extId, fields: values } of page) {
          if (extId === undefined) seen.withoutExtId += 1;
          else if (seen.extIds.length < MOST_EXT_IDS) seen.extIds.push(extId);
          for (const { fieldId } of values) inFields.set(fieldId, (inFields.get(fieldId) ?? 0) + 1);
        }
        onProgress?.(readBefore + seen.objects, Math.max(total, readBefore + seen.objects));
        if (!isWhole) break;
      }
      return { seen, inFields };
    };
    const { seen, inFields } = await destination.readTypes([type.extId], context, read, { pace });
    readBefore += seen.objects;
    filled.set(type.extId, inFields);
    surveyed.push({ ...type, ...seen });
  }
  return {
    types: surveyed,
    fields: fields.map((field) => {
      const on = [...filled].flatMap(([type, counts]) => {
        const count = counts.get(field.extId ?? '') ?? 0;
        return count === 0 ? [] : [{ type, count }];
      });
      return {
        ...field,
        types: on.map(({ type }) => type),
        filled: on.reduce((sum, { count }) => sum + count, 0),
      };
    }),
  };
}
