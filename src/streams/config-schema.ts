// The types of the configuration file, and the zod schema that checks the file. The types are written by hand, because
// inferred types would lose the comments that an editor shows. The compiler checks the schema against the types.
import { z } from 'zod';
import { isTimeZone, shorten } from '../text/format.js';
import { nearestName } from '../text/nearest-name.js';
import { ROW_LIMIT_MEGABYTES, type SourceDeclaration, type SourceQuery, type SourceTable } from './source.js';
import { findPatternFault } from '../time/cron-schedule.js';
import type { ExternalIdRule } from './external-id-rule.js';
import { WRITE_RULES, type WriteRule } from './field-rules.js';
import { AFTER_SYNC } from '../time/schedule.js';

/** A row of the mirror: column name to value. Dates and times are PostgreSQL's ISO text; big numbers are text. */
// oxlint-disable-next-line typescript/no-explicit-any -- columns have whatever type they have in the mirror
export type Row = Readonly<Record<string, any>>;

type Scalar = string | number | bigint | boolean | Date | null | undefined;

/** Values of a mapped field: one value, several values, or null, which sends no value. */
export type FieldValue = Scalar | readonly Scalar[];

/** Computes the value of a field. The result must depend on the row alone. */
export type FieldFunction = (row: Row) => FieldValue;

type Optional<T> = T | undefined;

/** External ids of a service's types and fields, as `slotsync discover --types` writes them. */
export interface ServiceNames {
  type: string;
  field: string;
}

/** A value for some of the fields. Without known field names, any name is allowed. */
type ByField<Service extends ServiceNames, T> = string extends Service['field']
  ? Record<string, T>
  : { [Field in Service['field']]?: T };

/** A column whose codes a lookup translates into values. */
export interface LookupField {
  /** The column with the code, or with a list of codes. */
  column: string;
  /** Name of a lookup in the `lookups` of this configuration. */
  lookup: string;
  /** For a code without a value: `refuse` the row (the default), `keep` the code, or null to send no value. */
  otherwise?: Optional<'refuse' | 'keep' | null>;
}

/** A CSV file that translates codes into values. */
export interface LookupFile {
  /** Path of the CSV file, relative to the folder of the configuration file. */
  file: string;
  /** The column with the code. */
  key: string;
  /** The column with the value. */
  value: string;
}

/** A table of the mirror that translates codes into values. Each plan of a run reads the table. */
export interface LookupSource {
  /** A table, a view, or a query. */
  from: SourceDeclaration;
  /** The column with the code. */
  key: string;
  /** The column with the value. */
  value: string;
  /** `filtered`: row-level security policies may hide rows, and the visible rows count as the whole table. */
  rowSecurity?: Optional<'filtered'>;
}

export interface KeyReference {
  /** Name of a stream in this configuration. */
  stream: string;
  /** Columns that hold the key of the referenced record. A null refers to no record, a list to several. */
  key: string | string[];
}

/** Rule for writing a field of an object that already exists. Not allowed with `owns: 'object'`. */
export interface FieldRuleConfig {
  /**
   * When the mapped value is written. `always` (the default): with each write. `changed`: if it differs from the value
   * accepted last, so that a value entered at the service stays until then. `onCreate`: only with a new object.
   * `whenEmpty`: while the field has no value at the service.
   */
  write?: Optional<WriteRule>;
  /** If true, adds the mapped values to those at the service. Removes only values that were added this way. */
  add?: Optional<boolean>;
  /** Effect of a null: `clear` the field (the default), or `keep` its value at the service. */
  ifNull?: Optional<'clear' | 'keep'>;
}

export interface RuledField extends FieldRuleConfig {
  /** A column, a function of the row, or a column whose codes a lookup translates. */
  from: string | FieldFunction | LookupField;
}

/** Limit of one operation, for example of updates. A plan that exceeds both figures is held for approval. */
export interface LimitThreshold {
  /** Number of records; 10 by default. */
  count?: Optional<number>;
  /** Share of the stream's records, in percent; 10 by default. */
  percent?: Optional<number>;
}

/** How a run determines the age of the mirror's data, and what happens if the data is too old. */
export interface FreshnessConfig {
  /** A SELECT that returns one time: when data was last loaded into the mirror. */
  query?: Optional<string>;
  /** A column of the stream's source with the time when a row was loaded; the latest counts. Only in streams. */
  column?: Optional<string>;
  /** Maximum age of the mirror's data in hours; 26 by default. */
  maxHours?: Optional<number>;
  /** Reaction to data that is too old: `hold` all writes until an operator approves (the default), or `warn`. */
  then?: Optional<'hold' | 'warn'>;
}

export const STREAM_OPERATIONS = ['create', 'update', 'retire'] as const;
export type StreamOperation = (typeof STREAM_OPERATIONS)[number];

/** Days until a deactivation, counted from the time in a column: the last accepted value, as the row is deleted. */
export interface GraceFrom {
  /** Name of a date or time column (UTC without a zone). A null counts from when the row was found missing. */
  column: string;
  /** Number of days after the time in the column. */
  days: number;
}

