// The configuration file's shape. One zod schema is both the check at run time and the type the
// editor shows, so that the two cannot disagree.
import { z } from 'zod';

/** A row of the mirror: column name to value. Dates and times arrive as PostgreSQL's ISO text, big numbers as text. */
// oxlint-disable-next-line typescript/no-explicit-any -- columns have whatever type the mirror gives them
export type Row = Readonly<Record<string, any>>;

type Scalar = string | number | bigint | boolean | Date | null | undefined;

/** What a field may be mapped to: one value, several, or none (null: nothing is sent). */
export type FieldValue = Scalar | readonly Scalar[];

/** Computes a field from a row. Must depend on the row alone. */
export type FieldFunction = (row: Row) => FieldValue;

const name = (what: string) => z.string(`${what}, as text`).min(1, `${what}: must not be empty`);

const column = name('a column name');
const columns = z.union([column, z.array(column).min(1, 'at least one column')], {
  error: 'a column name, or a list of column names for a composite key',
});

const fieldFunction = z.custom<FieldFunction>((value) => typeof value === 'function');
const field = z.union([column, fieldFunction], {
  error: 'a column name, or a function of the row: (row) => …',
});

const source = z.union([name('a table or view'), z.strictObject({ query: name('a SELECT') })], {
  error: "a table or view such as 'campus.rooms', or { query: 'select …' }",
});

const threshold = z.strictObject({
  /** Held only beyond this many records … */
  count: z.number().int().min(0).default(10),
  /** … and beyond this share of the stream's records, in percent. */
  percent: z.number().min(0).max(100).default(10),
});

/** One stream's declaration. */
export const streamSchema = z.strictObject({
  /** Where the rows are: a table, a view, or a query. Names are taken literally; quote a part that holds a dot. */
  from: source,
  /** The column or columns that identify a row. Must be unique and not null. */
  key: columns,
  /** External id of the destination type. */
  type: name("the external id of a type at the service, such as 'room'"),
  /** Template of the external id: `room_{room_code}`. Its columns must never change for a row. */
  externalId: name("a template such as 'room_{room_code}'"),
  /** Field id at the service to column name, or to a function of the row. */
  fields: z.record(name('a field id'), field, 'an object: field id at the service to column or function'),
  /** Field id to a record of another stream. */
  references: z
    .record(
      name('a field id'),
      z.strictObject({ stream: name('the name of another stream'), key: columns }),
      "an object: field id to { stream: 'rooms', key: 'home_room' }",
    )
    .default({}),
  /** A column that grows when a row changes; polled for changes. */
  cursor: column.optional(),
  /** When the row is gone: `deactivate` the object, or `keep` it as it is. */
  retire: z.enum(['keep', 'deactivate'], "'keep' or 'deactivate'").default('keep'),
  /** `fields`: what the mapping does not name is kept, by reading first. `object`: the whole object is ours. */
  owns: z.enum(['fields', 'object'], "'fields' or 'object'").default('fields'),
  /** Objects in one request. */
  batchSize: z.number('a whole number of objects from 1 to 1000').int().min(1).max(1000).default(100),
  /** Days that pass between the loss of a row and its retirement. */
  graceDays: z.number('a number of days, 0 or more').min(0).default(0),
  /** An object with bookings yet to come is not retired before they are over. */
  unlessReserved: z.boolean('true or false').default(true),
  /** Beyond both figures a mass change waits for a person: retirements always, the others where they are named. */
  limits: z
    .strictObject({
      retire: threshold.prefault({}),
      update: threshold.optional(),
      create: threshold.optional(),
    })
    .prefault({}),
  /** How long a record waits for a record it refers to, before it is given up. In days. */
  waitDays: z.number('a number of days above 0').positive().default(14),
});

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

/** What it takes to find bookings here: all of it, or nothing. */
const BOOKING_KEYS = ['from', 'key', 'externalId', 'begin', 'end'] as const;
const BOOKING_WORDS = {
  from: "a table or view such as 'campus.bookings', or { query: 'select …' }",
  key: 'a column name, or a list of column names for a composite key',
  externalId: "a template such as 'res_{id}'",
  begin: 'a column name, as text',
  end: 'a column name, as text',
};

