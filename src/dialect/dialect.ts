// A dialect: what is said to the service and understood of it, as pure functions and constants. The default one is in
// default-dialect.ts; a configuration may replace any part (docs/service-contract.md). Times are Unix milliseconds.
import type { Carried, DestinationObject, FieldValues } from '../streams/destination-object.js';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH';

/** A request. `path` begins with `/` and stands below `service.prefix`. Without a `body` none is sent. */
export interface Asked {
  method: Method;
  path: string;
  body?: unknown;
}

export type Kind = 'types' | 'fields' | 'objects' | 'reservations' | 'cancellations';

/** The selection of a find: exactly one of these. */
export type Filter =
  | { by: 'none' }
  | { by: 'extIds'; extIds: readonly string[] }
  /** The service's own ids. */
  | { by: 'ids'; ids: readonly string[] }
  /** Every object of a type, inactive ones too, in an order that does not change. `derived`: with the fields that the service derives. */
  | { by: 'type'; typeId: string; derived?: boolean | undefined }
  /** Objects of a type that have one of the values in each of the fields. */
  | { by: 'fields'; typeId: string; fields: readonly FieldValues[]; derived?: boolean | undefined }
  /** Reservations or cancellations, in every status, that overlap a period, or that were changed in it. */
  | { by: 'window' | 'modified'; from: number; to: number }
  /** Reservations of any of these objects that are to take place and overlap the period. */
  | { by: 'upcoming'; typeId: string; extIds: readonly string[]; from: number; to: number };

/** A cursor, as `find.read` returned it. */
export type Cursor = string | number;

/** A question for one page. With a cursor, `page` counts on. */
export interface Question {
  kind: Kind;
  filter: Filter;
  /** Most results. */
  limit: number;
  /** From 1. */
  page: number;
  /** The cursor of the page. Undefined on the first page, and where the service numbers its pages. */
  cursor?: Cursor | undefined;
}

/** The answer to a find. It says whether there is more: by `next`, which is null after the last page, or by `totalPages`. */
export interface Results {
  results: readonly unknown[];
  next?: Cursor | null | undefined;
  totalPages?: number | null | undefined;
  totalResults?: number | null | undefined;
}

/** A part of an answer, as its JSON was parsed. It may be something else than an object. */
export type Json = Readonly<Record<string, unknown>>;

/** A type or a field. Without an external id nothing can name it. */
export interface FoundDefinition {
  id: string;
  extId?: string | null | undefined;
  name?: string | null | undefined;
}

/** An object that was read. Without `typeId` it is taken for the type that was asked for, without `active` for active. */
export interface FoundObject {
  id: string;
  /** The external id. Null: the object was made by hand and has none. */
  extId?: string | null | undefined;
  typeId?: string | null | undefined;
  active?: boolean | null | undefined;
  fields: readonly {
    fieldId: string;
    values?: readonly string[] | null | undefined;
    carried?: Carried | undefined;
  }[];
  /** The properties that are not understood. `object.write` gets them back, without those named in `maintained`. */
  carried?: Carried | undefined;
}

export interface FoundReservation {
  id: string;
  extId?: string | undefined;
  begin: number;
  end: number;
  /** `B_…` and `C_…`, or statuses of the organization's own. One that is absent is the usual one. */
  status?: readonly string[] | null | undefined;
  /** The booked objects by external ids. Undefined names: not ours. */
  objects?: readonly { typeId?: string | undefined; objectId?: string | undefined }[] | null | undefined;
  fields?:
    | readonly { fieldId?: string | undefined; values?: readonly string[] | null | undefined }[]
    | null
    | undefined;
}

/** `id` and `extId` are the cancellation's own. */
export interface FoundCancellation extends FoundReservation {
  reservationId?: string | null | undefined;
  cancelledAt?: number | null | undefined;
}

/** An object to be written. With an `id` it is that object, which has no external id yet. */
export type PutObject = DestinationObject & { id?: string | undefined };

/** The service's verdict on one object of a write. `extId` as the service named it; `status` as in HTTP. */
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

/** `id` is the service's own id as a text, an integer as its digits. It is kept, compared for equality, and sent back. */
export interface Dialect {
  authenticate: {
    /** The request for a token. Its path stands below no prefix. */
    ask: (credentials: Credentials) => Asked & { headers: Readonly<Record<string, string>> };
    /** The token. */
    read: (body: Json) => string;
    /** The headers of every other request. */
    headers: (token: string) => Readonly<Record<string, string>>;
  };
  find: {
    ask: (question: Question) => Asked;
    read: (body: Json, question: Question) => Results;
  };
  type: { read: (found: Json) => FoundDefinition };
  field: { read: (found: Json) => FoundDefinition };
  object: {
    /** `carries`: with the properties that are not understood. */
    read: (found: Json, carries: boolean) => FoundObject;
    /** The names of an object that `read` does not understand: only an object of ours must be. */
    identify: (found: Json) => { id: string; extId?: string | null | undefined };
    /** An object as `write.body` sends it. */
    write: (object: PutObject) => unknown;
  };
  reservation: { read: (found: Json) => FoundReservation };
  cancellation: { read: (found: Json) => FoundCancellation };
  write: {
    method: Method;
    path: string;
    body: (objects: readonly PutObject[]) => unknown;
    /** Returns a result for each object. `body` is undefined where the answer has none, as with 204. */
    read: (body: unknown, sent: readonly PutObject[], status: number) => readonly WriteResult[];
    /** True: the service keeps fields that a write does not name. Then a write names only owned fields, and updates read nothing before. */
    patches: boolean;
  };
  active: {
    read: (found: Json) => boolean | null | undefined;
    /** The properties that say it. */
    write: (active: boolean) => object;
  };
  error: {
    /** The reason in the JSON of an error. Undefined: it has none. */
    read: (body: unknown) => string | undefined;
    /** A request that the service must refuse, for `check`. */
    ask: () => Asked;
  };
  /** The unit of the times that the default functions write and read. */
  times: 'seconds' | 'milliseconds';
  /** The form in which the default functions write ids that are integers. They read both, and write other ids as texts. */
  ids: 'numbers' | 'texts';
  /** Properties of an object that only the service maintains: they are never sent back. */
  maintained: readonly string[];
  /** Seconds after a write for which a find may still answer what was before it. */
  findLagSeconds: number;
}

/** Any parts of a dialect. */
export type DialectParts = {
  [Section in keyof Dialect]?: Dialect[Section] extends readonly unknown[] | string | number
    ? Dialect[Section]
    : Partial<Dialect[Section]>;
};

/** The parts that replace the default's, or a function of the default's functions, which see the replaced ones. */
export type DialectDefinition = DialectParts | ((base: Dialect) => DialectParts);

/** Types a dialect in an editor; returns it unchanged. */
export const defineDialect = (dialect: DialectDefinition): DialectDefinition => dialect;

/** An answer that cannot be understood. `place`: where in the answer. */
export class NotUnderstood extends Error {
  override readonly name = 'NotUnderstood';
  /** `detail`: a text that may repeat the answer. */
  readonly more: { remedy?: string | undefined; detail?: string | undefined };

  constructor(place: string, what: string, more: NotUnderstood['more'] = {}) {
    super(place === '' ? what : `${place}: ${what}`);
    this.more = more;
  }
}
