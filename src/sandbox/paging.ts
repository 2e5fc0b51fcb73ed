// The envelope of every find, and the filters all finds have in common.
import { z } from 'zod';
import { Refusal } from './refusal.js';

// A greater number of seconds is after the year 9999: these are milliseconds.
const LAST_SECOND = 253_402_300_799;
const DEFAULT_LIMIT = 100;

const seconds = z.int().min(0).max(LAST_SECOND, 'Unix seconds expected, this looks like milliseconds');

export const period = z.strictObject({ startDate: seconds, endDate: seconds });

/** Fields with their values, by external id. */
export const fieldsSchema = z.array(z.strictObject({ fieldId: z.string(), values: z.array(z.string()) }));
export type SandboxFields = z.infer<typeof fieldsSchema>;

/** A reference: the external id with `idFormat` EXTERNAL, the integer id with INTERNAL. */
export const reference = z.union([z.string().min(1), z.int()]);
export type ObjectReference = z.infer<typeof reference>;

export const idFormat = z.enum(['INTERNAL', 'EXTERNAL']);
export type IdFormat = z.infer<typeof idFormat>;

export const find = z.strictObject({
  idFormat: idFormat.default('INTERNAL'),
  page: z.int().min(1).default(1),
  limit: z.int().min(1).default(DEFAULT_LIMIT),
  ids: z.array(z.int()).optional(),
  extIds: z.array(z.string()).optional(),
  sort: z.literal('ASCID').optional(),
});

interface Identified {
  id: number;
  extId: string;
}

/**
 * What a find selects, in ascending id order. `ids` and `extIds` are a union with the other filters: what they list is
 * found although it does not match the rest. `matches` undefined: no other filter was given.
 */
export function select<T extends Identified>(
  store: { all: Iterable<T>; byId(id: number): T | undefined; byExtId(extId: string): T | undefined },
  listed: { ids?: readonly number[] | undefined; extIds?: readonly string[] | undefined },
  matches: ((one: T) => boolean) | undefined,
): T[] {
  const named = new Set<T>();
  for (const id of listed.ids ?? []) addKnown(named, store.byId(id));
  for (const extId of listed.extIds ?? []) addKnown(named, store.byExtId(extId));
  // An empty list is no filter: alone it selects everything, as if it had been left out.
  const hasList = (listed.ids?.length ?? 0) + (listed.extIds?.length ?? 0) > 0;
  if (hasList && matches === undefined) return [...named].sort((a, b) => a.id - b.id);
  const selected: T[] = [];
  for (const one of store.all)
    if (matches === undefined || matches(one) || named.has(one)) selected.push(one);
  return selected;
}

/** One page in the service's envelope; a limit above `maxPage` is lowered, and the answer says to what. */
export function paged<T, R>(
  all: readonly T[],
  request: { page: number; limit: number },
  maxPage: number,
  show: (one: T) => R,
) {
  const limit = Math.min(request.limit, maxPage);
  const from = (request.page - 1) * limit;
  return {
    results: all.slice(from, from + limit).map(show),
    limit,
    page: request.page,
    totalPages: Math.ceil(all.length / limit),
    totalResults: all.length,
  };
}

/** The body as `schema` wants it, or a 400 that names the place. */
export function parseBody<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const place = issue?.path.join('.') || 'body';
  throw new Refusal(400, `${place}: ${issue?.message ?? 'invalid'}`);
}

function addKnown<T>(set: Set<T>, one: T | undefined): void {
  if (one !== undefined) set.add(one);
}
