// The configuration file: its types, with the texts that an editor shows for each key, and the zod schema that checks
// it. The schema's shapes are compiled against the types, so the two cannot disagree. Types that zod infers would lose
// their comments in the package's declarations.
import { z } from 'zod';
import { isTimeZone, shorten } from '../text/format.js';
import { nearestName } from '../text/nearest-name.js';
import { ROW_LIMIT_MEGABYTES, type SourceDeclaration, type SourceQuery, type SourceTable } from './source.js';
import { findPatternFault } from '../time/cron-schedule.js';
import type { ExternalIdRule } from './external-id-rule.js';
import { WRITE_RULES, type WriteRule } from './field-rules.js';
import { AFTER_SYNC } from '../time/schedule.js';

/** A row of the mirror: column name to value. Dates and times arrive as PostgreSQL's ISO text, big numbers as text. */
// oxlint-disable-next-line typescript/no-explicit-any -- columns have whatever type they have in the mirror
export type Row = Readonly<Record<string, any>>;

type Scalar = string | number | bigint | boolean | Date | null | undefined;

/** The values that a field may be mapped to: one, several, or none (null: nothing is sent). */
export type FieldValue = Scalar | readonly Scalar[];

/** Computes a field from a row. Must depend on the row alone. */
export type FieldFunction = (row: Row) => FieldValue;

type Optional<T> = T | undefined;

/** External ids of the types and fields that a service knows. `slotsync discover --types` writes those of yours. */
export interface ServiceNames {
  type: string;
  field: string;
}

/** A value for some of the fields; without known names for any. */
type ByField<Service extends ServiceNames, T> = string extends Service['field']
  ? Record<string, T>
  : { [Field in Service['field']]?: T };

/** A column whose codes are translated. */
export interface LookupField {
  /** The column with the code, or with a list of codes. */
  column: string;
  /** The name of a lookup of this configuration. */
  lookup: string;
  /** The treatment of a code that the lookup does not have: `refuse` the row (the default), `keep` the code, or null: send no value. */
  otherwise?: Optional<'refuse' | 'keep' | null>;
}

/** A CSV file with codes, beside the configuration file. */
export interface LookupFile {
  /** Its path, from the folder of the configuration file. */
  file: string;
  /** The column with the code. */
  key: string;
  /** The column with the value. */
  value: string;
}

/** A table of the mirror with codes. Read whenever a run is planned. */
export interface LookupSource {
  /** A table, a view, or a query. */
  from: SourceDeclaration;
  /** The column with the code. */
  key: string;
  /** The column with the value. */
  value: string;
  /** `filtered`: the rows that policies of row-level security show are the whole table. */
  rowSecurity?: Optional<'filtered'>;
}

export interface KeyReference {
  /** The name of a stream of this configuration. */
  stream: string;
  /** The columns that hold that stream's key, in its order. A null refers to nothing, a list to several records. */
  key: string | string[];
}

/** The rule by which a field of an object that exists gets its value. A stream that owns the whole object has no rules. */
export interface FieldRuleConfig {
  /**
   * When the mapped value is written: `always` with each write of the object (the default); `changed`: when it differs from the
   * one accepted last, so that a value entered at the service stays until then; `onCreate`: with a new object only;
   * `whenEmpty`: while the field has no value at the service.
   */
  write?: Optional<WriteRule>;
  /** Adds the mapped values to those at the service, and removes only values that were added so. For fields with several values. */
  add?: Optional<boolean>;
  /** The effect of a null: `clear` the field (the default), or `keep` what stands at the service. */
  ifNull?: Optional<'clear' | 'keep'>;
}

/** A field with a rule of its own. */
export interface RuledField extends FieldRuleConfig {
  /** The column, function of the row, or column whose codes a lookup translates. */
  from: string | FieldFunction | LookupField;
}

/** A run is held when an operation exceeds both figures. */
export interface LimitThreshold {
  /** Number of records; 10 by default. */
  count?: Optional<number>;
  /** Share of the stream's records, in percent; 10 by default. */
  percent?: Optional<number>;
}

/** How a run knows how old the load of the mirror is, and what follows when it is too old. */
export interface FreshnessConfig {
  /** A SELECT that returns one time: when the mirror was loaded last. */
  query?: Optional<string>;
  /** For a stream alone: a column of its source with the time at which the row was loaded. The latest one counts. */
  column?: Optional<string>;
  /** Hours that the load may be old; 26 by default. */
  maxHours?: Optional<number>;
  /** When it is older, or cannot be read: `hold` (the default) what would be sent for an operator, or `warn` and send it. */
  then?: Optional<'hold' | 'warn'>;
}

