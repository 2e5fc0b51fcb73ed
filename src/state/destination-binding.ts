// Binds the state to a service and an organization, because with another one all accepted values would be wrong. The
// binding is final as soon as the state has facts from the service. Until then, settings can be corrected.
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { SlotsyncError, UsageError } from '../errors/errors.js';
import { query, queryTogether, queryValue, type Queries, type State } from './database.js';
import { listWorking } from './processes.js';
import { WAS_SENT } from './records/record-state.js';
import { retryRecords } from './records/retry-records.js';
import { destination } from './schema.js';

type BoundDestination = typeof destination.$inferSelect;
export type Binding = Pick<BoundDestination, 'baseUrl' | 'organizationId' | 'region'>;

/**
 * Binds the state to this destination if it has no facts from a service yet, or confirms the binding. Returns the
 * state's id. Throws UsageError if the state is bound elsewhere, or if a process works with another destination.
 */
export async function bindDestination({ db }: Pick<State, 'db'>, wanted: Binding): Promise<string> {
  const { baseUrl, organizationId, region } = wanted;
  const noted = { baseUrl, organizationId, region };
  const first = sql`
    INSERT INTO slotsync.destination (base_url, organization_id, region)
    VALUES (${baseUrl}, ${organizationId}, ${region}) ON CONFLICT DO NOTHING`;
  // The lock waits for a process that is binding the state now.
  const known = sql`
    SELECT base_url AS "baseUrl", organization_id AS "organizationId", state_id AS "stateId"
    FROM slotsync.destination FOR UPDATE`;
  const [[standing]] = (await queryTogether(db, [first, known])) as [BoundDestination[]];
  if (standing && isSame(standing, wanted)) return standing.stateId;
  return db.transaction(async (tx) => {
    const [bound] = await tx.select().from(destination).for('update');
    if (!bound) throw new UsageError('the row of slotsync.destination is missing in the state database');
    if (isSame(bound, wanted)) return bound.stateId;
    if (await isBound(tx)) throw refusal(bound, wanted);
    const working = await listWorking(tx);
    if (working.length > 0) throw refusal(bound, wanted, working);
    const answers = { answeredAt: null, answer: null, succeededAt: null };
    await tx.update(destination).set({ ...noted, ...answers, boundAt: sql`now()` });
    await retryRecords(tx, { keys: [] }); // they were refused somewhere else
    return bound.stateId;
  });
}

/** Returns the destination if it is finally bound. Throws UsageError if another destination is bound. */
export async function confirmDestination(
  state: State,
  wanted: Binding,
): Promise<BoundDestination | undefined> {
  const bound = await readBinding(state);
  if (!bound || isSame(bound, wanted)) return bound;
  if (await isBound(state.db)) throw refusal(bound, wanted);
  return undefined;
}

/**
 * Throws `destination_changed` if the state was bound elsewhere, which is possible while this process is suspended.
 */
export async function requireBinding(state: Pick<State, 'db'>, wanted: Binding): Promise<void> {
  const bound = await readBinding(state);
  if (!bound || isSame(bound, wanted)) return;
  const message = `the state database now belongs to organization ${bound.organizationId} at ${bound.baseUrl}, so this process no longer sends to ${wanted.baseUrl}`;
  throw new SlotsyncError('destination_changed', message);
}

const isSame = (bound: Binding, wanted: Binding) =>
  bound.baseUrl === wanted.baseUrl && bound.organizationId === wanted.organizationId;

/** Returns true if the state has facts from a service: a write that may have been accepted, or data that was read. */
export const isBound = (db: Pick<Queries, 'execute'>) => queryValue<boolean>(db)`
  SELECT EXISTS (SELECT FROM slotsync.records AS r WHERE ${WAS_SENT} OR r.claimed_by IS NOT NULL)
    OR EXISTS (SELECT FROM slotsync.links) OR EXISTS (SELECT FROM slotsync.drift)
    OR EXISTS (SELECT FROM slotsync.verifications) OR EXISTS (SELECT FROM slotsync.reservations)
    OR EXISTS (SELECT FROM slotsync.cancellations) OR EXISTS (SELECT FROM slotsync.reservations_watermark) AS known`;

function refusal(bound: Binding, wanted: Binding, working: readonly string[] = []): UsageError {
  const belongs =
    `this state database belongs to organization ${bound.organizationId} at ${bound.baseUrl}, ` +
    `but the settings name organization ${wanted.organizationId} at ${wanted.baseUrl}`;
  if (working.length > 0)
    return new UsageError(`${belongs}; a running process still uses the former: ${working.join('; ')}`, {
      remedy:
        'Stop that process and run this command again, or correct API_BASE_URL and API_ORGANIZATION_ID.',
    });
  return new UsageError(belongs, {
    remedy:
      'Correct API_BASE_URL and API_ORGANIZATION_ID, or give each destination its own STATE_DATABASE_URL. To delete this state and start again: slotsync reset',
  });
}

/** Store of the quota and queue. `id` identifies the store, `address` is its name for people. */
export interface QuotaPlace {
  id: string;
  address: string;
}

/** Time after which every process has stored the run id of a restarted Redis and the time of its last answer. */
const PLACE_NOTED_WITHIN_MS = 12_000;
const LOOK_AGAIN_MS = 1000;

/**
 * Stores where this process counts the quota. Throws UsageError if a process other than `own` counts elsewhere, because
 * two counters would allow twice the quota. Stores nothing without a bound destination.
 */
export async function claimQuotaPlace(
  { db }: Pick<State, 'db'>,
  place: QuotaPlace,
  { own = { host: hostname(), pid: process.pid }, withinMs = PLACE_NOTED_WITHIN_MS } = {},
): Promise<void> {
  const until = performance.now() + withinMs;
  for (;;) {
    const [noted] = await query<{ id: string | null; address: string; isInUse: boolean }>(db)`
      SELECT quota_place AS id, quota_address AS address,
        coalesce(answered_at > now() - make_interval(secs => ${withinMs / 1000}), false) AS "isInUse"
      FROM slotsync.destination`;
    if (!noted || noted.id === place.id) return;
    const working = noted.id === null ? [] : await listWorking(db, own);
    if (noted.id === null || (working.length === 0 && !noted.isInUse)) {
      await moveQuotaPlace(db, noted.id, place);
      continue; // another process may have noted its place meanwhile
    }
    // Waits only for a restarted Redis, which has another run id. A change between state and Redis is refused at once.
    const isSettled = working.length > 0 && (noted.id === 'state' || place.id === 'state');
    if (isSettled || performance.now() >= until)
      throw new UsageError(
        `quota and queue of this state are in ${noted.address}, but this process is set to ${place.address}: two counters would exceed the quota${working.length > 0 ? `; running: ${working.join('; ')}` : ''}`,
        {
          remedy:
            'Set the same REDIS_URL for every process, or none. To move quota and queue, stop all processes first.',
        },
      );
    await sleep(LOOK_AGAIN_MS);
  }
}

/** Replaces the store `from`, unless another process has replaced it meanwhile. */
export async function moveQuotaPlace(
  db: Queries,
  from: string | null,
  { id, address }: QuotaPlace,
): Promise<void> {
  await query(db)`
    UPDATE slotsync.destination SET quota_place = ${id}, quota_address = ${address}
    WHERE quota_place IS NOT DISTINCT FROM ${from}`;
}

/** Returns the bound destination. Undefined if no command has bound the state yet. */
export async function readBinding({ db }: { db: Queries }): Promise<BoundDestination | undefined> {
  const [bound] = await db.select().from(destination);
  return bound;
}
