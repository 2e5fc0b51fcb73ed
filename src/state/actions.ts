// Log of operators' actions: who did what, when and why. Automatic events are not logged here.
import { and, desc, eq, gte, lt } from 'drizzle-orm';
import { UsageError } from '../errors/errors.js';
import type { Queries } from './database.js';
import type { RecordKey } from './records/outcome-types.js';
import { actions, type ActedVia, type OperatorAction } from './schema.js';

export interface Actor {
  /** Name of the operator. Null if unknown. */
  by: string | null;
  via: ActedVia;
  reason?: string | undefined;
}

export interface ActionSubject {
  runId?: number | undefined;
  subject?: string | undefined;
}

export type NotedAction = typeof actions.$inferSelect;

/** Maximum number of keys that the text about an action names. */
const MOST_KEYS = 5;
export const LONGEST_REASON = 1000;

/** Returns the trimmed reason of an action, or undefined if the text is empty. Throws UsageError if it is too long. */
export function requireReason(text: string | undefined): string | undefined {
  const reason = text?.trim().replaceAll('\0', '');
  if ((reason?.length ?? 0) > LONGEST_REASON)
    throw new UsageError(`a reason has at most ${LONGEST_REASON} characters, not ${reason?.length}`, {
      remedy: 'Shorten the reason. Put the details elsewhere, such as in a ticket, and name the ticket here.',
    });
  return reason || undefined;
}

/** Logs an operator's action. Must be called in the transaction that performs the action. */
export async function noteAction(
  tx: Queries,
  { by, via, reason }: Actor,
  action: OperatorAction,
  { runId, subject }: ActionSubject,
): Promise<void> {
  await tx.insert(actions).values({ by, via, action, runId, subject, reason });
}

/**
 * Performs an operator's action and logs it in one transaction. `subjectOf` derives the logged subject from the result.
 * If it returns undefined, nothing was done and nothing is logged.
 */
export async function actAs<T>(
  db: Queries,
  actor: Actor,
  action: OperatorAction,
  act: (tx: Queries) => Promise<T>,
  subjectOf: (done: T) => ActionSubject | readonly ActionSubject[] | undefined,
): Promise<T> {
  return db.transaction(async (tx) => {
    const done = await act(tx);
    for (const subject of [subjectOf(done) ?? []].flat()) await noteAction(tx, actor, action, subject);
    return done;
  });
}

export const toRuns = (ids: readonly number[]): ActionSubject[] => ids.map((runId) => ({ runId }));

/** Describes the records of an action, one subject for each stream. Example: `rooms 'R1', 'R2' and 10 more`. */
export function toRecords(keys: readonly RecordKey[]): ActionSubject[] {
  const streams = [...new Set(keys.map(({ stream }) => stream))];
  return streams.map((name) => {
    const own = keys.flatMap(({ stream, localKey }) => (stream === name ? `'${localKey}'` : []));
    const more = own.length > MOST_KEYS ? ` and ${own.length - MOST_KEYS} more` : '';
    return { subject: `${name} ${own.slice(0, MOST_KEYS).join(', ')}${more}` };
  });
}

interface ActionFilter {
  runId?: number | undefined;
  from?: Date | undefined;
  to?: Date | undefined;
  limit: number;
}

export async function listActions(
  db: Queries,
  { runId, from, to, limit }: ActionFilter,
): Promise<NotedAction[]> {
  const isWanted = and(
    runId === undefined ? undefined : eq(actions.runId, runId),
    from && gte(actions.at, from),
    to && lt(actions.at, to),
  );
  return db.select().from(actions).where(isWanted).orderBy(desc(actions.at), desc(actions.id)).limit(limit);
}
