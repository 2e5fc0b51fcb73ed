// Surveys a service: its types and fields, and of each type how many objects it has and what these look like.
// Which fields belong to which type is published nowhere; it is seen on the objects.
import type { Definition, Destination } from '../../destination/destination.js';

export interface SurveyedType extends Definition {
  /** Undefined: not read, because nothing can name the type. */
  objects: number | undefined;
  /** How many of the objects have no external id. */
  withoutExtId: number | undefined;
  /** External ids of the first objects. */
  extIds: readonly string[];
}

export interface SurveyedField extends Definition {
  /** External ids of the types whose objects have a value in it. */
  types: readonly string[];
  /** Objects that have a value in it. */
  filled: number;
}

export interface ServiceSurvey {
  types: SurveyedType[];
  fields: SurveyedField[];
}

interface SurveyOptions {
  /** Read every type to its end, or only the first page of each. */
  isWhole: boolean;
  /** Awaited before each request for objects. */
  pace?: () => Promise<void>;
  onProgress?: (read: number, total: number) => void;
  signal?: AbortSignal | undefined;
}

const LANE = 'verify';
/** External ids kept of each type. */
const MOST_EXT_IDS = 1000;

/** Reads types, fields and objects, in the lane of `verify`. Throws what the destination throws. */
export async function surveyService(
  destination: Destination,
  { isWhole, pace = async () => undefined, onProgress = () => undefined, signal }: SurveyOptions,
): Promise<ServiceSurvey> {
  const context = { lane: LANE, ...(signal ? { signal } : {}) } as const;
  const types = await destination.listTypes(context);
  const fields = await destination.listFields(context);
  const named = types.flatMap(({ extId }) => extId ?? []);
  const counts = new Map<string, number>();
  for (const extId of named) {
    await pace();
    counts.set(extId, (await destination.countObjects(extId, context)) ?? 0);
  }
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);

  const filled = new Map<string, Map<string, number>>();
  const surveyed: SurveyedType[] = [];
  let readBefore = 0;
  for (const type of types) {
    if (type.extId === undefined) {
      surveyed.push({ ...type, objects: undefined, withoutExtId: undefined, extIds: [] });
      continue;
    }
    const found = await destination.readType(
      type.extId,
      context,
      async (pages) => {
        const seen = {
          objects: 0,
          withoutExtId: 0,
          extIds: [] as string[],
          filled: new Map<string, number>(),
        };
        for await (const page of pages) {
          for (const { extId, fields } of page) {
            seen.objects += 1;
            if (extId === undefined) seen.withoutExtId += 1;
            else if (seen.extIds.length < MOST_EXT_IDS) seen.extIds.push(extId);
            for (const { fieldId } of fields) seen.filled.set(fieldId, (seen.filled.get(fieldId) ?? 0) + 1);
          }
          onProgress(readBefore + seen.objects, Math.max(total, readBefore + seen.objects));
          if (!isWhole) break;
        }
        return seen;
      },
      { pace },
    );
    readBefore += found.objects;
    filled.set(type.extId, found.filled);
    surveyed.push({
      ...type,
      objects: found.objects,
      withoutExtId: found.withoutExtId,
      extIds: found.extIds,
    });
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