type FixedValue = string | number | boolean;

/** A deactivation that also writes some fields of the object. */
export interface RetireWith<Service extends ServiceNames = ServiceNames> {
  /** Always true. For objects that stay active, use `retire: 'keep'`. */
  deactivate: true;
  /** Values by field id, equal for every object. A list is several values; a null clears the field. */
  fields: ByField<Service, FixedValue | FixedValue[] | null>;
}

/** A stream: one kind of record, with its source in the mirror and its mapping to objects. */
export interface StreamConfig<Service extends ServiceNames = ServiceNames> {
  /** A table, a view, or a query. Names are taken literally; quote a part that contains a dot. */
  from: SourceDeclaration;
  /** The column or columns that identify a row. Values must be unique and not null. */
  key: string | string[];
  /**
   * `filtered`: row-level security may hide rows, and the visible rows count as the whole source. By default, a policy
   * that would hide rows is an error.
   */
  rowSecurity?: Optional<'filtered'>;
  /** External id of the object type at the service. */
  type: Service['type'];
  /** Further types of the stream's objects, such as `classroom` besides `room`. New objects get `type`. */
  subtypes?: Optional<Service['type'][]>;
  /** Template of the external id, such as `room_{room_code}`. Its columns must never change for a row. */
  externalId: string;
  /**
   * Maps field ids to columns, functions of the row, or columns with a lookup. A null sends nothing, a list several.
   */
  fields: ByField<Service, string | FieldFunction | LookupField | RuledField>;
  /** Maps field ids to records of another stream, or of this stream. Referenced records are sent first. */
  references?: Optional<ByField<Service, KeyReference & FieldRuleConfig>>;
  /** The `write` rule of fields and references without their own; `always` by default. */
  write?: Optional<WriteRule>;
  /** A column that grows whenever a row changes. Workers poll it for changes between nightly runs. */
  cursor?: Optional<string>;
  /** Maximum age of the mirror's data for this stream; by default as in the configuration's `freshness`. */
  freshness?: Optional<FreshnessConfig>;
  /** Cron expression for syncs of this stream, in the time zone of `schedule`; by default nightly. */
  schedule?: Optional<string>;
  /**
   * Operations that are sent; all by default. Plans only count the others. Without `create`, the stream changes only
   * objects that already exist at the service.
   */
  operations?: Optional<StreamOperation[]>;
  /** For a deleted row: `keep` its object (the default), `deactivate` it, or deactivate it and write fields. */
  retire?: Optional<'keep' | 'deactivate' | RetireWith<Service>>;
  /** `fields` (the default) reads objects and keeps unmapped fields; `object` replaces objects unread. */
  owns?: Optional<'fields' | 'object'>;
  /** Objects in one request. `auto` (the default) begins at 100 and learns the best number, at most 1000. */
  batchSize?: Optional<number | 'auto'>;
  /** Maximum megabytes of a row as text; 16 by default. A larger row is not read, and its record is given up. */
  rowLimitMegabytes?: Optional<number>;
  /** Days from a row's deletion, or from the time in a column, to its object's deactivation; 0 by default. */
  graceDays?: Optional<number | GraceFrom>;
  /** If true (the default), an object is deactivated only after its last upcoming reservation. */
  unlessReserved?: Optional<boolean>;
  /** Limits of what one run may change without an operator's approval. */
  limits?: Optional<{
    /** Limit of deactivations. Always in force. */
    retire?: Optional<LimitThreshold>;
    /** Limit of updates. Unlimited by default. */
    update?: Optional<LimitThreshold>;
    /** Limit of new objects. Unlimited by default. */
    create?: Optional<LimitThreshold>;
    /** Limit of creates that would change an existing object of the service that no record owns. Always in force. */
    overwrite?: Optional<LimitThreshold>;
    /** Limit of objects that are sent again because of drift. Always in force. */
    repair?: Optional<LimitThreshold>;
    /**
     * Limit of refused objects in a run; more than 50 and more than 10 % by default. Beyond the limit, the rest of the
     * stream is held until an operator approves it.
     */
    refused?: Optional<LimitThreshold>;
  }>;
  /**
   * Fields that identify an object already at the service. Before a create, an unowned object with equal values in all
   * these fields is searched for, and linked.
   */
  match?: Optional<Service['field'][]>;
  /** Days that a record waits for a record that it refers to; 14 by default. Then it is given up. */
  waitDays?: Optional<number>;
}

type BookedSource<Service extends ServiceNames> = Pick<
  StreamConfig<Service>,
  'from' | 'key' | 'rowSecurity' | 'externalId'
> & { fields: ByField<Service, string | FieldFunction | LookupField> };

/**
 * The mirror's bookings, which are compared with the service's reservations. Without a source, reservations are only
 * stored in the state. The reservation's `fields` are compared too.
 */
