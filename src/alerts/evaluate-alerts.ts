// Decides alerts, in one transaction and by one process at a time: opens an alert for each concern that the rules
// report, and ends alerts whose concern is gone. send-alerts.ts sends the messages, and `claimMessages` of
// state/alerts.ts schedules retries. Runs wait for neither.
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

/** Time limit of a statement in milliseconds. Short, because the evaluation uses a connection that the work needs. */
export const LONGEST_STATEMENT_MS = 10_000;

/** Minutes for which the cause must be gone before an alert ends. A cause that comes and goes is one alert. */
const OVER_AFTER_MINUTES = 10;

const MINUTE = 60_000;
/** Minutes until a concern without its own rule causes an alert, because operators also pause runs on purpose. */
const NEEDS_PERSON_MINUTES = 60;

/** Returns the alerts that should be open now, by the rules of the configuration. No alert contains a key. */
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
        // Commands of the concern. If it has no command, the operator finds the details with `slotsync status`.
        commands: (commands.length === 0 ? ['slotsync status'] : commands).map(commandOf),
      },
    };
  });
}

/** Lines for the message that an alert has ended. Records may nevertheless be out of sync. */
export function describeAfterwards(
  { unsettled, processes }: Pick<Grounds, 'unsettled' | 'processes'>,
  condition: AlertCause['condition'],
): string[] {
  // Processes that were killed or cut off while their sending had stopped. It is not known if they send.
  const lost = processes.filter(({ isAlive, stoppedSince }) => !isAlive && stoppedSince !== null).length;
  return lines(
    condition === 'sending_stopped' &&
      lost > 0 &&
      `${plural(lost, 'process', 'processes')} that sent nothing ${lost === 1 ? 'was' : 'were'} killed, or cut off: slotsync status`,
    unsettled > 0 && `${describeUnsettled(unsettled)}: slotsync failures`,
  );
}

/** Opens an alert for each new cause, and ends alerts without a cause. Returns false if another process evaluates. */
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
        // Alerts about a gate end at once, because an operator has answered it. A later hold is a new alert.
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