export const STREAM_OPERATIONS = ['create', 'update', 'retire'] as const;
export type StreamOperation = (typeof STREAM_OPERATIONS)[number];

/** Days that count from a time in a column: the row is gone by then, so the value counts that it had when it was accepted last. */
export interface GraceFrom {
  /** A date or a time; one without a zone is in UTC. Without a value the days count from when the row was found missing. */
  column: string;
  /** Days after that. */
  days: number;
}

type FixedValue = string | number | boolean;

/** A retirement that writes fields too. */
export interface RetireWith<Service extends ServiceNames = ServiceNames> {
  /** Always true: an object that stays active is kept as it is. */
  deactivate: true;
  /** Field id at the service to its value, the same for every object. A list is several values, and null empties the field. */
  fields: ByField<Service, FixedValue | FixedValue[] | null>;
}

/** A stream: which rows become which objects. */
export interface StreamConfig<Service extends ServiceNames = ServiceNames> {
  /** The place of the rows: a table, a view, or a query. Names are taken literally; quote a part that holds a dot. */
  from: SourceDeclaration;
  /** The column or columns that identify a row. Must be unique and not null. */
  key: string | string[];
  /** `filtered`: the rows that policies of row-level security show are the whole source. Without it a policy that would hide
   * rows is an error.
   */
  rowSecurity?: Optional<'filtered'>;
  /** External id of the object type at the service. */
  type: Service['type'];
  /** Further types whose objects are the stream's, such as `classroom` beside `room`. New objects get `type`; others keep theirs. */
  subtypes?: Optional<Service['type'][]>;
  /** Template of the external id. The columns it names must never change for a row. */
  externalId: string;
  /** Field id at the service to column, to a function of the row, or to a column whose codes a lookup translates. A null sends no value, a list sends several. */
  fields: ByField<Service, string | FieldFunction | LookupField | RuledField>;
  /** Field id at the service to a record of another stream, or of this one. That record is sent first. */
  references?: Optional<ByField<Service, KeyReference & FieldRuleConfig>>;
  /** The `write` of fields and references that say nothing else; `always` by default. */
  write?: Optional<WriteRule>;
  /** A column that grows whenever a row changes. With it, workers poll the source for changes between nightly runs. */
  cursor?: Optional<string>;
  /** How old the load of the stream's source may be; without it as the configuration says. */
  freshness?: Optional<FreshnessConfig>;
  /** When workers sync the stream, as a cron expression in the time zone of the configuration's `schedule`. Without it the
   * nightly sync does.
   */
  schedule?: Optional<string>;
  /** The operations of the stream that are sent, all by default. The others are counted in plans, and never sent. Without
   * `create` the stream only changes objects that are at the service already.
   */
  operations?: Optional<StreamOperation[]>;
  /** The fate of an object whose row is gone: `deactivate` it, with fields that are set then, or `keep` it (the default). */
  retire?: Optional<'keep' | 'deactivate' | RetireWith<Service>>;
  /** `fields` (the default) reads each object and keeps fields that are not mapped; `object` replaces it unread. */
  owns?: Optional<'fields' | 'object'>;
  /** Objects in one request. `auto` (the default) begins at 100 and learns what the service takes well, at most 1000; a
   * number fixes it.
   */
  batchSize?: Optional<number | 'auto'>;
  /** Megabytes of a row as text; 16 by default. A larger one is given up, unread. */
  rowLimitMegabytes?: Optional<number>;
  /** Days after which an object whose row is gone is retired; 0 by default. With a column: they count from its value. */
  graceDays?: Optional<number | GraceFrom>;
  /** Whether an object is retired only after its last upcoming reservation; true by default. */
  unlessReserved?: Optional<boolean>;
  /** How much one run may change without an operator's approval. */
  limits?: Optional<{
    /** The limit of retirements, which is always in force. */
    retire?: Optional<LimitThreshold>;
    /** The limit of updates; without it updates are not limited. */
    update?: Optional<LimitThreshold>;
    /** The limit of new objects; without it they are not limited. */
    create?: Optional<LimitThreshold>;
    /** The limit of creates that would change an object which is at the service already and is nobody's record. Always in
     * force.
     */
    overwrite?: Optional<LimitThreshold>;
    /** The limit of drift that is sent again, which is always in force. */
    repair?: Optional<LimitThreshold>;
    /** The limit of objects that the service refuses, of those that a run sends; always in force, by default more than 50 and
     * more than 10 %. Beyond it the rest of the stream waits.
     */
    refused?: Optional<LimitThreshold>;
  }>;
  /** Fields that name an object which is at the service already. Before a record is created, an object with the same
   * values of all of them that no record owns is looked for, and linked.
   */
  match?: Optional<Service['field'][]>;
  /** Days that a record waits for a record it refers to, 14 by default. After them it is given up. */
  waitDays?: Optional<number>;
}

