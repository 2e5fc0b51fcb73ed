// Finds the concerns of a situation: facts that need an operator, or that an operator should know. Every surface shows
// these concerns, so no surface omits a problem that another surface reports.
import { plural, present } from '../../text/format.js';
import type { Point, Text } from '../document.js';
import type { AlertRules, ConcernOf, Ground, Kind } from './concern.js';
import { PROCESSES } from './processes.js';
import { RECORDS } from './records.js';
import { RUNS } from './runs.js';

/** All kinds of concerns. Concerns of equal severity are shown in this order. */
const KINDS = { ...PROCESSES, ...RUNS, ...RECORDS };

export type ConcernKind = keyof typeof KINDS;
type FactsOf<Entry> = Entry extends Kind<infer Facts> ? Facts : never;
export type Concern = {
  [Name in ConcernKind]: ConcernOf<Name, FactsOf<(typeof KINDS)[Name]>>;
}[ConcernKind];

export const kindOf = ({ kind }: Pick<Concern, 'kind'>): Kind<unknown> => KINDS[kind];

const SEVERITIES = ['critical', 'action', 'notice'] as const;

/**
 * Returns all concerns, the most severe first. The default limits are those of a configuration that sets no limits.
 */
export function concerns(
  ground: Ground,
  limits: Pick<AlertRules, 'noSuccessHours' | 'inboxMinutes'> = { inboxMinutes: 60 },
): Concern[] {
  return Object.entries<Kind<unknown>>(KINDS)
    .flatMap(([kind, { severity, find }]) =>
      present(find(ground, limits)).map(
        ({ facts, ...found }) =>
          ({ id: kind, kind, severity, since: null, subject: '', facts, commands: [], ...found }) as Concern,
      ),
    )
    .toSorted((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity));
}

export const needsPerson = ({ severity }: Pick<Concern, 'severity'>): boolean => severity !== 'notice';

/** Returns the concern as status, page and report show it to an operator. */
export function concernToPoint(concern: Concern, now: Date): Point {
  const { facts, since, commands } = concern;
  const { point, say } = kindOf(concern);
  const at = since ? { since: { near: since, now } } : {};
  if (point) return { ...point(facts, now), ...at };
  const { details = [], named = [], actions = commands, ...shown } = say(facts, { since, now });
  return { ...shown, ...at, details: [...details, ...named], commands: actions };
}

/** Returns the text of the concern for alerts, without any key, host name, or text of another system. */
export function concernToNotice(concern: Concern, now: Date): Pick<Point, 'text' | 'details'> {
  const { facts, since } = concern;
  const { text, details = [], next } = kindOf(concern).say(facts, { since, now });
  return { text, details: present<Text>(details, next) };
}

const WIDTH = 80;

/** Returns one line about all that needs an operator, which says "now" if something is critical. Undefined if nothing does. */
export function describeWhoseTurn(all: readonly Concern[]): string | undefined {
  const mine = all.filter(needsPerson);
  if (mine.length === 0) return undefined;
  const you = mine.some(({ severity }) => severity === 'critical') ? 'you now' : 'you';
  const kinds = [...new Set(mine.map(({ kind }) => kind))];
  const parts = kinds.map((kind) => {
    const ofKind = mine.filter((concern) => concern.kind === kind);
    return kindOf({ kind }).short?.(ofKind.map(({ facts }) => facts)) ?? kind.replaceAll('_', ' ');
  });
  const whole = (shown: number) => {
    const more = parts.length - shown;
    return `${plural(mine.length, 'thing needs', 'things need')} ${you}: ${parts.slice(0, shown).join(', ')}${more > 0 ? `, ${more} more` : ''}`;
  };
  const shown = parts.findLastIndex((_, index) => whole(index + 1).length <= WIDTH) + 1;
  return whole(Math.max(1, shown));
}

/** Counts concerns by kind and severity. Kinds without concerns are included with a count of zero. */
export function countConcerns(all: readonly Concern[]) {
  const counts = new Map(
    Object.entries(KINDS).map(([kind, { severity }]) => [
      `${kind} ${severity}`,
      { kind, severity, count: 0 },
    ]),
  );
  for (const { kind, severity } of all) {
    const { count = 0 } = counts.get(`${kind} ${severity}`) ?? {};
    counts.set(`${kind} ${severity}`, { kind, severity, count: count + 1 });
  }
  return [...counts.values()];
}