export interface ReservationsConfig<Service extends ServiceNames = ServiceNames> extends Partial<{
  [Key in keyof BookedSource<Service>]: Optional<BookedSource<Service>[Key]>;
}> {
  /** The column with the time when the booking begins. */
  begin?: Optional<string>;
  /** The column with the time when the booking ends. */
  end?: Optional<string>;
  /** Records that a booking books. Objects of other types at the service are not compared. */
  objects?: Optional<KeyReference[]>;
  /** A column that marks a cancelled booking: its value is true, a number other than 0, or a time. */
  cancelled?: Optional<string>;
  /** Statuses of a reservation that agree with its booking; complete and confirmed by default. */
  status?: Optional<(typeof RESERVATION_STATUSES)[number][]>;
  /** Time zone of begin and end times without a zone; UTC by default. */
  timezone?: Optional<string>;
  /** Period that a reconciliation compares, in days from now. */
  window?: Optional<{
    /** Days in the past; 7 by default. */
    pastDays?: Optional<number>;
    /** Days in the future; 180 by default. */
    futureDays?: Optional<number>;
  }>;
  /** Minutes between two queries for changed reservations at the service; 15 by default; 0: no queries. */
  everyMinutes?: Optional<number>;
}

/** The default export of `sync.config.ts`. */
export interface SlotsyncConfig<Service extends ServiceNames = ServiceNames> {
  /** Start of the nightly sync by workers. Streams with their own `schedule` are not part of it. */
  schedule?: Optional<{
    /**
     * Cron expression of the nightly sync: minute, hour, day of the month, month, day of the week. Not needed if every
     * stream has its own `schedule`.
     */
    nightly?: Optional<string>;
    /** Time zone of `nightly` and of the streams' schedules; UTC by default. */
    timezone?: Optional<string>;
    /** If true (the default), a nightly sync that was missed because no worker was running is started later, once. */
    catchUp?: Optional<boolean>;
    /**
     * Minutes to wait until the mirror has newer data than at the last sync; 0 by default. Then the sync starts anyway.
     */
    waitForLoadMinutes?: Optional<number>;
  }>;
  /** Maximum age of the mirror's data, for streams without their own `freshness`. */
  freshness?: Optional<Omit<FreshnessConfig, 'column'>>;
  /** Periods in which nothing is written, such as exam weeks. */
  freeze?: Optional<
    {
      /** Begin of the freeze: a day or an ISO time, by default in the time zone of `schedule`. */
      from: string;
      /** End of the freeze: a day, which means its start, or an ISO time. */
      to: string;
      /** Names of the frozen streams; all streams by default. */
      streams?: Optional<string[]>;
      /** Reason of the freeze, for people who see that changes wait. */
      reason: string;
    }[]
  >;
  /** The streams to sync, by name. */
  streams: Record<string, StreamConfig<Service>>;
  /** Translations of codes into values, by name: inline, in a CSV file, or in a table of the mirror. */
  lookups?: Optional<Record<string, Record<string, string | null> | LookupFile | LookupSource>>;
  /** Bookings of the mirror that are compared with the reservations at the service. */
  reservations?: Optional<ReservationsConfig<Service>>;
  /** Polling by workers of the streams that have a `cursor`. */
  polling?: Optional<{
    /** Seconds between two polls of a stream's cursor; 60 by default. */
    everySeconds?: Optional<number>;
    /**
     * Each poll reads again this many seconds before its watermark, because transactions may commit late; 300 by
     * default.
     */
    overlapSeconds?: Optional<number>;
    /** A poll reads a cursor that is a time only up to this many seconds before now; 2 by default. */
    lagSeconds?: Optional<number>;
  }>;
  /** Times when workers read objects back from the service, and their reaction to drift. */
  verify?: Optional<{
    /** `sync` for after each nightly sync, or a cron expression in the time zone of `schedule`. */
    after: string;
    /** `never` (the default), or `within-limits`: drift is sent again up to `limits.repair`. */
    repair?: Optional<'never' | 'within-limits'>;
    /** Maximum share of the quota for a verify by worker or command, from 0.05 to 1; 0.5 by default. */
    share?: Optional<number>;
  }>;
  /** Concerns that are reported by webhook and mail. A channel is active if its setting is set. */
  alerts?: Optional<{
    /** Ends of runs that are reported; all three by default. */
    runs?: Optional<('failed' | 'partial' | 'held')[]>;
    /** Minutes without sending after which a process is reported; 15 by default. `false`: never. */
    sendingStoppedMinutes?: Optional<number | false>;
    /**
     * Hours without a successful sync before an alert; `false`: never. By default, an alert follows two hours after a
     * nightly sync was due and did not succeed.
     */
    noSuccessHours?: Optional<number | false>;
    /** Number of drifted objects of a stream from which drift is reported; 1 by default. `false`: never. */
    driftObjects?: Optional<number | false>;
    /** Minutes that a key may wait in the inbox before an alert is sent; 60 by default. `false`: never. */
    inboxMinutes?: Optional<number | false>;
    /** Required for alert mails. ALERT_SMTP_URL names the mail server. */
    mail?: Optional<{
      /** Sender address of the mails. */
      from: string;
      /** Recipient addresses of the mails. */
      to: string[];
    }>;
  }>;
  /** A report that is mailed automatically, via ALERT_SMTP_URL and from `alerts.mail.from`. */
  report?: Optional<{
    /** Recipient addresses of the report. */
    to: string[];
    /** `nightly` (the only value): the report is sent once each nightly run has ended. */
    after?: Optional<'nightly'>;
    /** `always` (the default), or `whenSomething`: the run did not succeed, or a concern or record needs attention. */
    only?: Optional<'always' | 'whenSomething'>;
  }>;
  /** Hours after which an unused approval expires; 24 by default. */
  approvalHours?: Optional<number>;
  /** Contents of the history for each write: field `names` (the default), names and `values`, or `none`. */
  history?: Optional<'names' | 'values' | 'none'>;
  /** Days for which the history of writes is stored; 90 by default. */
  historyDays?: Optional<number>;
  /** Properties of the service and of its endpoints. */
  service?: Optional<{
    /**
     * Path of a dialect file (`defineDialect`), relative to the configuration file. A dialect changes how requests are
     * written and answers are read.
     */
    dialect?: Optional<string>;
    /** Path prefix of the scheduling endpoints; `/v1` by default. */
    prefix?: Optional<string>;
    /** Timeout of a request and its whole answer, in milliseconds; 30 000 by default. */
    requestTimeoutMs?: Optional<number>;
    /** Seconds after its timeout within which the service may still read or carry out a request; 30 by default. */
    lateWriteSeconds?: Optional<number>;
    /** Lifetime in seconds of an access token that states no expiry; 300 by default. */
    tokenSeconds?: Optional<number>;
    /** Maximum number of results in one page of a find; 1000 by default. */
    pageSize?: Optional<number>;
    /** If true (the default), objects can be found by field values. If false, `match` reads types whole. */
    searchByFields?: Optional<boolean>;
    /** If true, `match` and `verify` also read derived fields (`includeReferenceFields`); false by default. */
    derivedFields?: Optional<boolean>;
    /** If true, a PUT with an object's number sets the external id of that object; false by default. */
    assignExternalIds?: Optional<boolean>;
    /** If true, a PUT may change an object's type when its row moves to another stream; false by default. */
    canChangeTypes?: Optional<boolean>;
    /** How the service compares external ids. By default, two ids are equal only if every character is equal. */
    externalIds?: Optional<{
      /** `insensitive`: `A1` and `a1` are equal ids. */
      case?: Optional<'sensitive' | 'insensitive'>;
      /** If true, blanks at both ends are ignored; false by default. */
      trim?: Optional<boolean>;
      /** `NFC`: composed and decomposed letters are equal. */
      normalize?: Optional<'NFC'>;
      /** Number of characters that are compared. Later characters are ignored. */
      maxLength?: Optional<number>;
    }>;
    /** Error bodies of the service itself: `json` (the default; other bodies come from a gateway), or `any`. */
    errorBodies?: Optional<'json' | 'any'>;
  }>;
}