type BookedSource<Service extends ServiceNames> = Pick<
  StreamConfig<Service>,
  'from' | 'key' | 'rowSecurity' | 'externalId'
> & { fields: ByField<Service, string | FieldFunction | LookupField> };

/**
 * The bookings that are compared with the service's reservations, and how. Without a source, the service's reservations are
 * kept in the state and compared with nothing. The reservation's `fields` are compared too.
 */
export interface ReservationsConfig<Service extends ServiceNames = ServiceNames> extends Partial<{
  [Key in keyof BookedSource<Service>]: Optional<BookedSource<Service>[Key]>;
}> {
  /** The column with the time at which the booking begins. */
  begin?: Optional<string>;
  /** The column with the time at which the booking ends. */
  end?: Optional<string>;
  /** The records of streams that are booked. Objects of other types at the service are not compared. */
  objects?: Optional<KeyReference[]>;
  /** A column that is true, not 0, or a time when the booking is cancelled. */
  cancelled?: Optional<string>;
  /** Statuses in which a reservation agrees with its booking; complete and confirmed by default. */
  status?: Optional<(typeof RESERVATION_STATUSES)[number][]>;
  /** The time zone by which times without a zone are read; UTC by default. */
  timezone?: Optional<string>;
  /** The time that a reconciliation compares, counted from now. */
  window?: Optional<{
    /** Days in the past; 7 by default. */
    pastDays?: Optional<number>;
    /** Days in the future; 180 by default. */
    futureDays?: Optional<number>;
  }>;
  /** Minutes between two readings by a worker of what changed at the service, 15 by default; 0: none. */
  everyMinutes?: Optional<number>;
}

