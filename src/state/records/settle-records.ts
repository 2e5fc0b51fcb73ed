// Writes the outcomes of claimed records, and creates records from objects that the service holds after the state was
// lost. Only this file stores what the service accepted.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../../text/sql-text.js';
import { anyOf, query, queryTogether, type Queries } from '../database.js';
import { mendingDrift } from '../drift.js';
import { releasingClaim } from './claims.js';
import { notingAssigned } from './links.js';
import type { LimitedOperation } from '../schema.js';
import {
  EXTERNAL_ID_SHARED,
  isAcceptance,
  recordName,
  storable,
  type Acceptance,
  type Outcome,
  type Reason,
  type RecordKey,
} from './outcome-types.js';
import {
  ADOPTED_COLUMNS,
  ADOPTED_FIELDS,
  OUTCOME_FIELDS,
  OUTCOME_PROPERTIES,
  SET_COLUMNS,
  SET_VALUES,
  type ColumnsFor,
} from './record-columns.js';
import { doubtingLost, WAS_SENT } from './record-state.js';
import { wakingWaiting } from './wake-waiting.js';

export interface Settled {
  token: string;
  outcomes: readonly Outcome[];
  /** True if other records may wait for these records. */
  isReferredTo: boolean;
  /** Statements that schedule checks of the records that refer to a record whose object was replaced or lost. */
  checks?: readonly SQL[] | undefined;
}

type SettledOf = Settled & { stream: string; runId: number; countedAs: LimitedOperation | null };

const hasRecord = ({ outcome }: Outcome) => outcome !== 'forgotten' && outcome !== 'skipped';
const keysOf = (outcomes: readonly Outcome[]) => outcomes.map(({ localKey }) => localKey);

/**
 * SQL: assigns to records `r` what the outcomes of query `given` set, as record-columns.ts says. `isSharing`: condition
 * on a record whose external id several rows have. A condition on the records must follow.
 */
const assigning = (runId: number, countedAs: LimitedOperation | null, isSharing: SQL) => sql`
    UPDATE slotsync.records AS r SET (${SET_COLUMNS}) = (
        SELECT ${SET_VALUES}
        FROM jsonb_to_record((SELECT by_key FROM given)->r.local_key) AS o(${OUTCOME_FIELDS}), LATERAL (SELECT
          o.outcome IN ('synced', 'unchanged') OR o."objectHash" IS NOT NULL,
          o.outcome IN ('synced', 'unchanged', 'dead') OR o."objectHash" IS NOT NULL,
          o.outcome = 'synced' OR o.operation IS NOT NULL,
          ${isSharing}, ${countedAs}
        ) AS a(accepted, ended, sent, shared, counts_as)),
      run_id = ${runId}::bigint, updated_at = now()`;

/** Returns the query `given`: one JSON object with a row for each outcome, by key. */
function givenBy(outcomes: readonly Outcome[]): SQL {
  const byKey = outcomes.map((outcome) => `${JSON.stringify(outcome.localKey)}:${toRow(outcome)}`);
  return sql`given AS MATERIALIZED (SELECT ${`{${byKey.join(',')}}`}::jsonb AS by_key)`;
}

/**
 * The beginning of a statement that writes the outcomes and releases the claims. Its query `outcomes` has a row for each outcome.
 * `is_written` is false if another batch has taken the claim over, or another record the object.
 */
export function writeOutcomes({ token, stream, runId, outcomes, countedAs }: SettledOf): SQL {
  const kept = outcomes.filter(hasRecord);
  const accepted = kept.filter(isAcceptance);
  // No row owns an object that several rows share, unless the service holds the object as that row's.
  const isSharing = sql`coalesce(o.code = ${EXTERNAL_ID_SHARED}, false) AND NOT ${WAS_SENT} AND r.check_after IS NULL`;
  // Each row looks up its own outcome. PostgreSQL would execute a join with the list as a nested loop.
  return sql`WITH ${givenBy(outcomes)}, written AS (
    ${assigning(runId, countedAs, isSharing)}, claimed_by = NULL, claimed_until = NULL
    WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keysOf(kept))} AND r.claimed_by = ${token}
      -- What it was accepted for is another record's by now.
      AND NOT (r.external_id IS NULL AND r.local_key = ${anyOf(keysOf(accepted))})
    RETURNING r.local_key), outcomes AS MATERIALIZED (
    SELECT key, value->>'outcome' AS outcome, value->>'operation' AS operation, value->>'names' AS names, value->'values' AS field_values,
      value->>'outcome' IN ('forgotten', 'skipped') OR key IN (SELECT local_key FROM written) AS is_written
    FROM given CROSS JOIN jsonb_each(by_key))`;
}

/** SQL: this transaction did not write the row of record `r`. */
const IS_LOST = sql`r.xmin <> pg_current_xact_id()::xid`;
/** SQL: no record in doubt belongs to the drift row `d`. */
const IS_CERTAIN = sql`NOT EXISTS (SELECT FROM slotsync.records AS r
  WHERE r.stream = d.stream AND r.local_key = d.local_key AND r.in_doubt)`;

