// The entry of one kind of concern: the rule that finds it, its severity, its sentences, and the rule of its alert.
import type { Grounds, QuotaFacts, Situation } from '../../situation/situation.js';
import type { AlertCondition, RunKind } from '../../state/schema.js';
import type { ParsedConfig } from '../../streams/config-schema.js';
import { formatDuration, formatNumber } from '../../text/format.js';
import { errorEntry, remedyFor } from '../../errors/error-catalogue.js';
import { addressOfRun, text, type Part, type Point, type Text } from '../document.js';

/**
 * `critical`: nothing is sent, or what is known cannot be relied on. `action`: somebody has to decide or correct something.
 * `notice`: it ends on its own, or may be left as it is.
 */
export type Severity = 'critical' | 'action' | 'notice';

export type AlertRules = ParsedConfig['alerts'];

/** The ground of alerts; with the whole situation, also notices that never become one. */
export type Ground = Grounds &
  Partial<Pick<Situation, 'inDoubt' | 'formerObjects' | 'orphanedClaims'>> & { quota?: QuotaFacts | null };

export interface ConcernOf<Kind, Facts> {
  /** The same for as long as the concern lasts: no number or run that may change meanwhile, and no key. */
  id: string;
  kind: Kind;
  severity: Severity;
  /** Since when it is so; null: that is not known. */
  since: Date | null;
  /** Name of the stream, run or process concerned. Empty: the whole installation. */
  subject: string;
  facts: Facts;
  /** Commands that an operator runs. */
  commands: readonly string[];
}

/** A concern, as far as it is not that of every concern of its kind. The id is the kind unless it is set. */
type Found<Facts> = Pick<ConcernOf<string, Facts>, 'facts'> & Partial<ConcernOf<string, Facts>>;

export interface Kind<Facts> {
  /** Severity, unless `find` returns another one. */
  severity: Severity;
  find(
    ground: Ground,
    limits: Pick<AlertRules, 'noSuccessHours' | 'inboxMinutes'>,
  ): Found<Facts> | readonly Found<Facts>[] | false | null | undefined;
  /** The concern in sentences. Only `named` and `samples` may name a key, a host, or what another system said. */
  say(
    facts: Facts,
    concern: { since: Date | null; now: Date },
  ): Omit<Point, 'commands'> & {
    named?: readonly Text[];
    /** Buttons for its commands. */
    actions?: Point['commands'];
  };
  /** Replaces `say` for operators, where they are shown more than sentences. */
  point?(facts: Facts, now: Date): Point;
  /** The words of a line for several concerns of the kind. The name of the kind unless set. */
  short?(all: readonly Facts[]): string;
  /** The command that lists all concerns of the kind. */
  listedBy?: string;
  /** `after`: minutes that it lasts before it is reported; false: it is not. Unset: after an hour, if it needs a person. */
  alert?: {
    condition: AlertCondition;
    after(rules: AlertRules, concern: Pick<ConcernOf<string, Facts>, 'facts' | 'severity'>): number | false;
  };
  /** The commands of its alert, where those of the concern may name a key. */
  alertCommands?(facts: Facts): readonly string[];
}

/** An entry of the table. Its facts are what `find` returns. */
export const kind = <Facts>(entry: Kind<Facts>): Kind<Facts> => entry;

/** Concerns and streams that are named one by one. */
export const MOST_NAMED = 3;
const MOST_STREAMS = 10;

/** `rooms, courses, staff and 3 more`. `count`: of all of them, where `streams` are only some. */
export function nameSome(streams: readonly string[], most = MOST_NAMED, count = streams.length): string {
  const named = streams.slice(0, most);
  return `${named.join(', ')}${count > named.length ? ` and ${formatNumber(count - named.length)} more` : ''}`;
}

export const listStreams = (streams: readonly string[], count?: number) =>
  streams.length === 0 ? [] : [`Streams: ${nameSome(streams, MOST_STREAMS, count)}.`];

export const remedyOf = (code: string | null) => remedyFor(code) || undefined;

export const meaningOf = (code: string | null) =>
  code === null ? [] : [`${code}: ${errorEntry(code).meaning}.`];

export const linkToRunAtBegin = (runId: number): Part => ({
  text: `Run ${runId}`,
  href: addressOfRun(runId),
});

export const nameRun = (runId: number, runKind: RunKind): Text =>
  text`${linkToRunAtBegin(runId)} (${runKind})`;

export const nameProcess = ({ command, host, pid }: { command: string; host: string; pid: number }) =>
  `${command} on ${host}, process ${pid}`;

export const ago = (time: Date, now: Date) =>
  formatDuration(Math.max(0, (now.getTime() - time.getTime()) / 1000));

const inOrder = (times: readonly Date[]) => times.toSorted((a, b) => a.getTime() - b.getTime());
export const earliest = (times: readonly Date[]) => inOrder(times)[0] ?? null;
export const latest = (times: readonly Date[]) => inOrder(times).at(-1) ?? null;

export const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0);

/** Groups with their name, all of the group, and its last. */
export function groupBy<T>(all: readonly T[], nameOf: (element: T) => string) {
  const groups = new Map<string, [T, ...T[]]>();
  for (const element of all) {
    const group = groups.get(nameOf(element));
    if (group) group.push(element);
    else groups.set(nameOf(element), [element]);
  }
  return [...groups].map(([name, group]) => [name, group, group.at(-1) ?? group[0]] as const);
}
