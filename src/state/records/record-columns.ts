// Columns of `records` that a batch reads or writes, and what each of its statements does with them. The statements of
// claims.ts, settle-records.ts and transfer-objects.ts are built from this table.
import { sql, type SQL } from 'drizzle-orm';
import { columnList, records } from '../schema.js';
import { AWAITS_SECOND_ANSWER, EXTERNAL_ID_CHANGED, FIELDS_IN_DOUBT } from './record-state.js';

/**
 * `given`: an outcome has a value for the column. `claimed`: a claim returns the value, as a property of
 * `ClaimedRecord`. `fact`: the value is about the object. A new owner of the object receives the value, and without an
 * object it is null. `adopted`: an acceptance, and a record that is made of an object at the service, have a value.
 */
type Use = 'given' | 'claimed' | 'fact' | 'adopted';

interface Column {
  uses?: readonly Use[];
  /** Property of the outcome with the value. Needed if the name differs from the column's. */
  from?: string;
  /**
   * SQL for the value after outcome `o` of record `r`. Undefined: an outcome does not change the column. `accepted`,
   * `ended`, `sent`, `shared` and `counts_as` are from `assigning` of settle-records.ts.
   */
  set?: SQL;
}

const COLUMNS = {
  localKey: { uses: ['claimed'] },
  status: {
    uses: ['claimed'],
    set: sql`CASE WHEN NOT accepted OR o.outcome = 'deferred' THEN o.outcome WHEN o.retired THEN 'retired' ELSE 'synced' END`,
  },
  externalId: {
    uses: ['given', 'claimed', 'fact', 'adopted'],
    set: sql`CASE WHEN NOT shared THEN r.external_id END`,
  },
  rowExternalId: {
    set: sql`CASE WHEN shared OR o."externalId" <> r.external_id OR r.external_id IS NULL THEN o."externalId" END`,
  },
  destinationId: {
    uses: ['given', 'claimed', 'fact', 'adopted'],
    set: sql`coalesce(o."destinationId", r.destination_id)`,
  },
  sourceHash: {
    uses: ['given', 'claimed', 'adopted'],
    set: sql`CASE WHEN accepted THEN o."sourceHash" ELSE r.source_hash END`,
  },
  objectHash: {
    uses: ['given', 'claimed', 'fact', 'adopted'],
    set: sql`CASE WHEN accepted THEN o."objectHash" ELSE r.object_hash END`,
  },
  acceptedFields: {
    uses: ['given', 'claimed', 'fact', 'adopted'],
    set: sql`CASE WHEN accepted AND o.retired IS NOT TRUE THEN o."acceptedFields"
      WHEN o."inDoubt" THEN ${FIELDS_IN_DOUBT} ELSE r.accepted_fields END`,
  },
  refusedHash: {
    uses: ['claimed'],
    set: sql`CASE WHEN o.outcome IN ('dead', 'failed') THEN o."sourceHash" END`,
  },
  errorCode: { uses: ['given', 'claimed'], from: 'code', set: sql`o.code` },
  errorMessage: { uses: ['given', 'claimed'], from: 'message', set: sql`o.message` },
  waitsFor: { uses: ['given'], set: sql`o."waitsFor"` },
  waitsSince: {
    uses: ['claimed'],
    set: sql`CASE WHEN o.outcome = 'deferred' AND o."waitsFor" IS NOT NULL THEN coalesce(r.waits_since, now()) END`,
  },
  attempts: { set: sql`CASE WHEN accepted THEN 0 ELSE r.attempts + 1 END` },
  inDoubt: {
    uses: ['given', 'claimed'],
    set: sql`NOT accepted AND (r.in_doubt OR coalesce(o."inDoubt", false))`,
  },
  goneSince: { set: sql`CASE WHEN NOT accepted THEN r.gone_since END` },
  endsAt: {
    uses: ['given', 'adopted'],
    set: sql`CASE WHEN accepted AND NOT o.retired THEN o."endsAt" ELSE r.ends_at END`,
  },
  syncedAt: { uses: ['fact'], set: sql`CASE WHEN sent THEN now() ELSE r.synced_at END` },
  resend: { uses: ['claimed'], set: sql`CASE WHEN NOT ended THEN r.resend END` },
  resendSince: { set: sql`CASE WHEN NOT ended THEN r.resend_since END` },
  resendRun: { set: sql`CASE WHEN NOT ended THEN r.resend_run END` },
  countedAs: { set: sql`CASE WHEN sent THEN counts_as ELSE r.counted_as END` },
  checkAfter: {
    // An acceptance ends a pending second attempt after a refusal.
    set: sql`CASE WHEN NOT (accepted AND ${AWAITS_SECOND_ANSWER} AND NOT r.in_doubt)
      THEN greatest(r.check_after, now() + make_interval(secs => o."secondLookAfterSeconds")) END`,
  },
} as const satisfies { [Name in keyof typeof records.$inferSelect]?: Column };