/** A zod schema for every key of `T`. A missing key is a compile error, also for an optional setting. */
type Shape<T> = { [Key in keyof T]-?: z.ZodType<unknown, T[Key]> };
type Section<Name extends keyof SlotsyncConfig> = Shape<NonNullable<SlotsyncConfig[Name]>>;

/** Returns a text schema whose error message is the fault that `findFault` returns, if any. */
const faultless = (text: z.ZodString, findFault: (text: string) => string | undefined) =>
  text.superRefine((value, context) => {
    const fault = findFault(value);
    if (fault !== undefined) context.addIssue({ code: 'custom', message: fault });
  });

const PROTO_FAULT = '__proto__ has a meaning of its own in JavaScript; choose another name';

/** Maximum number of characters of a name. The indexes of the state do not accept much longer names. */
const LONGEST_NAME = 1024;

/** Returns why a text cannot be a name, or undefined. Never repeats the name, which may be long. */
function findNameFault(noun: string, text: string): string | undefined {
  if (text === '') return `${noun}: must not be empty`;
  if (text.length > LONGEST_NAME)
    return `${noun}: has ${text.length} characters; at most ${LONGEST_NAME} are possible`;
  if (text.includes('\0') || !text.isWellFormed())
    return `${noun}: contains a NUL character or half a character; write it again`;
  return text === '__proto__' ? `${noun}: ${PROTO_FAULT}` : undefined;
}

const name = (noun: string, findFault: (text: string) => string | undefined = () => undefined) =>
  faultless(z.string(`${noun}, as text`), (text) => findNameFault(noun, text) ?? findFault(text));
/** Schema of a name at the service, where `seats ` and `seats` are different fields. Refuses outer blanks. */
const serviceName = (noun: string, findFault: (text: string) => string | undefined = () => undefined) =>
  name(noun, (text) =>
    text === text.trim() ? findFault(text) : `${noun}: begins or ends with a blank; remove it`,
  );