const reservations = z
  .strictObject({
    /** Where the bookings are here. Without it, the service's are kept in the state and compared with nothing. */
    from: source.optional(),
    key: columns.optional(),
    /** Template of the reservation's external id: `res_{id}`. */
    externalId: name("a template such as 'res_{id}'").optional(),
    begin: column.optional(),
    end: column.optional(),
    /** What is booked: records of streams. Objects of other types at the service are not compared. */
    objects: z.array(z.strictObject({ stream: name('the name of a stream'), key: columns })).default([]),
    /** A boolean, a number that is not 0, or a time: the booking does not take place. */
    cancelled: column.optional(),
    /** Field id of the reservation to column name, or to a function of the row: compared too. */
    fields: z
      .record(name('a field id'), field, 'an object: field id at the service to column or function')
      .default({}),
    /** Statuses in which a reservation there agrees with a booking here. */
    status: z
      .array(z.enum(RESERVATION_STATUSES), `a list of ${RESERVATION_STATUSES.join(', ')}`)
      .default(['B_COMPLETE', 'C_CONFIRMED']),
    /** How times without a zone are read. */
    timezone: name("a time zone such as 'Europe/Stockholm'").default('UTC'),
    window: z
      .strictObject({
        pastDays: z.number('a number of days, 0 or more').min(0).max(3660).default(7),
        futureDays: z.number('a number of days, 0 or more').min(0).max(3660).default(180),
      })
      .prefault({}),
    /** Minutes between two readings by a worker of what changed there; 0: none. */
    everyMinutes: z.number('a number of minutes, 0 or more').min(0).max(10_080).default(15),
  })
  .superRefine((given, context) => {
    const { objects, cancelled, fields } = given;
    const isNamed = objects.length > 0 || cancelled !== undefined || Object.keys(fields).length > 0;
    if (!isNamed && BOOKING_KEYS.every((key) => given[key] === undefined)) return;
    for (const key of BOOKING_KEYS.filter((one) => given[one] === undefined))
      context.addIssue({ code: 'custom', path: [key], message: `is missing: ${BOOKING_WORDS[key]}` });
  });

const polling = z.strictObject({
  /** Seconds between two looks at a stream's cursor. */
  everySeconds: z.number('a number of seconds from 1 on').min(1).max(86_400).default(60),
  /** How much longer than the last look is looked back: transactions that commit late. */
  overlapSeconds: z.number('a number of seconds, 0 or more').min(0).max(86_400).default(300),
  /** A cursor in time is read up to this long ago. */
  lagSeconds: z.number('a number of seconds, 0 or more').min(0).max(3600).default(2),
});

const service = z.strictObject({
  /** Path prefix of the scheduling endpoints. */
  prefix: z
    .string()
    .regex(/^(\/[\w.-]+)*$/, "a path such as '/v1', or '' for none")
    .default('/v1'),
  /** Milliseconds a request may take before it is given up. */
  requestTimeoutMs: z.number().int().min(100).max(600_000).default(30_000),
  /** How long a token without `exp` is used, in seconds. */
  tokenSeconds: z.number().int().min(10).default(300),
  /** Most results asked for in one page of a find. */
  pageSize: z.number().int().min(1).max(10_000).default(1000),
});

export const configSchema = z.strictObject({
  schedule: z
    .strictObject({
      nightly: name("a cron expression such as '0 2 * * *'"),
      timezone: name("a time zone such as 'Europe/Stockholm'").default('UTC'),
      /** A night that was missed because nothing was running is made up for, once. */
      catchUp: z.boolean('true or false').default(true),
    })
    .optional(),
  streams: z
    .record(
      z.string().regex(/^[a-z][a-z0-9_]*$/i, 'a stream name: letters, digits and _'),
      streamSchema,
      'an object: stream name to declaration',
    )
    .refine((streams) => Object.keys(streams).length > 0, 'at least one stream'),
  reservations: reservations.optional(),
  polling: polling.prefault({}),
  /** Hours after which an approval that was not used lapses. */
  approvalHours: z.number('a number of hours above 0').positive().max(8760).default(24),
  service: service.prefault({}),
});

/** What `sync.config.ts` exports. */
export type SlotsyncConfig = z.input<typeof configSchema>;
/** The same with every default filled in. */
export type ParsedConfig = z.output<typeof configSchema>;
export type StreamDeclaration = ParsedConfig['streams'][string];

/** Types the configuration in an editor; returns it unchanged. */
export function defineConfig(config: SlotsyncConfig): SlotsyncConfig {
  return config;
}
