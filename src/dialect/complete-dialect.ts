// Completes a configured dialect with the parts of the default dialect. A configured function may do anything, so this
// file wraps it and checks its results.
import path from 'node:path';
import { z } from 'zod';
import { messageOf, SlotsyncError } from '../errors/errors.js';
import {
  createDefaultDialect,
  DEFINITION,
  ID,
  NAMES,
  OBJECT,
  RESERVATION,
  TOKEN,
} from './default-dialect.js';
import { NotUnderstood, type Dialect } from './dialect.js';

const headers = z.record(z.string(), z.string());
const method = z.enum(['GET', 'POST', 'PUT', 'PATCH']);
const pathOfService = z.string().regex(/^\/[!-~]*$/, "a path that begins with '/', without blanks");
const asked = z.object({
  method,
  path: pathOfService,
  body: z.unknown().optional(),
});
const carried = z.record(z.string(), z.unknown()).optional();
const time = z.number().min(0).max(253_402_300_799_000, 'milliseconds since 1970 expected');
const period = { begin: time, end: time };
const cursor = z.union([z.string(), z.number()]);
const count = z.int().min(0).nullish();

/** Shapes of constants, and of the results of functions. The result of a function without a shape is not checked. */
const SHAPES: Record<string, z.ZodType> = {
  'authenticate.ask': asked.extend({ headers }),
  'authenticate.read': TOKEN,
  'authenticate.headers': headers,
  'find.ask': asked,
  'find.read': z
    .object({ results: z.array(z.unknown()), next: cursor.nullish(), totalPages: count, totalResults: count })
    .refine(
      ({ next, totalPages }) => next !== undefined || typeof totalPages === 'number',
      'it says neither `next` (null after the last page) nor `totalPages`',
    ),
  'type.read': DEFINITION,
  'field.read': DEFINITION,
  'object.read': OBJECT.extend({ active: z.boolean().nullish(), carried }),
  'object.identify': NAMES,
  'object.write': z.looseObject({}),
  'reservation.read': RESERVATION.extend(period),
  'cancellation.read': RESERVATION.extend({
    ...period,
    reservationId: ID.nullish(),
    cancelledAt: time.nullish(),
  }),
  'write.read': z.array(
    z.object({ extId: z.string(), id: ID.optional(), status: z.int(), reason: z.string().optional() }),
  ),
  'active.read': z.boolean().nullish(),
  'active.write': z.looseObject({}),
  'error.read': z.string().optional(),
  'error.ask': asked,
  'write.method': method,
  'write.path': pathOfService,
  times: z.enum(['seconds', 'milliseconds']),
  ids: z.enum(['numbers', 'texts']),
  maintained: z.array(z.string()),
  findLagSeconds: z.number().min(0).max(600),
};

const ASKS = new Set(['ask', 'headers', 'write', 'body']);
/** Sections that read a single object, booking or error. An unreadable one must not stop the others. */
const READS_ONE = new Set(['object', 'active', 'error', 'reservation', 'cancellation']);

/** Returns true for a fault in the code of a dialect's function, false for an answer that the function rejects. */
const isOwnFault = (error: unknown): error is Error =>
  error instanceof TypeError || error instanceof ReferenceError;

type Part = Record<string, unknown>;
const isObject = (value: unknown): value is Part =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export type CompleteDialect = Dialect & { file: string | undefined };

/**
 * Completes a dialect, and adds faults of its parts to `faults`. The wrapped functions throw NotUnderstood for an
 * answer, and SlotsyncError `configuration` for a request. Both errors name the function and the file.
 */
