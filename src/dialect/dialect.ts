// A dialect: pure functions and constants that write requests and read answers of the service. default-dialect.ts has
// the default; a configuration may replace any part. Times are Unix milliseconds.
import type { Carried, DestinationObject, FieldValues } from '../streams/destination-object.js';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH';

/** A request. `path` begins with `/`, and `service.prefix` is put before it. `body` is optional. */
export interface Asked {
  method: Method;
  path: string;
  body?: unknown;
}

export type Kind = 'types' | 'fields' | 'objects' | 'reservations' | 'cancellations';

export type Filter =
  | { by: 'none' }
  | { by: 'extIds'; extIds: readonly string[] }
  /** By the service's own ids. */
  | { by: 'ids'; ids: readonly string[] }
  /** All objects of a type, also inactive ones, in a fixed order. `derived` adds fields that the service derives. */
  | { by: 'type'; typeId: string; derived?: boolean | undefined }
  /** Objects of a type that have, in each of these fields, one of its values. */
  | { by: 'fields'; typeId: string; fields: readonly FieldValues[]; derived?: boolean | undefined }
  /** Reservations or cancellations in any status that overlap a period (`window`) or changed in it (`modified`). */
  | { by: 'window' | 'modified'; from: number; to: number }
  /** Reservations of any of these objects that are not cancelled or rejected, and overlap the period. */
  | { by: 'upcoming'; typeId: string; extIds: readonly string[]; from: number; to: number };

export type Cursor = string | number;

export interface Question {
  kind: Kind;
  filter: Filter;
  limit: number;
  /** Number of the page, from 1, also with a cursor. */
  page: number;
  /** Cursor of the page. Undefined for the first page, and if the service numbers its pages. */
  cursor?: Cursor | undefined;
}

/** Answer to a find. Either `next` (null after the last page) or `totalPages` shows whether more pages follow. */
export interface Results {
  results: readonly unknown[];
  next?: Cursor | null | undefined;
  totalPages?: number | null | undefined;
  totalResults?: number | null | undefined;
}

/** Parsed JSON of an answer or a part of it. Despite the type, the value may be no object. */
export type Json = Readonly<Record<string, unknown>>;

/** A type or a field. Without an external id, a configuration cannot refer to it. */
export interface FoundDefinition {
  id: string;
  extId?: string | null | undefined;
  name?: string | null | undefined;
}

/** An object in an answer. Defaults: `typeId` is the requested type, and `active` is true. */
export interface FoundObject {
  id: string;
  /** External id, or null for an object that was made by hand. */
  extId?: string | null | undefined;
  typeId?: string | null | undefined;
  active?: boolean | null | undefined;
  fields: readonly {
    fieldId: string;
    values?: readonly string[] | null | undefined;
    carried?: Carried | undefined;
  }[];
  /** Uninterpreted properties. `object.write` gets them back, without those named in `maintained`. */
  carried?: Carried | undefined;
}

export interface FoundReservation {
  id: string;
  extId?: string | undefined;
  begin: number;
  end: number;
  /** Completeness (`B_…`), certainty (`C_…`) and other statuses. A missing one has its usual value. */
  status?: readonly string[] | null | undefined;
  /** Booked objects by external id. A missing name means that slotsync did not create the object. */
  objects?: readonly { typeId?: string | undefined; objectId?: string | undefined }[] | null | undefined;
  fields?:
    | readonly { fieldId?: string | undefined; values?: readonly string[] | null | undefined }[]
    | null
    | undefined;
}

/** A cancellation. `id` and `extId` are its own, not those of the reservation. */
export interface FoundCancellation extends FoundReservation {
  reservationId?: string | null | undefined;
  cancelledAt?: number | null | undefined;
}

/** An object for a write. An `id` names an existing object, which gets the external id. */
export type PutObject = DestinationObject & { id?: string | undefined };

/** The service's result for one object of a write. `extId` is as in the answer, and `status` as in HTTP. */
export interface WriteResult {
  extId: string;
  id?: string | undefined;
  status: number;
  reason?: string | undefined;
}

export interface Credentials {
  key: string;
  organizationId: string;
  region: string;
}

/** All parts of a dialect. An `id` is the service's own id as text; slotsync only stores, compares and returns it. */
export interface Dialect {
  authenticate: {
    /** Writes the request for a token. Its path gets no prefix. */
    ask: (credentials: Credentials) => Asked & { headers: Readonly<Record<string, string>> };
    read: (body: Json) => string;
    /** Returns the headers of every request except the one for a token. */
    headers: (token: string) => Readonly<Record<string, string>>;
  };
  find: {
    ask: (question: Question) => Asked;
    read: (body: Json, question: Question) => Results;
  };
  type: { read: (found: Json) => FoundDefinition };
  field: { read: (found: Json) => FoundDefinition };
  object: {
    /** Reads an object. If `carries` is true, includes its uninterpreted properties. */
    read: (found: Json, carries: boolean) => FoundObject;
    /** Reads only the ids of an object that `read` cannot understand, to see whether slotsync needs the object. */
    identify: (found: Json) => { id: string; extId?: string | null | undefined };
    write: (object: PutObject) => unknown;
  };
  reservation: { read: (found: Json) => FoundReservation };
  cancellation: { read: (found: Json) => FoundCancellation };
  write: {
    method: Method;
    path: string;
    body: (objects: readonly PutObject[]) => unknown;
    /** Returns one result per object. `body` is undefined if the answer has no body, for example with 204. */
    read: (body: unknown, sent: readonly PutObject[], status: number) => readonly WriteResult[];
    /** True if the service keeps fields that a write does not name. Then a write names only owned fields. */
    patches: boolean;
  };
  active: {
    read: (found: Json) => boolean | null | undefined;
    /** Returns the properties that express the active state. */
    write: (active: boolean) => object;
  };
  error: {
    /** Returns the reason in the JSON of an error, or undefined if there is no reason. */
    read: (body: unknown) => string | undefined;
    /** Writes a request that the service must refuse. The command `check` sends it to see the form of errors. */
    ask: () => Asked;
  };
  /** Unit of times in requests and answers, for the default functions. */
  times: 'seconds' | 'milliseconds';
  /** Form in which the default functions write integer ids. They read both forms, and write other ids as text. */
  ids: 'numbers' | 'texts';
  /** Names of object properties that only the service maintains. A write never sends them. */
  maintained: readonly string[];
  /** Seconds after a write during which a find may still return the state before the write. */
  findLagSeconds: number;
}

export type DialectParts = {
  [Section in keyof Dialect]?: Dialect[Section] extends readonly unknown[] | string | number
    ? Dialect[Section]
    : Partial<Dialect[Section]>;
};

/** Parts that replace default parts, or a function that returns them. Functions of `base` use the replaced parts. */
export type DialectDefinition = DialectParts | ((base: Dialect) => DialectParts);

/** Types a dialect for an editor, and returns it unchanged. */
export const defineDialect = (dialect: DialectDefinition): DialectDefinition => dialect;

/** Error of an answer that cannot be understood. `place` is the position of the fault in the answer. */
export class NotUnderstood extends Error {
  override readonly name = 'NotUnderstood';
  /** `remedy` tells how to correct the fault. `detail` is a text that may repeat parts of the answer. */
  readonly more: { remedy?: string | undefined; detail?: string | undefined };

  constructor(place: string, what: string, more: NotUnderstood['more'] = {}) {
    super(place === '' ? what : `${place}: ${what}`);
    this.more = more;
  }
}
