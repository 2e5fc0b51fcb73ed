// Decides alerts, in one transaction and by one process at a time: opens one for each concern that the rules report, and ends
// those whose concern is gone. Sending is another step (send-alerts.ts), and state/alerts.ts
// (`claimMessages`) says when a message that could not be sent is sent again. Nothing of a run waits for either.
import {
  concerns,
  concernToNotice,
  kindOf,
  needsPerson,
  type Concern,
} from '../documents/concerns/concerns.js';
import type { AlertRules } from '../documents/concerns/concern.js';
import { describeUnsettled } from '../documents/failures.js';
import { commandOf, plain } from '../render/text.js';
import { readGrounds, type Grounds } from '../situation/situation.js';
import {
  addMessages,
  listOpenAlerts,
  noteCause,
  openAlert,
  recoverAlert,
  type AlertCause,
} from '../state/alerts.js';
import type { Queries } from '../state/database.js';
import { tryLock } from '../state/locks.js';
import { limitReading } from '../state/snapshot.js';
import { lines, plural } from '../text/format.js';
import { namesOf } from './channels.js';
import { noteNightly } from './note-nightly.js';
import type { AlertDeps } from './send-alerts.js';

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