/**
 * Returns the statements that follow `writeOutcomes` in the same transaction. If another batch took over a claim, the
 * record is in doubt, because two batches may have written its object.
 */
export function followOutcomes({
  token,
  stream,
  runId,
  outcomes,
  isReferredTo,
  checks = [],
}: Omit<SettledOf, 'countedAs'>): SQL[] {
  const forgotten = outcomes.filter(({ outcome }) => outcome === 'forgotten');
  const skipped = outcomes.filter(({ outcome }) => outcome === 'skipped');
  const assigned = outcomes.filter((outcome) => 'assigned' in outcome && outcome.assigned);
  const kept = keysOf(outcomes.filter(hasRecord));
  const mended = seenInSync(outcomes);
  return [
    ...(kept.length > 0 ? [doubtingLost({ stream, keys: kept }, IS_LOST)] : []),
    ...(assigned.length > 0 ? [notingAssigned(stream, keysOf(assigned))] : []),
    ...(forgotten.length > 0
      ? [
          sql`DELETE FROM slotsync.records
            WHERE stream = ${stream} AND local_key = ${anyOf(keysOf(forgotten))} AND claimed_by = ${token}`,
        ]
      : []),
    ...releasingClaim({ token, stream }, keysOf(skipped)),
    ...(mended.keys.length > 0 ? [mendingDrift({ stream, runId }, mended, IS_CERTAIN)] : []),
    ...checks,
    ...wakingWaiting({ stream, runId, outcomes, isReferredTo }),
  ];
}

/**
 * Selects records whose drift can be deleted: accepted, read and found equal, or deleted. Without a `destinationId`, an
 * unchanged object was not read from the service.
 */
function seenInSync(outcomes: readonly Outcome[]) {
  const seen = outcomes.filter(
    (one) =>
      one.outcome === 'synced' ||
      one.outcome === 'forgotten' ||
      (one.outcome === 'unchanged' && one.destinationId !== undefined),
  );
  return {
    keys: keysOf(seen),
    externalIds: seen.flatMap(({ outcome, externalId }) =>
      outcome === 'forgotten' ? [] : (externalId ?? []),
    ),
    written: seen.flatMap(({ outcome, localKey }) => (outcome === 'synced' ? localKey : [])),
  };
}

/** Properties of a row of `given`: those that the columns read, and those that the history keeps. */
const ROW_PROPERTIES = [...OUTCOME_PROPERTIES, 'names', 'values'];

/** Returns JSON. It is concatenated: a JavaScript object with many keys takes twice as long. */
function toRow(outcome: Outcome): string {
  const { message, waitsFor } = outcome as Partial<Reason>;
  const given: object =
    message === undefined
      ? outcome
      : { ...outcome, message: storable(message), waitsFor: waitsFor && recordName(waitsFor) };
  let json = '';
  for (const name of ROW_PROPERTIES) {
    const value = (given as Record<string, unknown>)[name];
    if (value !== undefined) json += `${json === '' ? '' : ','}"${name}":${JSON.stringify(value)}`;
  }
  return `{${json}}`;
}

/**
 * Writes failures of records that need no claim, and may not exist yet. The claim of another batch remains. The next run
 * retries the records, but a dead record only when the hash of its row changes.
 */
export async function failRecords(
  db: Queries,
  stream: string,
  runId: number,
  failures: readonly Outcome[],
): Promise<void> {
  const keys = keysOf(failures);
  await queryTogether(db, [
    sql`INSERT INTO slotsync.records (stream, local_key, status)
      SELECT ${stream}, key, 'pending' FROM unnest(${arrayLiteral(keys)}::text[]) AS key ON CONFLICT DO NOTHING`,
    sql`WITH ${givenBy(failures)} ${assigning(runId, null, sql`false`)}
      WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)}`,
  ]);
}

/** Record that is made of an object. `objectHash` is empty if the object differs from its row. */
export type AdoptedRecord = RecordKey &
  Pick<Acceptance, ColumnsFor<'adopted'>> & { externalId: string; destinationId: string };

/**
 * Inserts the records as accepted, without overwriting existing records. Returns the inserted records. `isEqual` is
 * true if the object equals its row.
 */
export async function insertAdopted(
  db: Queries,
  runId: number,
  adopted: readonly AdoptedRecord[],
): Promise<(RecordKey & { isEqual: boolean })[]> {
  if (adopted.length === 0) return [];
  return query<RecordKey & { isEqual: boolean }>(db)`
    INSERT INTO slotsync.records (stream, local_key, ${ADOPTED_COLUMNS}, status, run_id, synced_at)
    SELECT a.*, 'synced', ${runId}::bigint, now()
    FROM jsonb_to_recordset(${JSON.stringify(adopted)}::jsonb) AS a(stream text, "localKey" text, ${ADOPTED_FIELDS})
    ON CONFLICT DO NOTHING
    RETURNING stream, local_key AS "localKey", object_hash <> '' AS "isEqual"`;
}
