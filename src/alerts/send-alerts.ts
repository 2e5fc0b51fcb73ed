// Sends the messages of alerts. A process claims a message and sends it outside of any transaction. If the send fails
// or the process dies, any process sends the message again later.
import { codeOf, messageOf } from '../errors/errors.js';
import type { Logger } from '../process/logger.js';
import { groupBy, type AlertRules } from '../documents/concerns/concern.js';
import { claimMessages, noteAttempt, type DueMessage } from '../state/alerts.js';
import type { State } from '../state/database.js';
import { readBinding } from '../state/destination-binding.js';
import type { ParsedConfig } from '../streams/config-schema.js';
import { withDeadline } from '../time/deadline.js';
import { SEND_WITHIN_MS, type Channel } from './channels.js';
import { composeNotice, SentInPart, type Notice } from './notice.js';

export interface AlertDeps {
  state: State;
  log: Logger;
  channels: readonly Channel[];
  rules: AlertRules;
  report: ParsedConfig['report'];
  streams: readonly string[];
  timeZone: string;
}

const MOST_AT_ONCE = 50;

/** Sends due messages to all channels at the same time. Failed sends are retried later. */
export async function sendDue({ state, log, channels }: AlertDeps, signal?: AbortSignal): Promise<void> {
  const organization = await readOrganization(state);
  await Promise.all(
    channels.map(async (channel) => {
      try {
        await sendTo(channel, { state, log, organization }, signal);
      } catch (error) {
        log.warn(
          { channel: channel.name, code: codeOf(error) },
          'due alerts could not be read; the next round retries',
        );
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
  await Promise.all(
    groupBy(due, nameOfNotice).map(async ([, group, { missing }]) => {
      const facts = { channel: channel.name, alerts: group.length };
      const attempt = await trySend(channel, composeNotice(organization, group), { missing, signal });
      const ids = group.map(({ id }) => id);
      await noteAttempt(state.db, ids, attempt);
      const { problem: reason } = attempt;
      if (reason === null) log.info(facts, 'alerts sent');
      else if (attempt.missing === null)
        log.warn({ ...facts, reason }, 'alerts could not be sent; a later attempt follows');
      else
        log.warn(
          { ...facts, reason },
          'alerts did not reach some addresses; a later attempt follows for these',
        );
    }),
  );
}

/** Messages with an equal name make one notice. A nightly run gets a notice of its own. */
const nameOfNotice = ({ decidedAt, missing, alert }: DueMessage) =>
  JSON.stringify([decidedAt, missing, alert.message.run]);

/**
 * Sends a notice within the time limit, to the addresses in `missing`, or to all if null. Returns the reason of a
 * failure as `problem`, and as `missing` the addresses that did not get the notice.
 */
export async function trySend(
  channel: Channel,
  notice: Notice,
  { missing = null, signal }: { missing?: readonly string[] | null; signal?: AbortSignal | undefined } = {},
): Promise<{ problem: string | null; missing: readonly string[] | null }> {
  try {
    await withDeadline({ ms: SEND_WITHIN_MS, signal }, (ending) => channel.send(notice, ending, missing));
    return { problem: null, missing: null };
  } catch (error) {
    if (error instanceof SentInPart) return { problem: error.message, missing: error.missing };
    return { problem: signal?.aborted ? 'the process was stopped' : messageOf(error), missing };
  }
}

export async function readOrganization(state: State): Promise<Notice['organization']> {
  const bound = await readBinding(state);
  return bound ? { id: bound.organizationId, service: bound.baseUrl } : null;
}
