// Alerts are decided in one transaction by one process at a time, and sent outside of it: whoever claims a message sends
// it, so a process that dies between both leaves it to another. Nothing of a run waits for any of this.
import { codeOf, messageOf } from '../errors.js';
import type { Logger } from '../logger.js';
import { describeAfterwards, findCauses, type AlertRules } from './find-causes.js';
import { readConditions } from '../readings/conditions.js';
import {
  addMessages,
  claimMessages,
  listOpenAlerts,
  noteAttempt,
  openAlert,
  recoverAlert,
} from '../state/alerts.js';
import { query, tryLock, type Queries, type State } from '../state/database.js';
import { readBinding } from '../state/destination-binding.js';
import { SEND_WITHIN_MS, type Channel } from './channels.js';
import { composeNotice, SentInPart, type Notice } from './notice.js';

export interface AlertDeps {
  state: State;
  log: Logger;
  channels: readonly Channel[];
  rules: AlertRules;
  /** Names of the configured streams. */
  streams: readonly string[];
  timeZone: string;
}

/** Alerts in one notice. */
const MOST_AT_ONCE = 50;

/** Opens an alert for each cause that is there, and ends those whose cause is gone. False: another process is at it. */
export async function evaluateAlerts(
  { state, channels, rules, streams, timeZone }: Omit<AlertDeps, 'log'>,
  now?: Date,
): Promise<boolean> {
  return state.db.transaction(async (tx) => {
    await limitReading(tx);
    if (!(await tryLock(tx, 'slotsync alerts'))) return false;
    const open = await listOpenAlerts(tx);
    const reading = await readConditions(tx, streams, now);
    const causes = findCauses(reading, rules, { timeZone, streams });
    const names = channels.map(({ name }) => name);
    for (const cause of causes)
      if (!open.some((alert) => alert.cause === cause.cause)) await openAlert(tx, cause, names);
    for (const { id, cause, condition, messages } of open.toSorted((a, b) => a.id - b.id)) {
      const isOver = !causes.some((one) => one.cause === cause);
      if (isOver) await recoverAlert(tx, id, describeAfterwards(reading, condition));
      else if (messages.length === 0) await addMessages(tx, id, names);
    }
    return true;
  });
}

/**
 * It uses one of the few connections that the work has, so it gives up early. The statements are short for what the planner
 * expects of them: compiling them took ten times as long as running them.
 */
async function limitReading(tx: Queries): Promise<void> {
  await query(tx)`SET LOCAL statement_timeout = '10s'`;
  await query(tx)`SET LOCAL lock_timeout = '1s'`;
  await query(tx)`SET LOCAL jit = off`;
}

/** Sends what is due to each channel, all channels at the same time. What fails is tried again later. */
export async function sendDue({ state, log, channels }: AlertDeps, signal?: AbortSignal): Promise<void> {
  const organization = await readOrganization(state);
  await Promise.all(
    channels.map(async (channel) => {
      try {
        await sendTo(channel, { state, log, organization }, signal);
      } catch (error) {
        log.warn({ channel: channel.name, code: codeOf(error) }, 'alerts could not be read; it is retried');
      }
    }),
  );
}

async function sendTo(
  channel: Channel,
  { state, log, organization }: Pick<AlertDeps, 'state' | 'log'> & Pick<Notice, 'organization'>,
  signal: AbortSignal | undefined,
): Promise<void> {
  const due = await claimMessages(state.db, channel.name, MOST_AT_ONCE);
  if (due.length === 0) return;
  const facts = { channel: channel.name, alerts: due.length };
  const { isSent, problem } = await trySend(channel, composeNotice(organization, due), signal);
  await noteAttempt(
    state.db,
    due.map(({ id }) => id),
    { isSent, problem },
  );
  if (problem === null) log.info(facts, 'alerts sent');
  else if (isSent) log.warn({ ...facts, reason: problem }, 'alerts sent in part');
  else log.warn({ ...facts, reason: problem }, 'alerts not sent; it is retried');
}

/** Sends a notice within the time limit. `problem`: why it did not arrive, or not at everybody. */
export async function trySend(
  channel: Channel,
  notice: Notice,
  signal?: AbortSignal,
): Promise<{ isSent: boolean; problem: string | null }> {
  const limits = [AbortSignal.timeout(SEND_WITHIN_MS), ...(signal ? [signal] : [])];
  try {
    await channel.send(notice, AbortSignal.any(limits));
    return { isSent: true, problem: null };
  } catch (error) {
    const isSent = error instanceof SentInPart;
    return { isSent, problem: signal?.aborted && !isSent ? 'the process was stopped' : messageOf(error) };
  }
}

export async function readOrganization(state: State): Promise<Notice['organization']> {
  const bound = await readBinding(state);
  return bound ? { id: bound.organizationId, service: bound.baseUrl } : null;
}
