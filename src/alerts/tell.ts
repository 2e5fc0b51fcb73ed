// Alerts are decided in one transaction by one process at a time, and sent outside of it: whoever claims a message sends
// it, so a process that dies between both leaves it to another. Nothing of a run waits for any of this.
import { codeOf, messageOf } from '../errors/errors.js';
import type { Logger } from '../process/logger.js';
import { groupBy, type AlertRules } from '../documents/concerns/concern.js';
import {
  concerns,
  concernToNotice,
  kindOf,
  needsPerson,
  type Concern,
} from '../documents/concerns/concerns.js';
import { describeUnsettled } from '../documents/failures.js';
import { commandOf, plain } from '../render/text.js';
import { readGrounds, type Grounds } from '../situation/situation.js';
import {
  addMessages,
  claimMessages,
  listOpenAlerts,
  noteAttempt,
  noteCause,
  openAlert,
  recoverAlert,
  type AlertCause,
  type DueMessage,
} from '../state/alerts.js';
import type { Queries, State } from '../state/database.js';
import { readBinding } from '../state/destination-binding.js';
import { tryLock } from '../state/locks.js';
import { limitReading } from '../state/snapshot.js';
import type { ParsedConfig } from '../streams/config-schema.js';
import { lines, plural } from '../text/format.js';
import { withDeadline } from '../time/deadline.js';
import { namesOf, SEND_WITHIN_MS, type Channel } from './channels.js';
import { noteNightly } from './note-nightly.js';
import { composeNotice, SentInPart, type Notice } from './notice.js';

export interface AlertDeps {
  state: State;
  log: Logger;
  channels: readonly Channel[];
  rules: AlertRules;
  /** The report that is mailed; undefined: none is. */
  report: ParsedConfig['report'];
  /** Names of the configured streams. */
  streams: readonly string[];
  timeZone: string;
}

/** Alerts in one notice. */
const MOST_AT_ONCE = 50;

/** It uses one of the few connections that the work has, so it stops waiting early. */
export const LONGEST_STATEMENT_MS = 10_000;

/** An alert is over when its cause has been gone for this long: one that comes and goes is one alert. */
const OVER_AFTER_MINUTES = 10;

const MINUTE = 60_000;
/** A concern without a rule of its own is reported when it has lasted for this long: a run is paused, a worker restarted, on purpose. */
const NEEDS_PERSON_MINUTES = 60;

/** Every alert that is to be open now: concerns that need somebody, by the rules of the configuration. No alert names a key. */
export function chooseAlerts(
  concerns: readonly Concern[],
  rules: AlertRules,
  { timeZone, now }: { timeZone: string; now: Date },
): AlertCause[] {
  return concerns.flatMap((concern) => {
    const { facts, since } = concern;
    const { alert, alertCommands } = kindOf(concern);
    const after = alert ? alert.after(rules, concern) : needsPerson(concern) && NEEDS_PERSON_MINUTES;
    if (after === false) return [];
    if (after > 0 && since && now.getTime() - since.getTime() < after * MINUTE) return [];
    const { text, details = [] } = concernToNotice(concern, now);
    const commands = alertCommands?.(facts) ?? concern.commands;
    return {
      cause: concern.id,
      condition: alert?.condition ?? 'needs_person',
      message: {
        title: plain(text, timeZone),
        details: details.map((line) => plain(line, timeZone)),
        // Commands that help; the status has the rest.
        commands: (commands.length === 0 ? ['slotsync status'] : commands).map(commandOf),
      },
    };
  });
}

/** The lines to add when an alert is over: it may have ended without everything being in sync. */
export function describeAfterwards(
  { unsettled, processes }: Pick<Grounds, 'unsettled' | 'processes'>,
  condition: AlertCause['condition'],
): string[] {
  // Killed or cut off while they sent nothing: nobody knows whether they send.
  const lost = processes.filter(({ isAlive, stoppedSince }) => !isAlive && stoppedSince !== null).length;
  return lines(
    condition === 'sending_stopped' &&
      lost > 0 &&
      `${plural(lost, 'process', 'processes')} that sent nothing ${lost === 1 ? 'was' : 'were'} killed, or cut off: slotsync status`,
    unsettled > 0 && `${describeUnsettled(unsettled)}: slotsync failures`,
  );
}

/** Opens an alert for each cause that is there, and ends those whose cause is gone. False: another process is at it. */
export async function evaluateAlerts(
  { state, channels, rules, report, streams, timeZone }: Omit<AlertDeps, 'log'>,
  now?: Date,
): Promise<boolean> {
  const evaluate = async (tx: Queries) => {
    await limitReading(tx, LONGEST_STATEMENT_MS);
    if (!(await tryLock(tx, 'alerts'))) return false;
    const open = await listOpenAlerts(tx);
    const situation = await readGrounds(tx, { streams, now });
    const all = concerns(situation, rules);
    const causes = chooseAlerts(all, rules, { timeZone, now: situation.now });
    const names = namesOf(channels, 'alerts');
    for (const cause of causes)
      if (!open.some((alert) => alert.cause === cause.cause)) await openAlert(tx, cause, names);
    for (const { id, cause, condition, messages } of open.toSorted((a, b) => a.id - b.id)) {
      const isThere = causes.some((found) => found.cause === cause);
      await noteCause(tx, id, isThere);
      if (!isThere) {
        // An operator has decided about the gate: what is held next is another decision.
        const afterMinutes = condition === 'run_held' ? 0 : OVER_AFTER_MINUTES;
        const afterwards = describeAfterwards(situation, condition);
        await recoverAlert(tx, id, { afterMinutes, message: { afterwards } });
      } else if (messages.length === 0) await addMessages(tx, id, names);
    }
    await noteNightly(tx, { situation, concerns: all, channels, report });
    return true;
  };
  return state.db.transaction(evaluate, { isolationLevel: 'repeatable read' });
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
  await Promise.all(
    groupIntoNotices(due).map(async (group) => {
      const facts = { channel: channel.name, alerts: group.length };
      const missing = group[0]?.missing ?? null;
      const notice = composeNotice(organization, group);
      const attempt = await trySend(channel, notice, { missing, signal });
      const ids = group.map(({ id }) => id);
      await noteAttempt(state.db, ids, attempt);
      const { problem: reason } = attempt;
      if (reason === null) log.info(facts, 'alerts sent');
      else if (attempt.missing === null) log.warn({ ...facts, reason }, 'alerts not sent; it is retried');
      else log.warn({ ...facts, reason }, 'alerts not sent to some addresses; it is retried for those');
    }),
  );
}

/** Messages that were decided at the same time, to the same addresses, are one notice; a nightly run has its own. */
function groupIntoNotices(due: readonly DueMessage[]): DueMessage[][] {
  const nameOf = ({ decidedAt, missing, alert }: DueMessage) =>
    JSON.stringify([decidedAt, missing, alert.message.run]);
  return groupBy(due, nameOf).map(([, group]) => group);
}

/**
 * Sends a notice within the time limit, to those who miss it or, with null, to everybody. `problem`: why it did not arrive,
 * or not at those who miss it then.
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