const flag = z.boolean('true or false');
const MOST_DAYS = 3660;
const days = z.number(`a number of days, from 0 to ${MOST_DAYS}`).min(0).max(MOST_DAYS);
const seconds = z.number('a number of seconds, 0 or more').min(0);

const mailAddress = z
  .string("a mail address such as 'ops@campus.example', as text")
  .regex(
    /^[^\s@<>,;:"()]+@[^\s@<>,;:"()]+$/,
    "a mail address such as 'ops@campus.example', and nothing else",
  );
const mailAddresses = z.array(mailAddress, 'a list of mail addresses').min(1, 'at least one mail address');
const orNever = (number: z.ZodNumber, error: string) => z.union([z.literal(false), number], { error });

const column = name('a column name');
const columns = z.union([column, z.array(column).min(1, 'at least one column')], {
  error: 'a column name, or a list of column names for a composite key',
});
const key = columns.superRefine((names, context) => {
  const twice = Array.isArray(names) && names.find((one, at) => names.indexOf(one) < at);
  if (twice) context.addIssue({ code: 'custom', message: `names column ${twice} twice; keep one of them` });
});

const fieldFunction = z
  .custom<FieldFunction>((value) => typeof value === 'function')
  .refine((value) => Object.prototype.toString.call(value) !== '[object AsyncFunction]', {
    error: 'a function of the row must return its value at once: it cannot be async',
  });
const lookupField = z.strictObject({
  column,
  lookup: name('the name of a lookup'),
  otherwise: z.enum(['refuse', 'keep'], "'refuse', 'keep' or null").nullable().default('refuse'),
} satisfies Shape<LookupField>);
const field = z.union([column, fieldFunction, lookupField], {
  error: "a column name, a function of the row: (row) => …, or { column: 'code', lookup: 'name' }",
});
const FIELDS = 'an object: field id at the service to column or function';
const fields = z.record(serviceName('a field id'), field, FIELDS);

const writeRule = z.enum(WRITE_RULES, WRITE_RULES.map((rule) => `'${rule}'`).join(', '));
const fieldRule = {
  write: writeRule.optional(),
  add: flag.optional(),
  ifNull: z.enum(['clear', 'keep'], "'clear' or 'keep'").optional(),
} satisfies Shape<FieldRuleConfig>;
const ruledField = z.strictObject({ from: field, ...fieldRule } satisfies Shape<RuledField>);
const FIELD_FORMS =
  "a column name, a function of the row: (row) => …, { column: 'code', lookup: 'name' }, or { from: …, write: 'changed' }";
const ruledFields = z.record(
  serviceName('a field id'),
  z.union([field, ruledField], {
    error: ({ input, errors }) => {
      const [, faults = []] = errors as readonly { path: PropertyKey[]; message: string }[][];
      const isRuled = typeof input === 'object' && input !== null && 'from' in input;
      // The union's general message would not say which key of the rule is wrong.
      return isRuled
        ? faults.map(({ path, message }) => [...path, message].join(': ')).join('; ')
        : FIELD_FORMS;
    },
  }),
  FIELDS,
);

const select = faultless(z.string('a SELECT, as text'), (sql) => {
  if (sql.trim() === '') return 'a SELECT: must not be empty';
  return sql.includes('\0') ? 'a SELECT: contains a NUL character; remove it' : undefined;
});
const query = z.strictObject({ query: select } satisfies Shape<SourceQuery>);
const someColumns = z.strictObject({
  table: name('a table or view'),
  columns: z.array(name('a column')).min(1, 'the columns that are read: name at least one'),
} satisfies Shape<SourceTable>);
const source = z.union([name('a table or view'), query, someColumns], {
  error:
    "a table or view such as 'campus.rooms', { table: 'campus.rooms', columns: ['room_code', 'name'] }, or { query: 'select …' }",
});

const rowSecurity = z.literal('filtered', "'filtered', or left out").optional();

/** Keys that make a lookup a table or a file. A code with one of these names could be mistaken for either. */
const LOOKUP_KINDS = { from: 'a table of the mirror', file: 'a CSV file' } as const;
/** Returns why a lookup that is neither a table nor a file may not have its codes. */
function findCodeFault(lookup: unknown): string | undefined {
  const kind = Object.entries(LOOKUP_KINDS).find(([key]) => Object.hasOwn(Object(lookup) as object, key));
  if (!kind) return undefined;
  const [key, what] = kind;
  return `'${key}' makes the lookup ${what}, which needs 'key' and 'value' and nothing else; a code named '${key}' must be in a CSV file`;
}
const lookups = z.record(
  name('the name of a lookup'),
  z.union(
    [
      z.strictObject({
        from: source,
        key: column,
        value: column,
        rowSecurity,
      } satisfies Shape<LookupSource>),
      z.strictObject({ file: name('a CSV file'), key: column, value: column } satisfies Shape<LookupFile>),
      z.record(z.string(), z.string().nullable()).refine((codes) => findCodeFault(codes) === undefined, {
        error: ({ input }) => findCodeFault(input),
      }),
    ],
    {
      error: ({ input }) =>
        findCodeFault(input) ??
        "codes and their values, { file: 'codes.csv', key: 'code', value: 'name' }, or { from: 'campus.codes', key: 'code', value: 'name' }",
    },
  ),
  'an object: name to lookup',
);

