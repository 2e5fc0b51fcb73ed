// The service and organization that this state belongs to. A production key must never meet the state of a test environment:
// what was accepted would be wrong for every record.
import { UsageError } from '../errors/errors.js';
import type { Queries, State } from './database.js';
import { destination } from './schema.js';

type BoundDestination = typeof destination.$inferSelect;
export type Binding = Pick<BoundDestination, 'baseUrl' | 'organizationId' | 'region'>;

/** Binds a new state to this destination, or confirms it. Returns the state's id. Throws UsageError for another one. */
export async function bindDestination(state: State, wanted: Binding): Promise<string> {
  const { baseUrl, organizationId, region } = wanted;
  await state.db.insert(destination).values({ baseUrl, organizationId, region }).onConflictDoNothing();
  const bound = await confirmDestination(state, wanted);
  if (!bound) throw new UsageError('the state database lost its destination row');
  return bound.stateId;
}

/** The bound destination; undefined when nothing is bound yet. Throws UsageError when it is another than wanted. */
export async function confirmDestination(
  state: State,
  wanted: Binding,
): Promise<BoundDestination | undefined> {
  const bound = await readBinding(state);
  if (!bound || (bound.baseUrl === wanted.baseUrl && bound.organizationId === wanted.organizationId))
    return bound;
  throw new UsageError(
    `this state database belongs to organization ${bound.organizationId} at ${bound.baseUrl}, ` +
      `but the settings name organization ${wanted.organizationId} at ${wanted.baseUrl}`,
    {
      remedy:
        'Correct API_BASE_URL and API_ORGANIZATION_ID, or give each destination a STATE_DATABASE_URL of its own.',
    },
  );
}

/** The bound destination, if any command has bound one. */
export async function readBinding({ db }: { db: Queries }): Promise<BoundDestination | undefined> {
  const [bound] = await db.select().from(destination);
  return bound;
}
