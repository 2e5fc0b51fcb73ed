// Types of a kind of concern: its rule, severity, sentences and alert. Also the helpers that all kinds use.
import type { Grounds, QuotaFacts, Situation } from '../../situation/situation.js';
import type { AlertCondition, RunKind } from '../../state/schema.js';
import type { ParsedConfig } from '../../streams/config-schema.js';
import { formatDuration, formatNumber } from '../../text/format.js';
import { errorEntry, remedyFor } from '../../errors/error-catalogue.js';
import { addressOfRun, text, type Part, type Point, type Text } from '../document.js';

/**
 * `critical`: nothing is sent, or the known facts cannot be relied on. `action`: an operator has to decide or correct
 * something. `notice`: ends automatically, or may be left as it is.
 */
export type Severity = 'critical' | 'action' | 'notice';

export type AlertRules = ParsedConfig['alerts'];

/** Facts in which concerns are found. For alerts, only `Grounds` is read. The other facts are optional. */
export type Ground = Grounds & Partial<Omit<Situation, keyof Grounds>> & { quota?: QuotaFacts | null };

export interface ConcernOf<Kind, Facts> {
  /** Identifies the concern as long as it lasts. Contains no key, and no number or run that may change meanwhile. */
  id: string;
  kind: Kind;
  severity: Severity;
  /** Time when the concern began. Null if the time is not known. */
  since: Date | null;
  /** Name of the stream, run or process. Empty if the concern is about the whole installation. */
  subject: string;
  facts: Facts;
  commands: readonly string[];
}

/**
 * Concern as a rule returns it. Omitted fields get the defaults of its kind. The default id is the name of the kind.
 */
type Found<Facts> = Pick<ConcernOf<string, Facts>, 'facts'> & Partial<ConcernOf<string, Facts>>;

export interface Kind<Facts> {
  /** Default severity, unless the result of `find` names another severity. */
  severity: Severity;
  find(
    ground: Ground,
    limits: Pick<AlertRules, 'noSuccessHours' | 'inboxMinutes'>,
  ): Found<Facts> | readonly Found<Facts>[] | false | null | undefined;
  /** Describes the concern. Only `named` and `samples` may contain a key, a host, or text of another system. */
  say(
    facts: Facts,
    concern: { since: Date | null; now: Date },
  ): Omit<Point, 'commands'> & {
    named?: readonly Text[];
    /** Buttons of the page that replace the commands of the concern. */
    actions?: Point['commands'];
  };
  /** Replaces `say` where operators see the concern, so that it may contain keys, links and buttons. */
  point?(facts: Facts, now: Date): Point;
  /** Words for all concerns of this kind in a one-line summary, such as `3 holds`. Default: the name of the kind. */
  short?(all: readonly Facts[]): string;
  listedBy?: string;
  /**
   * `after` returns for how many minutes the concern must last before an alert, or false for no alert. If `alert` is
   * unset, a concern that needs an operator causes an alert after an hour.
   */
  alert?: {
    condition: AlertCondition;
    after(rules: AlertRules, concern: Pick<ConcernOf<string, Facts>, 'facts' | 'severity'>): number | false;
  };
  /** Commands in the alert. Set if the commands of the concern may contain a key, which alerts must not. */
  alertCommands?(facts: Facts): readonly string[];
}

/** Declares a kind of concern. TypeScript infers the type of the facts from the result of `find`. */
export const kind = <Facts>(entry: Kind<Facts>): Kind<Facts> => entry;

export const MOST_NAMED = 3;
const MOST_STREAMS = 10;

/** Example: `rooms, courses, staff and 3 more`. `count` is the total if `streams` has only some of the streams. */
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

/** Groups elements by name. Returns, for each group, its name, its elements and its last element. */
export function groupBy<T>(all: readonly T[], nameOf: (element: T) => string) {
  const groups = new Map<string, [T, ...T[]]>();
  for (const element of all) {
    const group = groups.get(nameOf(element));
    if (group) group.push(element);
    else groups.set(nameOf(element), [element]);
  }
  return [...groups].map(([name, group]) => [name, group, group.at(-1) ?? group[0]] as const);
}