/** `findFault` returns why a combination of `query` and `column` is not allowed, or undefined. */
const freshness = (findFault: (asked: Pick<FreshnessConfig, 'query' | 'column'>) => string | undefined) =>
  z
    .strictObject({
      query: select.optional(),
      column: column.optional(),
      maxHours: z.number('a number of hours above 0').positive().max(87_600).default(26),
      then: z.enum(['hold', 'warn'], "'hold' or 'warn'").default('hold'),
    } satisfies Shape<FreshnessConfig>)
    .superRefine((asked, context) => {
      const message = findFault(asked);
      if (message !== undefined) context.addIssue({ code: 'custom', message });
    });

const timezone = name("a time zone such as 'Europe/Stockholm'", (zone) => {
  if (isTimeZone(zone)) return undefined;
  const near = nearestName(zone, Intl.supportedValuesOf('timeZone'));
  const meant = near === undefined ? "write one such as 'Europe/Stockholm'" : `did you mean '${near}'?`;
  return `there is no time zone '${zone}'; ${meant}`;
});

const keyReference = z.strictObject({
  stream: name('the name of a stream'),
  key: columns,
} satisfies Shape<KeyReference>);

const threshold = z.strictObject({
  count: z.number().int().min(0).default(10),
  percent: z.number().min(0).max(100).default(10),
} satisfies Shape<LimitThreshold>);

/** Maximum number of objects in one request, for configured and for learned batch sizes. */
export const MOST_OBJECTS = 1000;
/** Number of objects in the first requests of a type, before a batch size is learned. */
export const FIRST_OBJECTS = 100;

/** Name of the bookings in commands, in place of a stream: `slotsync explain reservations`. */
export const BOOKINGS = 'reservations';

function findStreamNameFault(text: string): string | undefined {
  if (!/^[a-z]\w{0,62}$/i.test(text)) return 'a stream name: letters, digits and _, at most 63';
  if (text === BOOKINGS) return `means the bookings, as in slotsync explain ${BOOKINGS}; choose another name`;
  return text in {} ? 'every object of JavaScript has something of this name; choose another one' : undefined;
}

const fixedValue = z.union([name('a value'), z.number(), z.boolean()]);
const retireWith = z.strictObject({
  deactivate: z.literal(true),
  fields: z
    .record(serviceName('a field id'), z.union([fixedValue, z.array(fixedValue), z.null()]))
    .refine((set) => Object.keys(set).length > 0, "at least one field; without any, write 'deactivate'"),
} satisfies Shape<RetireWith>);

export const streamSchema = z.strictObject({
  from: source,
  key,
  rowSecurity,
  type: serviceName("the external id of a type at the service, such as 'room'"),
  subtypes: z.array(serviceName('the external id of a type'), 'a list of types').default([]),
  externalId: serviceName("a template such as 'room_{room_code}'", (text) =>
    text.includes('{__proto__}') ? PROTO_FAULT : undefined,
  ),
  fields: ruledFields,
  write: writeRule.optional(),
  references: z
    .record(
      serviceName('a field id'),
      keyReference.extend(fieldRule),
      "an object: field id to { stream: 'rooms', key: 'home_room' }",
    )
    .default({}),
  cursor: column.optional(),
  freshness: freshness(({ query: asked, column: named }) =>
    (asked === undefined) === (named === undefined)
      ? 'needs either `column` or `query`, which tells when the mirror was loaded'
      : undefined,
  ).optional(),
  schedule: name("a cron expression such as '0 6 * * SUN'", findPatternFault).optional(),
  operations: z
    .array(z.enum(STREAM_OPERATIONS, "'create', 'update' or 'retire'"), 'a list of operations')
    .min(1, "at least one of 'create', 'update' and 'retire'; to send nothing for a time: slotsync freeze")
    .optional(),
  retire: z
    .union([z.enum(['keep', 'deactivate']), retireWith], {
      error: "'keep', 'deactivate', or { deactivate: true, fields: { 'room.name': 'closed' } }",
    })
    .default('keep'),
  owns: z.enum(['fields', 'object'], "'fields' or 'object'").default('fields'),
  batchSize: z
    .union([z.literal('auto'), z.number().int().min(1).max(MOST_OBJECTS)], {
      error: "'auto', or a whole number of objects from 1 to 1000",
    })
    .default('auto'),
  rowLimitMegabytes: z.number().int().min(1).max(512).default(ROW_LIMIT_MEGABYTES),
  graceDays: z
    .union([days, z.strictObject({ column, days } satisfies Shape<GraceFrom>)], {
      error: `a number of days, from 0 to ${MOST_DAYS}, or { column: 'ends_on', days: 30 }`,
    })
    .default(0),
  unlessReserved: flag.default(true),
  limits: z
    .strictObject({
      retire: threshold.prefault({}),
      update: threshold.optional(),
      create: threshold.optional(),
      overwrite: threshold.prefault({}),
      repair: threshold.prefault({}),
      refused: threshold.extend({ count: z.number().int().min(0).default(50) }).prefault({}),
    } satisfies Shape<NonNullable<StreamConfig['limits']>>)
    .prefault({}),
  match: z.array(serviceName('a field id'), 'a list of field ids').min(1, 'at least one field id').optional(),
  waitDays: days.positive('a number of days above 0').default(14),
} satisfies Shape<StreamConfig>);