/** The object that `sync.config.ts` exports. */
export interface SlotsyncConfig<Service extends ServiceNames = ServiceNames> {
  /** When workers start the nightly sync. Without it they never do. A stream with a `schedule` of its own is no part of it. */
  schedule?: Optional<{
    /** When the nightly sync starts, as a cron expression: minute, hour, day of the month, month, day of the week.
     * Left out where every stream has a `schedule` of its own.
     */
    nightly?: Optional<string>;
    /** The time zone by which `nightly`, and the schedules of streams, are read; UTC by default. */
    timezone?: Optional<string>;
    /** Whether a nightly sync that was missed, because no worker was running, is made up for, once; true by default. */
    catchUp?: Optional<boolean>;
    /** Minutes that the nightly sync waits for a load of the mirror newer than the one the last sync saw; none by default.
     * Then it starts, and `freshness` decides.
     */
    waitForLoadMinutes?: Optional<number>;
  }>;
  /** How old the load of the mirror may be, where a stream does not say it. */
  freshness?: Optional<Omit<FreshnessConfig, 'column'>>;
  /** Times in which nothing is written, such as exam weeks. Without `streams`, of all of them. */
  freeze?: Optional<
    {
      /** When it begins: a day, or an ISO time; by the time zone of `schedule` unless it says otherwise. */
      from: string;
      /** When it ends, in the same form. A day is its start. */
      to: string;
      /** The streams of which nothing is written; all unless named. */
      streams?: Optional<string[]>;
      /** Why, for whoever sees what waits. */
      reason: string;
    }[]
  >;
  /** The streams that are synced: name to declaration. */
  streams: Record<string, StreamConfig<Service>>;
  /** Codes and their values at the service, by name: written here, in a CSV file, or in a table of the mirror. */
  lookups?: Optional<Record<string, Record<string, string | null> | LookupFile | LookupSource>>;
  /** The bookings of the mirror that are compared with the service's reservations. */
  reservations?: Optional<ReservationsConfig<Service>>;
  /** How workers poll the streams that have a `cursor`. */
  polling?: Optional<{
    /** Seconds between two polls of a stream's cursor; 60 by default. */
    everySeconds?: Optional<number>;
    /** Seconds before the watermark that a poll reads again, for transactions that commit late; 300 by default. */
    overlapSeconds?: Optional<number>;
    /** A cursor that is a time is read up to this many seconds ago; 2 by default. */
    lagSeconds?: Optional<number>;
  }>;
  /** When workers read back what the service holds, and what they do about drift. */
  verify?: Optional<{
    /** After each nightly sync, or a cron expression, read in the time zone of `schedule`. */
    after: string;
    /** Whether drift is sent again: `never` (the default), or as far as `limits.repair` allows. */
    repair?: Optional<'never' | 'within-limits'>;
    /** Share of the quota that a verify uses at most, from 0.05 to 1; 0.5 by default. The command uses it too. */
    share?: Optional<number>;
  }>;
  /** The concerns that are reported by webhook and mail, and who gets the mail. A channel is on when its setting is set. */
  alerts?: Optional<{
    /** Ends of runs that are reported; all three by default. */
    runs?: Optional<('failed' | 'partial' | 'held')[]>;
    /** Minutes after which it is reported that a process sends nothing, 15 by default; false: never. */
    sendingStoppedMinutes?: Optional<number | false>;
    /** Hours without a successful sync after which that is reported. By default two hours after a nightly sync was due that
     * did not succeed; false: never.
     */
    noSuccessHours?: Optional<number | false>;
    /** Objects of a stream that drift at the service from which on that is reported, 1 by default; false: never. */
    driftObjects?: Optional<number | false>;
    /** Minutes that a key may wait in the inbox before that is reported, 60 by default; false: never. */
    inboxMinutes?: Optional<number | false>;
    /** Needed for mail; ALERT_SMTP_URL names the server. */
    mail?: Optional<{
      /** The address that mails come from. */
      from: string;
      /** The addresses that get them. */
      to: string[];
    }>;
  }>;
  /** The report that is mailed on its own; ALERT_SMTP_URL names the server, and `alerts.mail.from` the sender. */
  report?: Optional<{
    /** The addresses that get it. */
    to: string[];
    /** When it is sent: once each nightly run has ended. */
    after?: Optional<'nightly'>;
    /** `always` (the default), or `whenSomething`: only when the run did not succeed, something needs a person, or a record is
     * not in sync.
     */
    only?: Optional<'always' | 'whenSomething'>;
  }>;
  /** Hours after which an approval that was not used expires; 24 by default. */
  approvalHours?: Optional<number>;
  /** The part of each accepted write that is kept: the `names` of its fields (the default), their `values` too, or `none`. */
  history?: Optional<'names' | 'values' | 'none'>;
  /** Days for which the history of writes is kept; 90 by default. */
  historyDays?: Optional<number>;
  /** The particulars of the service's endpoints. */
  service?: Optional<{
    /** A file that says how the service is asked and how its answers are read, where the default does not fit: a `defineDialect`.
     * Its path, from the folder of the configuration file.
     */
    dialect?: Optional<string>;
    /** Path in front of the scheduling endpoints; `/v1` by default. */
    prefix?: Optional<string>;
    /** Milliseconds after which a request without an answer is given up; 30 000 by default. */
    requestTimeoutMs?: Optional<number>;
    /** Seconds, beyond the request timeout, within which the service may still carry out a write whose answer was lost, or read a request that was given up; 30 by default. */
    lateWriteSeconds?: Optional<number>;
    /** Seconds for which a token is used that does not say when it ends; 300 by default. */
    tokenSeconds?: Optional<number>;
    /** Most results in one page of a find; 1000 by default. */
    pageSize?: Optional<number>;
    /** Whether objects can be found by the values of their fields; true by default. Otherwise `match` reads types whole. */
    searchByFields?: Optional<boolean>;
    /** Whether readings of types, by which `match` compares, ask for derived fields too (`includeReferenceFields`); false by default. */
    derivedFields?: Optional<boolean>;
    /** Whether a PUT that names an object's number assigns the object its external id; false by default. */
    assignExternalIds?: Optional<boolean>;
    /** Whether a PUT may change the type of an object whose row moves to a stream of another type; false by default. */
    canChangeTypes?: Optional<boolean>;
    /** How the service compares external ids. Without it two ids are equal when every character is. */
    externalIds?: Optional<{
      /** `insensitive`: `A1` and `a1` are one id. */
      case?: Optional<'sensitive' | 'insensitive'>;
      /** Whether blanks at both ends do not count; false by default. */
      trim?: Optional<boolean>;
      /** `NFC`: composed and decomposed letters are equal. */
      normalize?: Optional<'NFC'>;
      /** Characters that count; what follows them does not. */
      maxLength?: Optional<number>;
    }>;
    /** The bodies of errors that are the service's: `json` by default, and the rest is a gateway's; or `any`. */
    errorBodies?: Optional<'json' | 'any'>;
  }>;
}