export function completeDialect(
  given: unknown,
  file: string | undefined,
  faults: { path: string; message: string }[] = [],
): CompleteDialect {
  const own: Part = {};
  const base = createDefaultDialect(() => own as unknown as Dialect);
  const name = file && path.basename(file);
  Object.assign(own, base, { file: name });
  const parts: unknown = typeof given === 'function' ? (given as (base: Dialect) => unknown)(base) : given;
  const fault = (place: string, message: string) =>
    faults.push({ path: [name, place].filter(Boolean).join(' '), message });
  const isKnown = (place: string, of: string, all: object) => {
    if (Object.hasOwn(all, of)) return true;
    fault(place, `unknown; there are ${Object.keys(all).join(', ')}`);
    return false;
  };
  if (!isObject(parts) || parts instanceof Promise) {
    fault('', 'it exports no dialect: `export default defineDialect({ … })` expected');
    return own as unknown as CompleteDialect;
  }
  /** Returns the part that replaces the default part, or undefined if the part has a fault. */
  const replace = (place: string, part: unknown, standard: unknown) => {
    const { error } = (typeof part === 'function' ? undefined : SHAPES[place]?.safeParse(part)) ?? {};
    if (typeof part !== typeof standard) fault(place, `a ${typeof standard} expected`);
    else if (error) fault(place, error.issues[0]?.message ?? '');
    else return typeof part === 'function' ? guard(place, part as Replacement, own) : part;
    return undefined;
  };
  for (const [section, part] of Object.entries(parts)) {
    if (!isKnown(section, section, base)) continue;
    const standard = base[section as keyof Dialect] as unknown;
    if (!isObject(standard)) own[section] = replace(section, part, standard);
    else if (!isObject(part)) fault(section, 'an object with functions expected');
    else {
      const members = Object.entries(part).filter(([name]) => isKnown(`${section}.${name}`, name, standard));
      own[section] = {
        ...standard,
        ...Object.fromEntries(
          members.map(([name, member]) => [name, replace(`${section}.${name}`, member, standard[name])]),
        ),
      };
    }
  }
  return own as unknown as CompleteDialect;
}

type Replacement = (...given: unknown[]) => unknown;

/** Wraps a configured function. Anything unexpected that it throws or returns becomes an error that names it. */
function guard(place: string, replacement: Replacement, { file }: Part): Replacement {
  const shape = SHAPES[place];
  const [section = '', name = ''] = place.split('.');
  const failed = (how: string, detail?: string, isFinal = ASKS.has(name)) => {
    const what = `${place} of ${String(file)} ${how}`;
    const remedy = `Correct ${place} in ${String(file)} (docs/service-contract.md), then: slotsync check`;
    if (!isFinal) return new NotUnderstood('', what, { remedy, detail });
    return new SlotsyncError('configuration', what, { remedy, detail });
  };
  /** True once the function has read an answer successfully. */
  let hasRead = false;
  return (...given) => {
    let returned: unknown;
    try {
      returned = replacement(...given);
    } catch (error) {
      if (error instanceof SlotsyncError || (error instanceof NotUnderstood && error.more.remedy))
        throw error;
      // An error of `authenticate` may repeat the key, so its text is dropped.
      const detail = section === 'authenticate' ? undefined : messageOf(error);
      // If the body is no object, or earlier answers were readable, this answer is at fault and may be requested again.
      const isOdd = hasRead || typeof given[0] !== 'object' || given[0] === null;
      if (!isOwnFault(error) || READS_ONE.has(section) || (isOdd && !ASKS.has(name)))
        throw failed('throws', detail);
      const [, line] = error.stack?.split(`${String(file)}:`) ?? [];
      throw failed(line === undefined ? 'throws' : `throws in line ${parseInt(line, 10)}`, detail, true);
    }
    if (returned instanceof Promise || typeof (returned as { then?: unknown } | null)?.then === 'function') {
      Promise.resolve(returned).catch(() => undefined); // an unhandled rejection would end the process
      throw failed('returns a promise: it must not be async');
    }
    if (returned === undefined && place !== 'error.read' && place !== 'active.read')
      throw failed('returns nothing');
    const parsed = shape?.safeParse(returned);
    if (parsed?.success === false) {
      const [issue] = parsed.error.issues;
      const at = issue && issue.path.length > 0 ? ` at ${issue.path.join('.')}` : '';
      throw failed(`returns something else than is expected${at}: ${issue?.message}`);
    }
    hasRead = true;
    return parsed ? parsed.data : returned;
  };
}

export const DEFAULT_DIALECT: CompleteDialect = completeDialect({}, undefined);
