// Reads results of finds into our types. An object of which only the ids are understood is kept with its fault, which
// stops only a use case that needs the object.
import type { CompleteDialect } from '../dialect/complete-dialect.js';
import {
  NotUnderstood,
  type FoundObject as ReadObject,
  type FoundReservation,
  type Json,
  type Kind,
} from '../dialect/dialect.js';
import type { SlotsyncError } from '../errors/errors.js';
import type { Logger } from '../process/logger.js';
import { createObject, type Carried, type DestinationObject } from '../streams/destination-object.js';
import { isSimilarId, keyOf, toRule, type ExternalIdRule } from '../streams/external-id-rule.js';
import { invalidAnswer, type Named } from './http-errors.js';

export interface ServiceObject extends DestinationObject {
  id: string;
}

/** An object of the service. `extId` is undefined for an object that was made by hand without an external id. */
export type FoundObject = Omit<ServiceObject, 'extId'> & { extId: string | undefined };

/** Ids of a result. */
export interface Ids {
  id: string;
  extId?: string | null | undefined;
}

/** Key of the fault in an object that could not be understood. A symbol, so that no key of an answer equals it. */
const FAULT = Symbol('fault');

/** An object of which only the ids could be understood. */
interface NotUnderstoodObject extends Ids {
  [FAULT]: NotUnderstood;
}

type ObjectAsRead = ReadObject | NotUnderstoodObject;

/** A kind of find, with the function that reads one result. */
export interface Find<T> {
  kind: Kind;
  read: (found: Json) => T;
  /** Throws if the results of a find by external ids contradict the request. */
  requireAsked?: (found: readonly T[], asked: readonly string[]) => void;
}

export type Reader = ReturnType<typeof createReader>;

/** Creates the finds, and the functions that convert their results. `callOf` returns the find of one object. */
export function createReader(
  {
    dialect,
    externalIds,
    log,
  }: { dialect: CompleteDialect; externalIds?: ExternalIdRule | undefined; log: Logger },
  callOf: (extId: string) => Named,
) {
  const rule = toRule(externalIds);
  /** Returns the form of an external id that the service compares. */
  const toKey = (extId: string) => keyOf(rule, extId);
  const maintained: ReadonlySet<string> = new Set(dialect.maintained);

  /** Returns the properties that a write sends back, without those that only the service maintains. */
  function sentBack(carried: Carried | undefined): Carried | undefined {
    const sent = Object.entries(carried ?? {}).filter(([name]) => !maintained.has(name));
    return sent.length > 0 ? Object.fromEntries(sent) : undefined;
  }

  /** Reads an object. If only its ids can be understood, the object is returned with the fault. */
  const readObject = (found: Json, carries: boolean): ObjectAsRead => {
    try {
      const object = dialect.object.read(found, carries);
      for (const { carried } of carries ? [object, ...object.fields] : []) requireExact(sentBack(carried));
      return object;
    } catch (error) {
      if (!(error instanceof NotUnderstood)) throw error;
      const ids = identify(found);
      if (!ids) throw error;
      return { ...ids, [FAULT]: error };
    }
  };
  const identify = (found: Json) => {
    try {
      return dialect.object.identify(found);
    } catch {
      return undefined;
    }
  };

  /** Converts the external ids of a reservation and its objects to the form that the service compares. */
  const bookedByKey = <T extends FoundReservation>(found: T): T =>
    rule
      ? {
          ...found,
          extId: found.extId && toKey(found.extId),
          objects: found.objects?.map((one) => ({ ...one, objectId: one.objectId && toKey(one.objectId) })),
        }
      : found;

  /**
   * Throws if a requested object is missing and the answer has an object without an external id. Otherwise the missing
   * object would count as absent, and a write would overwrite its unmapped fields. With a dialect file, an object of
   * another external id is refused too.
   */
  function requireAsked(found: readonly Ids[], asked: readonly string[]): void {
    const { file } = dialect;
    const keys = new Set(found.map(({ extId }) => toKey(extId ?? '')));
    const wanted = new Set(asked);
    const missing = asked.filter((extId) => !keys.has(extId));
    const isOther = (extId: string) =>
      !wanted.has(toKey(extId)) && !missing.some((one) => isSimilarId(extId, one));
    const isWrong =
      keys.has('') || (file && (keys.size < found.length || found.some(({ extId }) => isOther(extId ?? ''))));
    if (missing.length === 0 || !isWrong) return;
    throw invalidAnswer(
      callOf(''),
      `${file ? `object.read of ${file}` : 'object.read'} returns an object without the requested external id`,
      undefined,
      file && `Correct object.read, or the filter extIds of find.ask, in ${file}, then: slotsync check`,
    );
  }

  /** Returns the error of an object that could not be understood. */
  function faultOf({ id, extId, [FAULT]: { message, more } }: NotUnderstoodObject): SlotsyncError {
    const detail = [`'${extId ?? id}'`, more.detail].filter(Boolean).join(': ');
    return invalidAnswer(callOf(extId ?? ''), message, detail, more.remedy);
  }

  return {
    finds: {
      objects: { kind: 'objects', read: (found: Json) => readObject(found, true), requireAsked },
      /** Reads objects without their uninterpreted properties, because listed objects are not written back. */
      listed: { kind: 'objects', read: (found: Json) => readObject(found, false) },
      types: { kind: 'types', read: dialect.type.read },
      fields: { kind: 'fields', read: dialect.field.read },
      reservations: {
        kind: 'reservations',
        read: (found: Json) => bookedByKey(dialect.reservation.read(found)),
      },
      cancellations: {
        kind: 'cancellations',
        read: (found: Json) => bookedByKey(dialect.cancellation.read(found)),
      },
    } as const,
    rule,
    toKey,
    /** Properties of an object that only the service maintains. A write never sends them back. */
    maintained,
    faultOf,

    /** Drops objects that could not be understood. A use case that needs such an object later finds it by its id. */
    skipNotUnderstood(found: readonly ObjectAsRead[]): ReadObject[] {
      const understood = found.filter((one): one is ReadObject => !isFaulty(one));
      const skipped = found.length - understood.length;
      if (skipped > 0) log.debug({ skipped }, 'skipped objects that were not understood');
      return understood;
    },

    /** Converts an object to the form that we compare and write. `ofType` is its type if the answer names none. */
    toFoundObject({ id, extId, typeId, active, fields, carried }: ReadObject, ofType: string): FoundObject {
      const valuesOf = fields.map(
        (field) => [field.fieldId, field.values ?? [], sentBack(field.carried)] as const,
      );
      const object = createObject(
        toKey(extId ?? ''),
        typeId ?? ofType,
        active ?? true,
        valuesOf,
        sentBack(carried),
      );
      if (!extId) return { ...object, id, extId: undefined };
      return rule ? { ...object, id, spelling: extId } : { ...object, id };
    },
  };
}

export const isFaulty = (found: object): found is NotUnderstoodObject => FAULT in found;

/** Throws for an integer beyond 2^53: JSON parsing has rounded it, so sending it back would change the object. */
function requireExact(carried: Carried | undefined): void {
  const isRounded = (value: unknown): boolean =>
    typeof value === 'object' && value !== null
      ? Object.values(value).some(isRounded)
      : Number.isInteger(value) && !Number.isSafeInteger(value);
  const rounded = Object.entries(carried ?? {}).find(([, value]) => isRounded(value));
  if (rounded)
    throw new NotUnderstood(
      rounded[0],
      'an integer beyond 2^53 cannot be sent back unchanged; if only the service maintains this property, name it in `maintained` of the dialect',
    );
}