/**
 * Every status that a reservation with a begin and an end may have: how complete (`B_`) and how certain (`C_`) it is. A
 * find that does not list the statuses omits reservations of five of the seven.
 */
export const RESERVATION_STATUSES = [
  'B_COMPLETE',
  'B_INCOMPLETE',
  'C_CONFIRMED',
  'C_PRELIMINARY',
  'C_PLANNED',
  'C_REQUESTED',
  'C_REJECTED',
] as const;

/** Keys that locate the bookings, with the hint for a missing key. A configuration sets all or none. */
const BOOKING_KEYS = {
  from: "a table or view such as 'campus.bookings', or { query: 'select …' }",
  key: 'a column name, or a list of column names for a composite key',
  externalId: "a template such as 'res_{id}'",
  begin: 'a column name, as text',
  end: 'a column name, as text',
} as const;

const reservations = z
  .strictObject({
    from: source.optional(),
    key: key.optional(),
    rowSecurity,
    externalId: serviceName(BOOKING_KEYS.externalId).optional(),
    begin: column.optional(),
    end: column.optional(),
    objects: z.array(keyReference).default([]),
    cancelled: column.optional(),
    fields: fields.default({}),
    status: z
      .array(z.enum(RESERVATION_STATUSES), `a list of ${RESERVATION_STATUSES.join(', ')}`)
      .min(1, 'at least one status')
      .default(['B_COMPLETE', 'C_CONFIRMED']),
    timezone: timezone.default('UTC'),
    window: z.strictObject({ pastDays: days.default(7), futureDays: days.default(180) }).prefault({}),
    everyMinutes: z.number('a number of minutes, 0 or more').min(0).max(10_080).default(15),
  } satisfies Section<'reservations'>)
  .superRefine((reservations, context) => {
    const { objects, cancelled, fields: compared, begin, end, window } = reservations;
    const refuse = (place: keyof typeof reservations, message: string) =>
      context.addIssue({ code: 'custom', path: [place], message });
    if (begin !== undefined && begin === end) refuse('end', 'is the column of begin; name another one');
    if (window.pastDays + window.futureDays === 0) refuse('window', 'is empty: one of both must be above 0');
    const keys = Object.keys(BOOKING_KEYS) as (keyof typeof BOOKING_KEYS)[];
    const isNamed = objects.length > 0 || cancelled !== undefined || Object.keys(compared).length > 0;
    if (!isNamed && keys.every((key) => reservations[key] === undefined)) return;
    for (const key of keys.filter((key) => reservations[key] === undefined))
      refuse(key, `is missing: ${BOOKING_KEYS[key]}`);
  });

/** Default of `verify.share`: share of the quota for reads of all objects of a type. */
export const DEFAULT_VERIFY_SHARE = 0.5;