/** Names of the columns with a use. */
export type ColumnsFor<Wanted extends Use, Table = typeof COLUMNS> = {
  [Name in keyof Table]: Table[Name] extends { uses: readonly (infer Uses)[] }
    ? Wanted extends Uses
      ? Name
      : never
    : never;
}[keyof Table];

const ALL = Object.entries<Column>(COLUMNS).map(([property, { uses, from = property, set }]) => {
  const column = records[property as keyof typeof COLUMNS];
  return { property, uses, from, set, name: column.name, typed: `"${from}" ${column.getSQLType()}` };
});
const list = (use: Use, part: 'name' | 'typed', write = (text: string) => text) =>
  sql.raw(ALL.flatMap(({ uses, [part]: text }) => (uses?.includes(use) ? write(text) : [])).join(', '));

const SET = ALL.flatMap(({ name, set }) => (set ? { name, set } : []));
/** SQL: columns that an outcome sets, and their values in the same order. */
export const SET_COLUMNS = sql.raw(SET.map(({ name }) => name).join(', '));
export const SET_VALUES = sql.join(
  SET.map(({ set }) => set),
  sql`, `,
);

/** Properties of an outcome that belong to no column, with their SQL types. */
const BESIDE_COLUMNS = {
  outcome: 'text',
  retired: 'boolean',
  operation: 'text',
  secondLookAfterSeconds: 'float8',
};
/** Properties of an outcome that its record's columns are set by, and the same as SQL with their types. */
export const OUTCOME_PROPERTIES = [
  ...Object.keys(BESIDE_COLUMNS),
  ...ALL.flatMap(({ from, uses }) => (uses?.includes('given') ? from : [])),
];
export const OUTCOME_FIELDS = sql`${sql.raw(
  Object.entries(BESIDE_COLUMNS)
    .map(([name, type]) => `"${name}" ${type}`)
    .join(', '),
)}, ${list('given', 'typed')}`;

/** SQL: columns of a record that is made of an object, and the properties with their values, in the same order. */
export const ADOPTED_COLUMNS = list('adopted', 'name');
export const ADOPTED_FIELDS = list('adopted', 'typed');

/** SQL: columns of record `r` that a claim returns. */
export const CLAIMED_COLUMNS = columnList(
  records,
  'r',
  ALL.flatMap(({ property, uses }) => (uses?.includes('claimed') ? property : [])),
);

/** SQL list of the columns that are facts about an object. `of` is a table alias with a trailing dot. */
export const objectFacts = (of = ''): SQL => list('fact', 'name', (name) => of + name);

/**
 * SQL assignments for a record `r` that lost its object. If the row now has another external id than the lost object,
 * the next run sends the row.
 */
export const WITHOUT_OBJECT = sql`${list('fact', 'name', (name) => `${name} = NULL`)},
  source_hash = NULL, in_doubt = false, check_after = NULL, updated_at = now(),
  refused_hash = CASE WHEN r.error_code IS DISTINCT FROM ${EXTERNAL_ID_CHANGED} THEN r.refused_hash END,
  status = CASE WHEN r.status IN ('synced', 'retired') THEN 'pending' WHEN r.error_code = ${EXTERNAL_ID_CHANGED} THEN 'failed'
    ELSE r.status END`;
