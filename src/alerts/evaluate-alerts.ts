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
  listUnnotedNightly,
  readLatestNightly,
  type NightlyRun,
} from '../state/alerts.js';
import { type Queries, inSnapshot, limitReading } from '../state/database.js';
import { tryLock } from '../state/locks.js';
import { counted, lines } from '../text/format.js';
import { namesOf } from './channels.js';
import type { AlertDeps } from './send-alerts.js';
import { randomUUID } from 'node:crypto';
import { readGates, waitsForOperator } from '../state/gates/gates.js';
import { listStreams } from '../state/streams.js';

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
      counted`${lost} process{|es} that sent nothing {was|were} killed, or lost the state database: slotsync status`,
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
    await noteNightly(tx, all, situation, { channels, report });
    return true;
  };
  return state.db.transaction(evaluate, { isolationLevel: 'repeatable read' });
}

// Notes the start and the end of each nightly run once, as an alert that is open during the run. Any process may end
// the run: the next evaluation notes the end. Messages are sent like those of other alerts.

async function noteNightly(
  tx: Queries,
  concerns: readonly Concern[],
  situation: Pick<Grounds, 'streamStates' | 'gates' | 'unsettled'>,
  { channels, report }: Pick<AlertDeps, 'channels' | 'report'>,
): Promise<void> {
  for (const { status, alert, ...nightly } of await listUnnotedNightly(tx)) {
    const { id: runId, finishedAt } = nightly;
    const titleOf = (what: string) => ({ title: `Nightly sync, run ${runId}: ${what}` });
    const run = alert?.message.run ?? { id: runId, uuid: randomUUID() };
    const message = { ...titleOf('started'), details: [], commands: [], run };
    const cause = { cause: `nightly_run ${runId}`, condition: 'nightly_run', message } as const;
    const pinged = namesOf(channels, 'nightly runs');
    const id = alert?.id ?? (await openAlert(tx, cause, pinged));
    if (id === undefined || finishedAt === null) continue;
    const needed = concerns.filter(needsPerson).length;
    const isSomething = status !== 'succeeded' || needed > 0 || situation.unsettled > 0;
    const isReported = report !== undefined && (report.only === 'always' || isSomething);
    await noteCause(tx, id, false);
    await recoverAlert(tx, id, {
      afterMinutes: 0,
      message: {
        ...titleOf(needed > 0 ? `${status}, needs a person: ${needed}` : status),
        run: { ...run, isBad: isBad(nightly, situation) },
      },
      channels: [...pinged, ...(isReported ? namesOf(channels, 'ends of nightly runs') : [])],
    });
  }
}

/** Returns true if the latest nightly run ended badly, and its problem still exists. */
export async function isLatestNightlyBad(db: Queries): Promise<boolean> {
  const read = async (tx: Queries) => {
    const latest = await readLatestNightly(tx);
    const situation = { streamStates: await listStreams(tx), gates: await readGates(tx) };
    return latest !== undefined && isBad(latest, situation);
  };
  return inSnapshot(db, read, { limitMs: LONGEST_STATEMENT_MS });
}

/**
 * Returns true if the run left a problem of a stream, or a gate that has waited for an operator since before the run
 * ended. Answered gates, freezes, and problems of later runs do not count.
 */
function isBad(
  { id, streams, finishedAt }: NightlyRun,
  { streamStates, gates }: Pick<Grounds, 'streamStates' | 'gates'>,
): boolean {
  const isHeld = gates.some(
    (gate) =>
      waitsForOperator(gate) &&
      streams.includes(gate.stream) &&
      (finishedAt === null || gate.since <= finishedAt),
  );
  return isHeld || streamStates.some(({ problem }) => problem?.runId === id);
}