/** A schema for each key of a type, and for no other key. */
type Shape<T> = { [Key in keyof T]-?: z.ZodType<unknown, T[Key]> };
type Section<Name extends keyof SlotsyncConfig> = Shape<NonNullable<SlotsyncConfig[Name]>>;

/** A text in which `findFault` finds none. */
const faultless = (text: z.ZodString, findFault: (text: string) => string | undefined) =>
  text.superRefine((value, context) => {
    const fault = findFault(value);
    if (fault !== undefined) context.addIssue({ code: 'custom', message: fault });
  });

export const PROTO_FAULT = '__proto__ has a meaning of its own in JavaScript; choose another name';

/** Characters of a name: neither PostgreSQL nor an index of the state takes longer ones. */
const LONGEST_NAME = 1024;

/** Why a text cannot be a name. A name is never repeated here: it may be long. */
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
/** A name at the service, where `seats ` would be another field than `seats`. Columns may be called so. */
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
      // A text for all forms would not say which key of a rule is wrong.
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
      z.record(z.string(), z.string().nullable()),
    ],
    {
      error:
        "codes and their values, { file: 'codes.csv', key: 'code', value: 'name' }, or { from: 'campus.codes', key: 'code', value: 'name' }",
    },
  ),
  'an object: name to lookup',
);

/** `findFault`: why the question that is asked cannot be. */
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

/** Objects in one request, whatever is configured or learned. */
export const MOST_OBJECTS = 1000;
/** Objects in the first requests of a type, while nothing is learned yet. */
export const FIRST_OBJECTS = 100;

/** The name by which commands and the log of what was forgotten mean the bookings. */
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
 * How complete (`B_`) and how certain (`C_`) a reservation is: every status with a begin and an end. A find that does not
 * name them hides five of the seven.
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

/** The keys that find bookings in the mirror: all of them, or none. */
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

/** Share of the quota that readings of whole types use, where `verify.share` says nothing. */
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

/** The configuration with every default filled in. */
export type ParsedConfig = z.output<typeof configSchema>;
export type StreamDeclaration = ParsedConfig['streams'][string];

/**
 * Types the configuration in an editor; returns it unchanged. With the names of your service, which `slotsync discover
 * --types` writes, an editor completes and checks every type and field.
 */
export function defineConfig<Service extends ServiceNames = ServiceNames>(
  config: SlotsyncConfig<NoInfer<Service>>,
): SlotsyncConfig<Service> {
  return config;
}

/** The schema reads whatever the types allow: compiled, not run. */
export type ReadableConfig = Satisfied<SlotsyncConfig, z.input<typeof configSchema>>;
type Satisfied<T extends Needed, Needed> = T;

/** Every key of the configuration's objects, to suggest the one that was meant. */
export function configKeys(): string[] {
  const keys = new Set<string>();
  const collect = (name: string, value: unknown) => {
    if (name === 'properties') for (const key of Object.keys(value as object)) keys.add(key);
    return value;
  };
  JSON.stringify(z.toJSONSchema(configSchema, { io: 'input', unrepresentable: 'any' }), collect);
  return [...keys];
}

/** A fault of the configuration: its place, and what to write instead. */
export interface Fault {
  /** Dotted path in the file: `streams.rooms.key`. */
  path: string;
  message: string;
}

/** Characters of a place that are shown; a name in it may be long. */
const PLACE_SHOWN = 200;

export function describeFault({ path, message }: Fault): string {
  return path === '' ? message : `${shorten(path, PLACE_SHOWN)}: ${message}`;
}