export const configSchema = z.strictObject({
  schedule: z
    .strictObject({
      nightly: name("a cron expression such as '0 2 * * *'", findPatternFault).optional(),
      timezone: timezone.default('UTC'),
      catchUp: flag.default(true),
      waitForLoadMinutes: z.number('minutes from 0 to 1439').int().min(0).max(1439).default(0),
    } satisfies Section<'schedule'>)
    .optional(),
  freshness: freshness(({ query: asked, column: named }) => {
    if (named !== undefined) return '`column` needs a table: write it into a stream, or `query` here';
    return asked === undefined ? 'needs `query`, which tells when the mirror was loaded' : undefined;
  }).optional(),
  streams: z
    .record(faultless(z.string(), findStreamNameFault), streamSchema, 'an object: stream name to declaration')
    .refine((streams) => Object.keys(streams).length > 0, 'at least one stream'),
  freeze: z
    .array(
      z.strictObject({
        from: name("a day such as '2026-05-25', or an ISO time"),
        to: name("a day such as '2026-06-07', or an ISO time"),
        streams: z.array(name('a stream'), 'a list of streams').min(1, 'at least one stream').optional(),
        reason: name('why nothing is written'),
      } satisfies Shape<NonNullable<SlotsyncConfig['freeze']>[number]>),
      'a list of { from, to, reason }',
    )
    .default([]),
  lookups: lookups.default({}),
  reservations: reservations.optional(),
  polling: z
    .strictObject({
      everySeconds: z.number('a number of seconds from 1 on').min(1).max(86_400).default(60),
      overlapSeconds: seconds.max(86_400).default(300),
      lagSeconds: seconds.max(3600).default(2),
    } satisfies Section<'polling'>)
    .prefault({}),
  verify: z
    .strictObject({
      after: name("'sync', or a cron expression such as '0 5 * * 0'", (after) =>
        after === AFTER_SYNC ? undefined : findPatternFault(after),
      ),
      repair: z.enum(['never', 'within-limits'], "'never' or 'within-limits'").default('never'),
      share: z.number('a share from 0.05 to 1').min(0.05).max(1).default(DEFAULT_VERIFY_SHARE),
    } satisfies Section<'verify'>)
    .optional(),
  alerts: z
    .strictObject({
      runs: z
        .array(z.enum(['failed', 'partial', 'held']), "a list of 'failed', 'partial', 'held'")
        .default(['failed', 'partial', 'held']),
      sendingStoppedMinutes: orNever(
        z.number().min(0).max(10_080),
        'minutes from 0 to 10080, or false',
      ).default(15),
      noSuccessHours: orNever(
        z.number().positive().max(8760),
        'hours above 0, up to 8760, or false',
      ).optional(),
      driftObjects: orNever(z.number().int().min(1), 'a whole number of objects from 1 on, or false').default(
        1,
      ),
      inboxMinutes: orNever(
        z.number().positive().max(10_080),
        'minutes above 0, up to 10080, or false',
      ).default(60),
      mail: z
        .strictObject({
          from: mailAddress,
          to: mailAddresses,
        } satisfies Shape<NonNullable<NonNullable<SlotsyncConfig['alerts']>['mail']>>)
        .optional(),
    } satisfies Section<'alerts'>)
    .prefault({}),
  report: z
    .strictObject({
      to: mailAddresses,
      after: z.literal('nightly', "'nightly'").default('nightly'),
      only: z.enum(['always', 'whenSomething'], "'always' or 'whenSomething'").default('always'),
    } satisfies Section<'report'>)
    .optional(),
  approvalHours: z.number('a number of hours above 0').positive().max(8760).default(24),
  history: z.enum(['names', 'values', 'none'], "'names', 'values' or 'none'").default('names'),
  historyDays: days.positive('a number of days above 0').default(90),
  service: z
    .strictObject({
      dialect: name('the path of a file').optional(),
      prefix: z
        .string()
        .max(LONGEST_NAME)
        .regex(/^(\/(?!\.{1,2}(\/|$))[\w.-]+)*$/, "a path such as '/v1', or '' for none")
        .default('/v1'),
      requestTimeoutMs: z.number().int().min(100).max(600_000).default(30_000),
      lateWriteSeconds: seconds.max(3600).default(30),
      tokenSeconds: z.number().int().min(10).max(86_400).default(300),
      pageSize: z.number().int().min(1).max(10_000).default(1000),
      searchByFields: flag.default(true),
      derivedFields: flag.default(false),
      assignExternalIds: flag.default(false),
      canChangeTypes: flag.default(false),
      externalIds: z
        .strictObject({
          case: z.enum(['sensitive', 'insensitive'], "'sensitive' or 'insensitive'").optional(),
          trim: flag.optional(),
          normalize: z.literal('NFC', "'NFC'").optional(),
          maxLength: z.number('a whole number of characters from 1 on').int().min(1).max(1024).optional(),
        } satisfies Shape<ExternalIdRule>)
        .optional(),
      errorBodies: z.enum(['json', 'any']).default('json'),
    } satisfies Section<'service'>)
    .prefault({}),
} satisfies Shape<SlotsyncConfig>);

/** The configuration after parsing, with every default filled in. */
export type ParsedConfig = z.output<typeof configSchema>;
export type StreamDeclaration = ParsedConfig['streams'][string];

/**
 * Types the configuration for an editor, and returns it unchanged. With the names that `slotsync discover --types`
 * writes, the editor checks types and fields.
 */
export function defineConfig<Service extends ServiceNames = ServiceNames>(
  config: SlotsyncConfig<NoInfer<Service>>,
): SlotsyncConfig<Service> {
  return config;
}

/** Compile-time check that the schema accepts every configuration that the types allow. */
export type ReadableConfig = Satisfied<SlotsyncConfig, z.input<typeof configSchema>>;
type Satisfied<T extends Needed, Needed> = T;

/** Returns all key names of the configuration, to suggest the nearest name for a misspelled key. */
export function configKeys(): string[] {
  const keys = new Set<string>();
  const collect = (name: string, value: unknown) => {
    if (name === 'properties') for (const key of Object.keys(value as object)) keys.add(key);
    return value;
  };
  JSON.stringify(z.toJSONSchema(configSchema, { io: 'input', unrepresentable: 'any' }), collect);
  return [...keys];
}

/** A fault of the configuration: its place, and a message with the correction. */
export interface Fault {
  /** Dotted path in the configuration file: `streams.rooms.key`. */
  path: string;
  message: string;
}

/** Maximum number of characters of a path in a message. Names within a path may be long. */
const PLACE_SHOWN = 200;

export function describeFault({ path, message }: Fault): string {
  return path === '' ? message : `${shorten(path, PLACE_SHOWN)}: ${message}`;
}
