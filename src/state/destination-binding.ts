// Which service and organization this state belongs to. A production key must never meet the state of a
// test environment: what is "already there" would be wrong for every record.
import { UsageError } from '../errors.js';
import { queryState, type State } from './database.js';
import { destination } from './schema.js';

export interface Binding {
  baseUrl: string;
  organizationId: string;
  region: string;
}

/** Binds a new state to this destination, or confirms it. Returns the state's id. Throws UsageError for another one. */
export async function bindDestination(state: State, wanted: Binding): Promise<string> {
  await queryState(() => state.db.insert(destination).values(wanted).onConflictDoNothing());
  const bound = await confirmDestination(state, wanted);
  if (!bound) throw new UsageError('the state database lost its destination row');
  return bound.stateId;
}

/** The bound destination; undefined when nothing is bound yet. Throws UsageError when it is another than wanted. */
export async function confirmDestination(
  state: State,
  wanted: Binding,
): Promise<typeof destination.$inferSelect | undefined> {
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
export async function readBinding({ db }: State): Promise<typeof destination.$inferSelect | undefined> {
  const [bound] = await queryState(() => db.select().from(destination));
  return bound;
}
