// The concerns that become alerts: those that need somebody, by the rules of the configuration. A concern is reported
// once for as long as it lasts. No alert names a key.
import { concernToNotice } from '../documents/concerns.js';
import { commandOf, plain } from '../render/plain.js';
import { needsPerson, type Concern } from '../situation/concerns.js';
import type { Grounds } from '../situation/situation.js';
import type { AlertCause } from '../state/alerts.js';
import type { AlertCondition } from '../state/schema.js';
import type { ParsedConfig } from '../streams/config-schema.js';
import { plural } from '../text/format.js';

export type AlertRules = ParsedConfig['alerts'];

const MINUTE = 60_000;
/** A concern without a rule of its own is reported when it has lasted for this long: a run is paused, a worker restarted, on purpose. */
const NEEDS_PERSON_MINUTES = 60;

/** Every alert that is to be open now. Times are shown in the time zone. */
export function chooseAlerts(
  concerns: readonly Concern[],
  rules: AlertRules,
  { timeZone, now }: { timeZone: string; now: Date },
): AlertCause[] {
  return concerns
    .filter((concern) => isTold(concern, rules, now))
    .map((concern) => {
      const { text, details = [] } = concernToNotice(concern, now);
      return {
        cause: concern.id,
        condition: conditionOf(concern),
        message: {
          title: plain(text, timeZone),
          details: details.map((line) => plain(line, timeZone)),
          commands: commandsOf(concern).map(commandOf),
        },
      };
    });
}

/** Commands that help; the status has the rest. */
function commandsOf(concern: Concern): readonly string[] {
  // The command that helps a record may name its key.
  if (concern.kind === 'records') return [`slotsync failures ${concern.facts.stream}`];
  return concern.commands.length === 0 ? ['slotsync status'] : concern.commands;
}

function isTold(concern: Concern, rules: AlertRules, now: Date): boolean {
  const hasLasted = (minutes: number) =>
    concern.since === null || now.getTime() - concern.since.getTime() >= minutes * MINUTE;
  const after = (minutes: number | false) => minutes !== false && hasLasted(minutes);
  switch (concern.kind) {
    case 'state_restored':
    case 'no_success':
    case 'source_stale':
      return true;
    case 'run_failed':
      return rules.runs.includes('failed');
    case 'run_partial':
      return rules.runs.includes('partial');
    case 'gate':
      return needsPerson(concern) && rules.runs.includes('held');
    case 'sending_stopped':
      return after(rules.sendingStoppedMinutes);
    case 'drift':
      return rules.driftObjects !== false && concern.facts.objects >= rules.driftObjects;
    case 'inbox':
    case 'inbox_unknown':
      return after(rules.inboxMinutes);
    default:
      return needsPerson(concern) && hasLasted(NEEDS_PERSON_MINUTES);
  }
}

function conditionOf({ kind }: Concern): AlertCondition {
  switch (kind) {
    case 'state_restored':
    case 'no_success':
    case 'source_stale':
    case 'run_failed':
    case 'run_partial':
    case 'sending_stopped':
    case 'drift':
    case 'inbox':
      return kind;
    case 'gate':
      return 'run_held';
    case 'inbox_unknown':
      return 'inbox';
    default:
      return 'needs_person';
  }
}

/** The lines to add when an alert is over: it may have ended without everything being in sync. */
export function describeAfterwards(
  { unsettled, processes }: Pick<Grounds, 'unsettled' | 'processes'>,
  condition: AlertCause['condition'],
): string[] {
  // Killed or cut off while they sent nothing: nobody knows whether they send.
  const lost = processes.filter(({ isAlive, stoppedSince }) => !isAlive && stoppedSince !== null).length;
  return [
    ...(condition === 'sending_stopped' && lost > 0
      ? [
          `${plural(lost, 'process', 'processes')} that sent nothing ${lost === 1 ? 'was' : 'were'} killed, or cut off: slotsync status`,
        ]
      : []),
    ...(unsettled > 0
      ? [`${plural(unsettled, 'record')} ${unsettled === 1 ? 'is' : 'are'} not in sync: slotsync failures`]
      : []),
  ];
}
